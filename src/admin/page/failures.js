// @ts-check
/** What failed lately: what happened, to what, how often, and what to do about it. */
import { byId, h, keyed, setAttribute, setText } from './dom.js';
import { ago, count } from './format.js';

/** @typedef {import('../schemas.ts').FailureView} Failure */

/** More are not for reading at a glance. */
const MOST_SHOWN = 12;

const WHOSE = {
  client: 'the client',
  member: 'a member',
  target: 'the target',
  source: 'the source',
  service: 'the service',
  operator: 'the configuration',
  noria: 'noria',
};

/** What it meant for clients. */
const MEANT = {
  request: 'a client was told',
  refusal: 'a client was refused',
  attempt: 'another member was tried',
  source: 'no draw',
};

export function openFailures() {
  const show = keyed(byId('failures'), keyOf, failureRow);
  /** @type {readonly Failure[]} */
  let shown = [];
  return {
    /** @param {readonly Failure[]} failures */
    show(failures) {
      shown = failures.slice(0, MOST_SHOWN);
      show(shown);
      byId('no-failures').hidden = shown.length > 0;
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
  const says = h('p', { class: 'says' });
  const where = h('span');
  const times = h('span', { class: 'times' });
  const time = h('time');
  const code = h('code');
  const whose = h('span');
  const advice = h('p', { class: 'failure-advice' });
  const element = h(
    'li',
    { class: 'failure' },
    h('div', { class: 'failure-when' }, time, times),
    h('div', { class: 'failure-what' }, says, h('p', { class: 'where' }, code, whose, where), advice),
  );
  return {
    element,
    update(failure) {
      const { kind, side, target, source, listener, protocol, detail } = failure;
      setAttribute(element, 'data-side', side);
      setText(says, failure.says);
      setText(code, failure.code);
      setText(whose, `at fault: ${WHOSE[side]}; ${MEANT[kind]}`);
      const places = [
        target === undefined ? [] : `target ${target}`,
        source === undefined || kind === 'source' ? [] : `source ${source}`,
        listener === undefined ? [] : `listener ${listener}`,
        protocol === undefined ? [] : protocol,
        detail === undefined ? [] : detail,
      ].flat();
      setText(where, places.join(', '));
      where.hidden = places.length === 0;
      setText(times, failure.times === 1 ? '' : `${count(failure.times)} times`);
      setAttribute(time, 'datetime', failure.lastAt);
      setAttribute(time, 'title', failure.lastAt);
      setText(advice, failure.advice.startsWith('Nothing') ? '' : failure.advice);
    },
  };
}
