// @ts-check
/** The headline: whether noria can serve clients, why not, and what to do. And the facts in the page header. */
import { byId, h, setAttribute, setText } from './dom.js';
import { count, counted, duration, printable, sentence } from './format.js';
import {
  HEADLINES,
  LOST,
  NEXT_ATTEMPT,
  NOT_SERVING_TITLE,
  notServingFor,
  usableTitle,
  waitingFor,
} from './texts.js';

/**
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {{ source: string | null, reason: string, advice: string | null }} Shown
 */

/** @param {Status} status */
export function showHeadline(status) {
  const { state, pool } = status;
  const { headline, detail, title, problems } = describe(status);
  if (byId('headline').getAttribute('data-health') !== state) announce(headline);
  setAttribute(byId('headline'), 'data-health', state);
  setText(byId('headline-text'), headline);
  const waiting = pool.waitingClients > 0 ? waitingFor(counted(pool.waitingClients, 'client')) : '';
  showDetail([detail, waiting].filter((text) => text !== '').join(' '));
  showProblems(problems);
  document.title = printable(title);
  showFacts(factsOf(status));
}

/**
 * The headline of a noria that does not answer.
 *
 * @param {number} silentSeconds
 */
export function showLost(silentSeconds) {
  setAttribute(byId('headline'), 'data-health', 'lost');
  setText(byId('headline-text'), LOST.headline);
  showDetail(LOST.detail(duration(silentSeconds)));
  showProblems([{ source: null, reason: '', advice: LOST.advice }]);
  document.title = LOST.title;
}

/**
 * @param {Status} status
 * @returns {{ headline: string, detail: string, title: string, problems: readonly Shown[] }}
 */
export function describe({ state, ready, reason, sinceSeconds, nextAttemptSeconds, problems, sources }) {
  const { text, titleMark } = HEADLINES[state];
  const usable = sources.reduce((sum, source) => sum + source.ready, 0);
  return {
    headline: ready ? `${text}: ${reason}.` : `${text}.`,
    detail: ready ? '' : `${notServingFor(duration(sinceSeconds))} ${nextAttempt(nextAttemptSeconds)}`,
    title: `${titleMark}${ready ? usableTitle(count(usable)) : NOT_SERVING_TITLE}`,
    problems: mergeProblems(problems),
  };
}

/**
 * The same problem of several sources is shown once.
 *
 * @param {Status['problems']} problems
 * @returns {Shown[]}
 */
function mergeProblems(problems) {
  const groups = Map.groupBy(problems, ({ reason, advice }) => JSON.stringify([reason, advice]));
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    if (first === undefined) return [];
    const names = group.flatMap(({ source }) => source ?? []);
    return [{ ...first, source: names.length === 0 ? null : names.join(', ') }];
  });
}

/** @param {number | null} seconds */
function nextAttempt(seconds) {
  if (seconds === null) return NEXT_ATTEMPT.none;
  return seconds === 0 ? NEXT_ATTEMPT.now : NEXT_ATTEMPT.in(duration(seconds));
}

/** @param {string} text */
function showDetail(text) {
  setText(byId('headline-detail'), text);
  byId('headline-detail').hidden = text === '';
}

/** @param {readonly Shown[]} problems */
function showProblems(problems) {
  const list = byId('problems');
  const key = JSON.stringify(problems.map(({ source, reason, advice }) => [source, reason, advice]));
  if (list.dataset['shown'] === key) return;
  list.dataset['shown'] = key;
  list.replaceChildren(
    ...problems.map(({ source, reason, advice }) =>
      h(
        'li',
        {},
        ...(source === null ? [] : [h('strong', {}, `${source}: `)]),
        sentence(reason),
        ...(advice === null ? [] : [h('span', { class: 'remedy' }, advice)]),
      ),
    ),
  );
}

/** @param {Status} status */
function factsOf({ listeners, pool, sources, workers, fleet, uptimeSeconds, version }) {
  const connections = listeners.reduce((sum, listener) => sum + listener.connections, 0);
  return [
    listeners.map(({ address }) => address).join(', ') || 'no listener',
    ...(workers.wanted > 1 ? [`${workers.running} of ${counted(workers.wanted, 'worker')}`] : []),
    ...(fleet === null ? [] : [fleetFact(fleet)]),
    counted(connections, 'client connection'),
    counted(pool.openTunnels, 'open tunnel'),
    counted(sources.length, 'source'),
    `up ${duration(uptimeSeconds)}`,
    `version ${version}`,
  ];
}

/** @param {NonNullable<Status['fleet']>} fleet */
function fleetFact({ name, replica, store, lostForSeconds, replicas }) {
  const state =
    store === 'connected' ? counted(replicas.length, 'noria') : `store lost for ${duration(lostForSeconds)}`;
  return `fleet ${name} (this is ${replica}): ${state}`;
}

/**
 * Makes a screen reader say the text once.
 *
 * @param {string} text
 */
export function announce(text) {
  setText(byId('announcement'), text);
}

/** @param {readonly string[]} items */
function showFacts(items) {
  const list = byId('facts');
  const shown = [...list.children].map((item) => item.textContent);
  if (shown.join('\n') !== printable(items.join('\n')))
    list.replaceChildren(...items.map((item) => h('li', {}, item)));
}
