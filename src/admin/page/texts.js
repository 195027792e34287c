// @ts-check
/** All sentences of the page, so that a translation replaces one file. */

/** The headline by the state of readiness; `titleMark` starts the tab's title. */
export const HEADLINES = {
  serving: { text: 'noria works', titleMark: '' },
  starting: { text: 'noria is starting', titleMark: '… ' },
  idle: { text: 'noria is ready, without clients', titleMark: '' },
  degraded: { text: 'noria works, with problems', titleMark: '! ' },
  'not-serving': { text: 'noria cannot serve clients', titleMark: '✕ ' },
};

export const LOST = {
  headline: 'noria does not answer',
  title: '✕ noria does not answer',
  /** @param {string} silent */
  detail: (silent) =>
    `No answer for ${silent}: the process has ended, or this browser cannot reach it. The figures below are the last ones. The page keeps trying.`,
  advice:
    'Check that noria runs, for example with systemctl status noria or docker ps, and look at the end of its log.',
};

/** @param {string} time */
export const notServingFor = (time) => `Clients get the error pool-empty (503). This has lasted for ${time}.`;
export const NEXT_ATTEMPT = {
  /** @param {string} time */
  in: (time) => `noria tries again in ${time}.`,
  now: 'noria tries again now.',
  none: 'noria tries again when you have acted, or with the next client.',
};
/** @param {string} waiting */
export const waitingFor = (waiting) => `${waiting} waiting for a member.`;
/** @param {string} usable */
export const usableTitle = (usable) => `noria: ${usable} usable`;
export const NOT_SERVING_TITLE = 'noria: no service';
