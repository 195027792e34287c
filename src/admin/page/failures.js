// @ts-check
/** The list of recent failures: what happened, where, how often, and what to do about it. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { ago, count } from './format.js';

/** @typedef {import('../schemas.ts').FailureView} Failure */

const MAX_SHOWN = 12;

/** What the failure meant for the client. */
const CONSEQUENCE = {
  request: 'the client got an error',
  refusal: 'the client was refused',
  attempt: 'noria tried another member',
  source: 'nothing was drawn',
};

export function openFailures() {
  const showRows = keyedList(byId('failures'), keyOf, failureRow);
  return {
    /** @param {readonly Failure[]} failures */
    show(failures) {
      showRows(failures.slice(0, MAX_SHOWN));
      byId('no-failures').hidden = failures.length > 0;
    },
    /** @param {number} now - epoch ms by noria's clock */
    tick(now) {
      for (const time of byId('failures').querySelectorAll('time')) setText(time, ago(time.dateTime, now));
    },
  };
}

/** @param {Failure} failure */
function keyOf({ kind, code, source, target, listener, protocol }) {
  return [kind, code, source, target, listener, protocol].join(' ');
}

/** @returns {import('./dom.js').Row<Failure>} */
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
    update(failure) {
      setAttribute(element, 'data-side', failure.side);
      setAttribute(time, 'datetime', failure.lastAt);
      setAttribute(time, 'title', failure.lastAt);
      setText(times, failure.times === 1 ? '' : `${count(failure.times)} times`);
      setText(title, failure.says);
      setText(code, failure.code);
      setText(side, `side at fault: ${failure.side}; ${CONSEQUENCE[failure.kind]}`);
      const parts = detailsOf(failure);
      setText(details, parts.join(', '));
      details.hidden = parts.length === 0;
      setText(advice, failure.advice);
    },
  };
}

/** @param {Failure} failure */
function detailsOf({ kind, target, source, listener, protocol, detail }) {
  return [
    target === undefined ? [] : `target ${target}`,
    source === undefined || kind === 'source' ? [] : `source ${source}`,
    listener === undefined ? [] : `listener ${listener}`,
    protocol === undefined ? [] : protocol,
    detail === undefined ? [] : detail,
  ].flat();
}
