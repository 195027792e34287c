// @ts-check
/** The list of recent failures: what happened, where, how often, and what to do about it. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { ago, count, dateAndTime } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../schemas.ts').FailureView} Failure
 * @typedef {{ draws: number, requests: number, lastAt: string }} Repeated - failed draws, and failed requests
 * @typedef {{ failure: Failure, times: number, places: string[] }} Cause - `failure` is the latest failure of this
 * cause
 */

const MAX_SHOWN = 12;
const STOPPED = ['halted', 'paused', 'backoff', 'waiting'];

/** The maximum number of places (targets, sources or listeners) to list for one cause. */
const MAX_PLACES = 4;

export function openFailures() {
  const showRows = keyedList(byId('failures'), ({ failure }) => causeOf(failure), failureRow);
  return {
    /**
     * @param {readonly Failure[]} failures - without those that the cards of the sources show
     * @param {boolean} othersShown - whether cards show any
     */
    show(failures, othersShown) {
      byId('failures-panel').hidden = failures.length === 0 && othersShown;
      showRows(groupByCause(failures).slice(0, MAX_SHOWN));
      byId('no-failures').hidden = failures.length > 0;
    },
    /** @param {number} now - epoch ms by noria's clock */
    tick(now) {
      for (const time of byId('failures').querySelectorAll('time')) setText(time, ago(time.dateTime, now));
    },
  };
}

/**
 * Separates the failures that only repeat what a source is in trouble with: its failed draws, and the requests that
 * found no member while no source could draw. The source's card shows how often and when.
 * @param {readonly Failure[]} failures
 * @param {readonly import('../../refill/status.ts').SourceStatus[]} sources
 * @returns {{ others: Failure[], repeated: Map<string, Repeated> }} `repeated` has the name of the source as its key
 */
export function foldFailures(failures, sources) {
  const troubled = sources.filter(({ state, advice }) => STOPPED.includes(state) && advice !== null);
  const noneDraws = troubled.length > 0 && troubled.length === sources.length;
  /** @type {Map<string, Repeated>} */
  const repeated = new Map();
  const others = failures.filter((failure) => {
    const owner =
      failure.kind === 'source'
        ? troubled.find(({ name, code }) => name === failure.source && code === failure.code)
        : failure.code === 'pool-empty' && noneDraws
          ? (troubled.find(({ name }) => name === failure.source) ?? troubled[0])
          : undefined;
    if (owner === undefined) return true;
    const before = repeated.get(owner.name) ?? { draws: 0, requests: 0, lastAt: failure.lastAt };
    const counted = failure.kind === 'source' ? 'draws' : 'requests';
    repeated.set(owner.name, { ...before, [counted]: before[counted] + failure.times });
    return false;
  });
  return { others, repeated };
}

/**
 * Merges the failures of the same cause into one entry and adds up their counts. Returns the entries, latest first.
 * @param {readonly Failure[]} failures - latest first
 * @returns {Cause[]}
 */
export function groupByCause(failures) {
  const causes = Map.groupBy(failures, causeOf);
  return [...causes.values()].flatMap((group) => {
    const [failure] = group;
    if (failure === undefined) return [];
    const times = group.reduce((sum, one) => sum + one.times, 0);
    const places =
      group.length === 1 ? [] : group.toSorted((one, other) => other.times - one.times).map(placeOf);
    return [{ failure, times, places }];
  });
}

/** @param {Failure} failure */
function placeOf({ target, source, listener, times }) {
  return `${target ?? source ?? listener ?? ''} (${count(times)})`;
}

/** @param {Failure} failure */
function causeOf({ kind, code, source }) {
  return [kind, code, kind === 'source' ? source : ''].join(' ');
}

/** @returns {import('./dom.js').Row<Cause>} */
function failureRow() {
  const time = h('time');
  const times = h('span', { class: 'failure-count' });
  const title = h('p', { class: 'failure-title' });
  const code = h('code');
  const side = h('span');
  const details = h('span');
  const advice = h('p', { class: 'failure-advice' });
  const element = h(
    'li',
    { class: 'failure' },
    h('div', { class: 'failure-when' }, time, times),
    h('div', {}, title, h('p', { class: 'failure-details' }, code, side, details), advice),
  );
  return {
    element,
    update({ failure, times: sum, places }) {
      setAttribute(element, 'data-side', failure.side);
      setAttribute(time, 'datetime', failure.lastAt);
      setAttribute(time, 'title', dateAndTime(failure.lastAt));
      setText(times, `${count(sum)} ×`);
      setText(title, failure.says);
      setText(code, failure.code);
      setText(side, TEXTS.failure.side(TEXTS.sides[failure.side], TEXTS.consequences[failure.kind]));
      const parts = places.length === 0 ? detailsOf(failure) : placesText(places);
      setText(details, parts.join(TEXTS.comma));
      details.hidden = parts.length === 0;
      setText(advice, failure.advice);
    },
  };
}

/** @param {readonly string[]} places */
function placesText(places) {
  const more = places.length - MAX_PLACES;
  return [...places.slice(0, MAX_PLACES), ...(more > 0 ? [TEXTS.failure.more(count(more))] : [])];
}

/** @param {Failure} failure */
function detailsOf({ kind, target, source, listener, protocol, detail }) {
  return [
    target === undefined ? [] : TEXTS.failure.target(target),
    source === undefined || kind === 'source' ? [] : TEXTS.failure.source(source),
    listener === undefined ? [] : TEXTS.failure.listener(listener),
    protocol === undefined ? [] : protocol,
    detail === undefined ? [] : detail,
  ].flat();
}
