// @ts-check
/** The answer to the first question: does it work, in one sentence, with the reason when not. */
import { byId, h, setAttribute, setText } from './dom.js';
import { count, counted, duration } from './format.js';

/** @typedef {import('../schemas.ts').Status} Status */

const MOODS = {
  good: { says: 'noria works', mark: '' },
  troubled: { says: 'noria works, with trouble', mark: '! ' },
  bad: { says: 'noria does not work', mark: '\u2715 ' },
};

/** @param {Status} status */
export function showVerdict(status) {
  const { ready, reason, pool } = status;
  const [first = '', ...others] = reason.replace(/^(not )?ready: /, '').split('; ');
  const troubled = others.length > 0 || (pool.ready === 0 && pool.waitingClients > 0);
  const mood = !ready ? 'bad' : troubled ? 'troubled' : 'good';
  const { says, mark } = MOODS[mood];
  const verdict = `${says}: ${closed(first)}`;
  if (byId('verdict').getAttribute('data-mood') !== mood) announce(verdict);
  setAttribute(byId('verdict'), 'data-mood', mood);
  setText(byId('sentence'), verdict);
  document.title = `${mark}noria: ${count(pool.ready)} usable`;
  // Each begins with a source's name, which stays as it is written.
  const notes = others.map(closed);
  if (pool.waitingClients > 0)
    notes.unshift(`${counted(pool.waitingClients, 'client')} waiting for a member.`);
  showList('troubles', notes);
  showList('facts', factsOf(status));
}

/** @param {Status} status */
function factsOf({ listeners, pool, sources, workers, uptimeSeconds, version }) {
  const clients = listeners.reduce((sum, { connections }) => sum + connections, 0);
  return [
    listeners.map(({ address }) => address).join(', ') || 'no listener',
    ...(workers.wanted > 1 ? [`${workers.running} of ${counted(workers.wanted, 'worker')}`] : []),
    `${counted(clients, 'client')} connected`,
    `${counted(pool.openTunnels, 'tunnel')} open`,
    counted(sources.length, 'source'),
    `up ${duration(uptimeSeconds)}`,
    `version ${version}`,
  ];
}

/**
 * Says it to a screen reader, once.
 *
 * @param {string} text
 */
export function announce(text) {
  setText(byId('announcement'), text);
}

/** @param {string} id @param {readonly string[]} items */
function showList(id, items) {
  const list = byId(id);
  const shown = [...list.children].map((item) => item.textContent);
  if (shown.join('\n') !== items.join('\n')) list.replaceChildren(...items.map((item) => h('li', {}, item)));
}

/** @param {string} clause */
function closed(clause) {
  return clause.endsWith('.') ? clause : `${clause}.`;
}
