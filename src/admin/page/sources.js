// @ts-check
/** The list of sources: state, reason, advice, next draw, quota, and how many of the drawn members were used. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { count, counted, duration, sentence } from './format.js';
import { ACTIONS, SOURCE_STATES, serviceMessage, transportDetails, USAGE } from './texts.js';

/**
 * @typedef {import('../schemas.ts').SourceJson} Source
 * @typedef {{ refill(source: Source): unknown, pause(source: Source): unknown, resume(source: Source): unknown }} SourceActions
 */

/** Sources that need attention come first. */
const TROUBLE = ['halted', 'backoff', 'paused'];

/** @param {SourceActions} actions */
export function openSources(actions) {
  byId('usage-legend').replaceChildren(
    ...Object.entries(USAGE).map(([kind, text]) =>
      h('span', {}, h('span', { class: 'usage-part', 'data-kind': kind }), ` ${text}`),
    ),
  );
  const showRows = keyedList(
    byId('sources'),
    (/** @type {Source} */ { name }) => name,
    (source) => sourceRow(source, actions),
  );
  /** @type {readonly Source[]} */
  let shown = [];
  return {
    /** @param {readonly Source[]} sources */
    show(sources) {
      shown = sources;
      showRows(sourcesByTrouble(sources));
    },
    /**
     * Updates the countdowns to the next draws.
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
 * In the order of the configuration, those with trouble first.
 *
 * @param {readonly Source[]} sources
 */
export function sourcesByTrouble(sources) {
  const rank = (/** @type {Source} */ { state }) =>
    TROUBLE.includes(state) ? TROUBLE.indexOf(state) : TROUBLE.length;
  return sources.toSorted((one, other) => rank(one) - rank(other));
}

/**
 * @param {Source} source
 * @param {number} now - epoch ms by noria's clock
 */
function nextDraw({ nextCallAt, state }, now) {
  if (nextCallAt === null) return 'none planned';
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0.5) return `in ${duration(Math.ceil(seconds))}`;
  // A source that holds all wanted members does not draw as soon as it may.
  return state === 'ready' ? 'when needed' : 'now';
}

/**
 * @param {Source} first
 * @param {SourceActions} actions
 * @returns {import('./dom.js').Row<Source>}
 */
function sourceRow(first, actions) {
  let source = first;
  const { name } = first;
  const state = h('span', { class: 'state' });
  const product = h('span', { class: 'product' });
  const reason = h('p', { class: 'reason' });
  const advice = h('p', { class: 'advice' });
  const message = h('p', { class: 'service-message' });
  const usable = h('dd');
  const quota = h('div', {}, h('dt', {}, 'quota'), h('dd'));
  const budget = h('div', {}, h('dt', {}, 'daily budget'), h('dd'));
  const usage = usageBar();
  const refill = button(ACTIONS.refill.action, ACTIONS.refill.label(name), () => actions.refill(source));
  const pause = button(ACTIONS.pause.action, ACTIONS.pause.label(name), () => actions.pause(source));
  const resume = button(ACTIONS.resume.action, ACTIONS.resume.label(name), () => actions.resume(source));
  const element = h(
    'li',
    { class: 'source' },
    h('div', { class: 'source-head' }, h('h3', {}, name), product, state),
    reason,
    advice,
    message,
    h(
      'dl',
      { class: 'figures' },
      h('div', {}, h('dt', {}, 'usable'), usable),
      h('div', {}, h('dt', {}, 'next draw'), h('dd', { id: `next-${name}` })),
      quota,
      budget,
    ),
    usage.element,
    h('div', { class: 'actions' }, refill, pause, resume),
  );
  return {
    element,
    update(next) {
      source = next;
      setAttribute(element, 'data-state', next.state);
      setText(state, next.state);
      setAttribute(state, 'title', SOURCE_STATES[next.state]);
      setText(product, next.product);
      setText(reason, sentence(next.reason));
      setText(advice, next.advice ?? '');
      advice.hidden = next.advice === null;
      // The service's own message helps only where something went wrong.
      message.hidden = next.message === null || next.advice === null;
      setText(message, messageText(next));
      setText(usable, usableText(next));
      showFigure(quota, quotaText(next));
      showFigure(
        budget,
        next.budget === null ? undefined : `${count(next.budget.used)} of ${count(next.budget.limit)} used`,
      );
      usage.update(next);
      const stopped = next.state === 'paused' || next.state === 'halted';
      refill.hidden = stopped;
      pause.hidden = stopped;
      resume.hidden = !stopped;
    },
  };
}

/** @param {Source} source */
function messageText({ message, meaning, code }) {
  if (message === null) return '';
  return code === 'transport' || code?.startsWith('fleet-store-') || meaning === null
    ? transportDetails(message)
    : serviceMessage(message, meaning);
}

/** @param {Source} source */
export function usableText({ ready, size }) {
  const extra = ready - size;
  return extra > 0
    ? `${count(ready)}, ${count(size)} wanted, ${count(extra)} extra`
    : `${count(ready)} of ${count(size)} wanted`;
}

/** @param {Source} source */
function quotaText({ quota }) {
  const { remaining, active, today } = quota;
  const parts = [
    remaining === undefined ? [] : `${count(remaining)} left`,
    today === undefined ? [] : `${count(today)} today`,
    active === undefined ? [] : `${count(active)} active`,
  ].flat();
  return parts.length === 0 ? undefined : parts.join(', ');
}

/** @param {HTMLElement} figure @param {string | undefined} text */
function showFigure(figure, text) {
  figure.hidden = text === undefined;
  if (figure.lastElementChild !== null) setText(figure.lastElementChild, text ?? '');
}

/** Divides the drawn members into those used, those that may still be used, and those that were never used. */
function usageBar() {
  const parts = /** @type {const} */ (['used', 'not-yet-used', 'never-used']).map((kind) => {
    const part = h('span', { class: 'usage-part', 'data-kind': kind });
    return { kind, part };
  });
  const text = h('p', { class: 'usage-text' });
  const bar = h('div', { class: 'usage-bar', 'aria-hidden': 'true' }, ...parts.map(({ part }) => part));
  const element = h('div', { class: 'usage' }, bar, text);
  return {
    element,
    /** @param {Source} source */
    update({ drawn, used, unused }) {
      const notYet = Math.max(0, drawn - used - unused);
      const amounts = { used, 'not-yet-used': notYet, 'never-used': unused };
      for (const { kind, part } of parts) part.style.flexGrow = String(amounts[kind]);
      bar.hidden = drawn === 0;
      const shares = `${count(used)} used, ${count(notYet)} not used yet, ${count(unused)} never used (wasted)`;
      setText(text, drawn === 0 ? 'No members drawn yet.' : `${counted(drawn, 'member')} drawn: ${shares}`);
    },
  };
}

/** @param {string} text @param {string} label @param {() => void} click */
function button(text, label, click) {
  return h('button', { type: 'button', 'aria-label': label, click }, text);
}
