// @ts-check
/**
 * Shows the headline and the facts in the page header. The headline says whether noria can serve clients. If not, it
 * also says why, and what to do.
 */
import { byId, h, setAttribute, setText } from './dom.js';
import { count, counted, duration, printable, sentence } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {{ sources: readonly string[], reason: string, advice: string | null }} Shown - `advice` only for problems
 * without a source: the card of a source has its advice
 */

/** The headline names this many problems; the cards of the sources have all of them. */
const MAX_PROBLEMS = 3;

/** @param {Status} status */
export function showHeadline(status) {
  const { state, pool } = status;
  const { headline, detail, title, problems } = describe(status);
  if (byId('headline').getAttribute('data-health') !== state) announce(headline);
  setAttribute(byId('headline'), 'data-health', state);
  setText(byId('headline-text'), headline);
  const waiting =
    pool.waitingClients > 0 ? TEXTS.waitingFor(counted(pool.waitingClients, TEXTS.nouns.client)) : '';
  showDetail([detail, waiting].filter((text) => text !== '').join(' '));
  showProblems(problems);
  document.title = printable(title);
  showFacts(factsOf(status));
  showNorias(status.fleet);
}

/**
 * Shows that noria does not answer.
 * @param {number} silentSeconds - the time since the last answer
 */
export function showLost(silentSeconds) {
  setAttribute(byId('headline'), 'data-health', 'lost');
  setText(byId('headline-text'), TEXTS.lost.headline);
  showDetail(TEXTS.lost.detail(duration(silentSeconds)));
  showProblems([{ sources: [], reason: '', advice: TEXTS.lost.advice }]);
  document.title = TEXTS.lost.title;
}

/**
 * @param {Status} status
 * @returns {{ headline: string, detail: string, title: string, problems: readonly Shown[] }}
 */
export function describe({ state, ready, reason, sinceSeconds, nextAttemptSeconds, problems, sources }) {
  const { text, titleMark } = TEXTS.headlines[state];
  const usable = count(sources.reduce((sum, source) => sum + source.ready, 0));
  const isShuttingDown = problems[0]?.kind === 'shutting-down';
  const next = isShuttingDown ? '' : ` ${nextAttempt(nextAttemptSeconds)}`;
  return {
    headline: ready ? TEXTS.readyHeadline(text, reason) : `${text}${TEXTS.fullStop}`,
    detail: ready ? '' : `${TEXTS.notServingFor(duration(sinceSeconds))}${next}`,
    title: `${titleMark}${ready ? TEXTS.usableTitle(usable) : TEXTS.notServingTitle}`,
    problems: mergeProblems(problems),
  };
}

/**
 * Merges problems with the same reason and advice into one problem with the names of all their sources.
 * @param {Status['problems']} problems
 * @returns {Shown[]}
 */
function mergeProblems(problems) {
  const groups = Map.groupBy(problems, ({ reason, advice }) => JSON.stringify([reason, advice]));
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    if (first === undefined) return [];
    const names = group.flatMap(({ source }) => source ?? []);
    return [{ sources: names, reason: first.reason, advice: names.length === 0 ? first.advice : null }];
  });
}

/** @param {number | null} seconds */
function nextAttempt(seconds) {
  if (seconds === null) return TEXTS.nextAttempt.none;
  return seconds === 0 ? TEXTS.nextAttempt.now : TEXTS.nextAttempt.in(duration(seconds));
}

/** @param {string} text */
function showDetail(text) {
  setText(byId('headline-detail'), text);
  byId('headline-detail').hidden = text === '';
}

/** @param {readonly Shown[]} problems */
function showProblems(problems) {
  const list = byId('problems');
  const key = JSON.stringify(problems);
  if (list.dataset['shown'] === key) return;
  list.dataset['shown'] = key;
  list.replaceChildren(
    ...problems
      .slice(0, MAX_PROBLEMS)
      .map(({ sources, reason, advice }) =>
        h(
          'li',
          {},
          ...sources.flatMap((name, at) => [
            ...(at === 0 ? [] : [TEXTS.comma]),
            h('a', { href: `#source-${name}` }, name),
          ]),
          ...(sources.length === 0 ? [] : [TEXTS.colon]),
          sentence(reason),
          ...(advice === null ? [] : [h('span', { class: 'remedy' }, advice)]),
        ),
      ),
    ...(problems.length > MAX_PROBLEMS
      ? [h('li', {}, TEXTS.failure.more(count(problems.length - MAX_PROBLEMS)))]
      : []),
  );
}

/** @param {Status} status */
function factsOf({ listeners, pool, sources, workers, fleet, uptimeSeconds, version }) {
  const connections = listeners.reduce((sum, listener) => sum + listener.connections, 0);
  return [
    listeners.map(({ address }) => address).join(', ') || TEXTS.facts.noListener,
    ...(workers.wanted > 1
      ? [TEXTS.facts.workers(workers.running, counted(workers.wanted, TEXTS.nouns.worker))]
      : []),
    ...(fleet === null ? [] : [fleetFact(fleet)]),
    counted(connections, TEXTS.nouns.connection),
    counted(pool.openTunnels, TEXTS.nouns.openTunnel),
    counted(sources.length, TEXTS.nouns.source),
    TEXTS.facts.up(duration(uptimeSeconds)),
    TEXTS.facts.version(version),
  ];
}

/** @param {NonNullable<Status['fleet']>} fleet */
function fleetFact({ name, replica, store, lostForSeconds, replicas }) {
  const state =
    store === 'connected'
      ? counted(replicas.length, TEXTS.nouns.noria)
      : TEXTS.facts.storeLost(duration(lostForSeconds));
  return TEXTS.facts.fleet(name, replica, state);
}

/**
 * Makes screen readers read the text aloud once.
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

/** Lists the norias of the fleet. @param {Status['fleet']} fleet */
function showNorias(fleet) {
  const table = byId('norias');
  table.hidden = fleet === null || fleet.replicas.length < 2;
  if (table.hidden || fleet === null) return;
  const rows = fleet.replicas.map(({ name, version, clients, lastSeenSeconds }) => [
    name === fleet.replica ? TEXTS.facts.thisNoria(name) : name,
    version,
    count(clients),
    TEXTS.ago(duration(lastSeenSeconds)),
  ]);
  const key = JSON.stringify(rows);
  if (table.dataset['shown'] === key) return;
  table.dataset['shown'] = key;
  byId('noria-rows').replaceChildren(
    ...rows.map(([name = '', ...cells]) =>
      h('tr', {}, h('th', { scope: 'row' }, name), ...cells.map((cell) => h('td', {}, cell))),
    ),
  );
}
