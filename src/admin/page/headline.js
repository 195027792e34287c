// @ts-check
/** The headline: whether noria is ready, why, and which problems it has. And the facts in the page header. */
import { byId, h, setAttribute, setText } from './dom.js';
import { count, counted, duration } from './format.js';

/** @typedef {import('../schemas.ts').Status} Status */

const HEALTH = {
  ready: { text: 'noria is ready', titleMark: '' },
  degraded: { text: 'noria is ready, with problems', titleMark: '! ' },
  'not-ready': { text: 'noria is not ready', titleMark: '\u2715 ' },
};

/** @param {Status} status */
export function showHeadline(status) {
  const { pool } = status;
  const { health, reason, problems } = assess(status);
  const { text, titleMark } = HEALTH[health];
  const headline = `${text}: ${reason}`;
  if (byId('headline').getAttribute('data-health') !== health) announce(headline);
  setAttribute(byId('headline'), 'data-health', health);
  setText(byId('headline-text'), headline);
  document.title = `${titleMark}noria: ${count(pool.ready)} usable`;
  const waiting =
    pool.waitingClients > 0 ? [`${counted(pool.waitingClients, 'client')} waiting for a member.`] : [];
  showList('problems', [...waiting, ...problems]);
  showList('facts', factsOf(status));
}

/**
 * The reason of a status is `ready: REASON; PROBLEM; PROBLEM` or `not ready: …`. A problem begins with the name of a source;
 * other semicolons are part of the text.
 *
 * @param {Status} status
 * @returns {{ health: keyof typeof HEALTH, reason: string, problems: string[] }}
 */
export function assess({ ready, reason, pool, sources }) {
  const isProblem = (/** @type {string} */ text) =>
    sources.some(({ name }) => text.startsWith(`${name} is `));
  /** @type {string[]} */
  const clauses = [];
  for (const text of reason.replace(/^(not )?ready: /, '').split('; ')) {
    if (clauses.length === 0 || isProblem(text)) clauses.push(text);
    else clauses.push(`${clauses.pop()}; ${text}`);
  }
  const [first = '', ...problems] = clauses.map(withFullStop);
  const degraded = problems.length > 0 || (pool.ready === 0 && pool.waitingClients > 0);
  return { health: !ready ? 'not-ready' : degraded ? 'degraded' : 'ready', reason: first, problems };
}

/** @param {Status} status */
function factsOf({ listeners, pool, sources, workers, uptimeSeconds, version }) {
  const connections = listeners.reduce((sum, listener) => sum + listener.connections, 0);
  return [
    listeners.map(({ address }) => address).join(', ') || 'no listener',
    ...(workers.wanted > 1 ? [`${workers.running} of ${counted(workers.wanted, 'worker')}`] : []),
    counted(connections, 'client connection'),
    counted(pool.openTunnels, 'open tunnel'),
    counted(sources.length, 'source'),
    `up ${duration(uptimeSeconds)}`,
    `version ${version}`,
  ];
}

/**
 * Makes a screen reader say the text once.
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
function withFullStop(clause) {
  return clause.endsWith('.') ? clause : `${clause}.`;
}
