// @ts-check
/** The list of sources: state, reason, advice, next draw, quota, and how many of the drawn members were used. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { count, counted, dateAndTime, duration, sentence } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../../refill/status.ts').SourceStatus} Source
 * @typedef {{ refill(source: Source): unknown, pause(source: Source): unknown, resume(source: Source): unknown }} SourceActions
 */

/** The service's code of a successful call. */
const SUCCESS = '10001';
/** Sources in these states are shown first, in this order of states. */
const TROUBLE = ['halted', 'backoff', 'paused'];

/** @param {SourceActions} actions */
export function openSources(actions) {
  byId('usage-legend').replaceChildren(
    ...Object.entries(TEXTS.usage).map(([kind, text]) =>
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
    /**
     * @param {readonly Source[]} sources
     * @param {ReadonlyMap<string, import('./failures.js').Repeated>} repeated - the failures of each source in trouble
     */
    show(sources, repeated) {
      shown = sources;
      showRows(sourcesByTrouble(sources));
      for (const { name } of sources) {
        const element = document.getElementById(`failed-${name}`);
        if (element === null) continue;
        const failures = repeated.get(name);
        element.hidden = failures === undefined;
        setText(element, failures === undefined ? '' : failuresText(failures));
      }
    },
    /**
     * Updates the time until the next draw of each source.
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
 * Sorts the sources that need attention to the top. The others keep the order of the configuration.
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
  if (nextCallAt === null) return TEXTS.source.nonePlanned;
  const seconds = (Date.parse(nextCallAt) - now) / 1_000;
  if (seconds > 0.5) return TEXTS.source.in(duration(Math.ceil(seconds)));
  // A source in the state `ready` has enough members. It draws when it needs more.
  return state === 'ready' ? TEXTS.source.whenNeeded : TEXTS.source.now;
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
  const quota = h('div', {}, h('dt', {}, TEXTS.source.quota), h('dd'));
  const budget = h('div', {}, h('dt', {}, TEXTS.source.budget), h('dd'));
  const usage = usageBar();
  const refill = button(TEXTS.actions.refill.action, TEXTS.actions.refill.label(name), () =>
    actions.refill(source),
  );
  const pause = button(TEXTS.actions.pause.action, TEXTS.actions.pause.label(name), () =>
    actions.pause(source),
  );
  const resume = button(TEXTS.actions.resume.action, TEXTS.actions.resume.label(name), () =>
    actions.resume(source),
  );
  const element = h(
    'li',
    { class: 'source', id: `source-${name}` },
    h('div', { class: 'source-head' }, h('h3', {}, name), product, state),
    reason,
    advice,
    message,
    h('p', { class: 'service-message', id: `failed-${name}`, hidden: true }),
    h(
      'dl',
      { class: 'figures' },
      h('div', {}, h('dt', {}, TEXTS.source.usable), usable),
      h('div', {}, h('dt', {}, TEXTS.source.nextDraw), h('dd', { id: `next-${name}` })),
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
      const word = next.suspended ? 'suspended' : next.state;
      setText(state, TEXTS.sourceStates[word]);
      setAttribute(state, 'title', TEXTS.sourceMeanings[word]);
      setText(product, next.product);
      setText(reason, sentence(next.reason));
      setText(advice, next.advice ?? '');
      advice.hidden = next.advice === null;
      // The page shows the service's message only if there is advice, which means that there is a problem, and only if
      // the service has caused it.
      message.hidden = next.message === null || next.advice === null || next.code === SUCCESS;
      setText(message, messageText(next));
      setText(usable, usableText(next));
      showFigure(quota, quotaText(next));
      showFigure(
        budget,
        next.budget === null
          ? undefined
          : TEXTS.source.budgetUsed(count(next.budget.used), count(next.budget.limit)),
      );
      usage.update(next);
      const stopped = next.state === 'paused' || next.state === 'halted';
      refill.hidden = stopped;
      pause.hidden = stopped;
      resume.hidden = !stopped;
    },
  };
}

/** @param {import('./failures.js').Repeated} repeated */
function failuresText({ draws, requests, lastAt }) {
  return [
    draws === 0 ? [] : TEXTS.source.failedDraws(count(draws), dateAndTime(lastAt)),
    requests === 0 ? [] : TEXTS.source.failedRequests(count(requests)),
  ]
    .flat()
    .join(' ');
}

/**
 * What the service said. The reason of the card already has the meaning of its code.
 *
 * @param {Source} source
 */
function messageText({ message, code }) {
  if (message === null) return '';
  return code === 'transport' || code?.startsWith('fleet-store-')
    ? TEXTS.transportDetails(message)
    : TEXTS.serviceMessage(message);
}

/** @param {Source} source */
export function usableText({ ready, size }) {
  const extra = ready - size;
  return extra > 0
    ? TEXTS.source.withExtra(count(ready), count(size), count(extra))
    : TEXTS.source.ofWanted(count(ready), count(size));
}

/** @param {Source} source */
function quotaText({ quota }) {
  const { remaining, active, today } = quota;
  const parts = [
    remaining === undefined ? [] : TEXTS.source.left(count(remaining)),
    today === undefined ? [] : TEXTS.source.today(count(today)),
    active === undefined ? [] : TEXTS.source.active(count(active)),
  ].flat();
  return parts.length === 0 ? undefined : parts.join(TEXTS.comma);
}

/** @param {HTMLElement} figure @param {string | undefined} text */
function showFigure(figure, text) {
  figure.hidden = text === undefined;
  if (figure.lastElementChild !== null) setText(figure.lastElementChild, text ?? '');
}

/**
 * A bar of all drawn members in three parts: members that were used, members in the pool that were not used yet, and
 * members that left the pool unused.
 */
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
      const members = counted(drawn, TEXTS.nouns.member);
      const shares = TEXTS.source.drawn(members, count(used), count(notYet), count(unused));
      setText(text, drawn === 0 ? TEXTS.source.noneDrawn : shares);
    },
  };
}

/** @param {string} text @param {string} label @param {() => void} click */
function button(text, label, click) {
  return h('button', { type: 'button', 'aria-label': label, click }, text);
}
