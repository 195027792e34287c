// @ts-check
/** The sources: what each is doing and why, what to do about it, when it draws next, and what became of what it drew. */
import { byId, h, keyed, setAttribute, setText } from './dom.js';
import { count, counted, duration, sentence } from './format.js';

/**
 * @typedef {import('../schemas.ts').SourceJson} Source
 * @typedef {{ refill(source: Source): unknown, pause(source: Source): unknown, resume(source: Source): unknown }} SourceVerbs
 */

/** What a state is, for someone who does not know the word. */
const MEANING = {
  idle: 'nobody asks for members',
  ready: 'it holds what is wanted',
  drawing: 'it asks the service now',
  waiting: 'it waits for its pace',
  backoff: 'the service fails; it tries again',
  paused: 'it draws nothing for now',
  halted: 'it needs a person',
};

/** @param {SourceVerbs} verbs */
export function openSources(verbs) {
  const show = keyed(
    byId('sources'),
    (/** @type {Source} */ { name }) => name,
    (source) => sourceRow(source, verbs),
  );
  /** @type {readonly Source[]} */
  let shown = [];
  return {
    /** @param {readonly Source[]} sources */
    show(sources) {
      shown = sources;
      show(sources);
    },
    /**
     * Counts down to the next draws.
     *
     * @param {number} now - epoch ms by noria's clock
     */
    tick(now) {
      for (const source of shown) {
        const element = document.getElementById(`next-${source.name}`);
        if (element !== null) setText(element, nextDraw(source, now));
      }
    },
  };
}

/**
 * A source that holds what is wanted draws when it lacks something, not when it may.
 *
 * @param {Source} source
 * @param {number} now - epoch ms
 */
function nextDraw({ nextCallAt, state }, now) {
  if (nextCallAt === null) return 'none planned';
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0.5) return `in ${duration(Math.ceil(seconds))}`;
  return state === 'ready' ? 'when needed' : 'now';
}

/**
 * @param {Source} first
 * @param {SourceVerbs} verbs
 * @returns {import('./dom.js').Row<Source>}
 */
function sourceRow(first, verbs) {
  let source = first;
  const { name } = first;
  const state = h('span', { class: 'state' });
  const product = h('span', { class: 'product' });
  const reason = h('p', { class: 'reason' });
  const advice = h('p', { class: 'advice' });
  const said = h('p', { class: 'said' });
  const held = h('dd');
  const quota = h('div', {}, h('dt', {}, 'quota'), h('dd'));
  const budget = h('div', {}, h('dt', {}, 'budget today'), h('dd'));
  const fate = fateBar();
  const refill = verb('Draw now', `Draw now from ${name}`, () => verbs.refill(source));
  const pause = verb('Pause', `Pause ${name}`, () => verbs.pause(source));
  const resume = verb('Resume', `Resume ${name}`, () => verbs.resume(source));
  const element = h(
    'li',
    { class: 'source' },
    h('div', { class: 'source-head' }, h('h3', {}, name), product, state),
    reason,
    advice,
    said,
    h(
      'dl',
      { class: 'figures' },
      h('div', {}, h('dt', {}, 'usable'), held),
      h('div', {}, h('dt', {}, 'next draw'), h('dd', { id: `next-${name}` })),
      quota,
      budget,
    ),
    fate.element,
    h('div', { class: 'verbs' }, refill, pause, resume),
  );
  return {
    element,
    update(next) {
      source = next;
      setAttribute(element, 'data-state', next.state);
      setText(state, next.state);
      setAttribute(state, 'title', MEANING[next.state]);
      setText(product, next.product);
      setText(reason, sentence(next.reason));
      setText(advice, next.advice ?? '');
      advice.hidden = next.advice === null;
      // The service's own words help where it refused; where all went well they say nothing.
      said.hidden = next.message === null || next.advice === null;
      const whose = next.code === 'transport' ? 'In detail' : 'The service said';
      setText(said, next.message === null ? '' : `${whose}: ${next.message}`);
      setText(held, `${count(next.ready)} of ${count(next.size)}`);
      showFigure(quota, quotaWords(next));
      showFigure(
        budget,
        next.budget === null ? undefined : `${count(next.budget.used)} of ${count(next.budget.limit)}`,
      );
      fate.update(next);
      const stopped = next.state === 'paused' || next.state === 'halted';
      refill.hidden = stopped;
      pause.hidden = stopped;
      resume.hidden = !stopped;
    },
  };
}

/** @param {Source} source */
function quotaWords({ quota }) {
  const { remaining, active, today } = quota;
  const parts = [
    remaining === undefined ? [] : `${count(remaining)} left`,
    today === undefined ? [] : `${count(today)} today`,
    active === undefined ? [] : `${count(active)} active`,
  ].flat();
  return parts.length === 0 ? undefined : parts.join(', ');
}

/** @param {HTMLElement} figure @param {string | undefined} words */
function showFigure(figure, words) {
  figure.hidden = words === undefined;
  if (figure.lastElementChild !== null) setText(figure.lastElementChild, words ?? '');
}

/** Of all that was drawn: what was used, what may yet be, and what was paid for nothing. */
function fateBar() {
  const parts = /** @type {const} */ (['used', 'waiting', 'wasted']).map((kind) => {
    const bar = h('span', { class: 'fate-part', 'data-kind': kind });
    return { kind, bar };
  });
  const words = h('p', { class: 'fate-words' });
  const bar = h('div', { class: 'fate-bar', 'aria-hidden': 'true' }, ...parts.map((part) => part.bar));
  const element = h('div', { class: 'fate' }, bar, words);
  return {
    element,
    /** @param {Source} source */
    update({ drawn, used, unused }) {
      const waiting = Math.max(0, drawn - used - unused);
      const amounts = { used, waiting, wasted: unused };
      for (const { kind, bar } of parts) bar.style.flexGrow = String(amounts[kind]);
      bar.hidden = drawn === 0;
      const fates = [`${count(used)} used`, `${count(waiting)} not yet`, `${count(unused)} wasted`];
      setText(
        words,
        drawn === 0 ? 'Nothing drawn yet.' : `${counted(drawn, 'member')} drawn: ${fates.join(', ')}`,
      );
    },
  };
}

/** @param {string} label @param {string} name @param {() => void} act */
function verb(label, name, act) {
  return h('button', { type: 'button', 'aria-label': name, click: act }, label);
}
