// @ts-check
/** The list of recent failures: what happened, where, how often, and what to do about it. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { ago, count, dateAndTime } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../schemas.ts').FailureView} Failure
 * @typedef {{ failure: Failure, times: number, places: string[] }} Cause - `failure` is the latest failure of this
 * cause
 */

const MAX_SHOWN = 12;

/** The maximum number of places (targets, sources or listeners) to list for one cause. */
const MAX_PLACES = 4;

export function openFailures() {
  const showRows = keyedList(byId('failures'), keyOf, failureRow);
  return {
    /** @param {readonly Failure[]} failures */
    show(failures) {
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
 * Merges the failures of the same cause into one entry and adds up their counts. Returns the entries, latest first.
 * @param {readonly Failure[]} failures - latest first
 * @returns {Cause[]}
 */
export function groupByCause(failures) {
  const causes = Map.groupBy(failures, ({ kind, code, source }) =>
    [kind, code, kind === 'source' ? source : ''].join(' '),
  );
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

/** @param {Cause} cause */
function keyOf({ failure: { kind, code, source } }) {
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
