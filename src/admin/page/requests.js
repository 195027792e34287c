// @ts-check
/** The list of the latest client requests, with filters. A click on a request opens its story. */
import { ApiError, read } from './api.js';
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { clockOf, count, milliseconds, size } from './format.js';
import { TEXTS } from './texts.js';

/** @typedef {import('../schemas.ts').RequestJson} Request */

const MAX_SHOWN = 100;

export function openRequests() {
  const details = byId('requests-panel');
  const filter = /** @type {HTMLInputElement} */ (byId('request-filter'));
  const failedOnly = /** @type {HTMLInputElement} */ (byId('request-failed'));
  const showRows = keyedList(byId('request-rows'), (/** @type {Request} */ { id }) => id, requestRow);
  const load = async () => {
    if (!details.hasAttribute('open')) return;
    try {
      const { value } = await read(`/api/requests?${queryOf(filter.value, failedOnly.checked)}`);
      showRows(value);
      byId('no-requests').hidden = value.length > 0;
    } catch (error) {
      // ignored: an invalid filter shows nothing, and a lost connection is shown in the header
      if (error instanceof ApiError) showRows([]);
    }
  };
  const reload = () => void load();
  filter.addEventListener('input', reload);
  failedOnly.addEventListener('change', reload);
  details.addEventListener('toggle', reload);
  return { load };
}

/**
 * Turns the text of the filter into a query: words such as `user:ann`, `session:cart`, `tag:x`, `member:m1` or
 * `since:10m`, and a target.
 * @param {string} text @param {boolean} failed
 */
export function queryOf(text, failed) {
  const query = new URLSearchParams({ limit: String(MAX_SHOWN) });
  for (const word of text.trim().split(/\s+/)) {
    const [, name, value] = /^(user|session|tag|member|since):(.+)$/.exec(word) ?? [];
    if (name !== undefined && value !== undefined) query.set(name, value);
    else if (word !== '') query.set('target', word);
  }
  if (failed) query.set('failed', '1');
  return query.toString();
}

/** @returns {import('./dom.js').Row<Request>} */
function requestRow() {
  const toggle = h('button', { type: 'button', class: 'request-head', 'aria-expanded': 'false' });
  const story = h('ol', { class: 'request-story', hidden: true });
  toggle.addEventListener('click', () => {
    story.hidden = !story.hidden;
    setAttribute(toggle, 'aria-expanded', String(!story.hidden));
  });
  const time = h('time');
  const target = h('span', { class: 'request-target' });
  const who = h('span', { class: 'request-who' });
  const outcome = h('span', { class: 'request-outcome' });
  const figures = h('span', { class: 'request-figures' });
  toggle.append(time, outcome, target, who, figures);
  const element = h('li', { class: 'request' }, toggle, story);
  return {
    element,
    update(request) {
      setAttribute(element, 'data-outcome', request.outcome);
      setAttribute(time, 'datetime', request.at);
      setText(time, clockOf(request.at));
      setText(target, request.target ?? '–');
      setText(
        who,
        [request.session ?? request.user ?? '', request.tag === null ? '' : `#${request.tag}`].join(' '),
      );
      setText(outcome, request.code ?? TEXTS.request.served);
      setText(figures, `${milliseconds(request.ms)} ↑ ${size(request.bytesUp)} ↓ ${size(request.bytesDown)}`);
      story.replaceChildren(...storyOf(request).map((line) => h('li', {}, line)));
    },
  };
}

/**
 * The story of a request: one line for each member that was tried, and the end.
 * @param {Request} request
 */
export function storyOf(request) {
  const { attempts, code, id, protocol, client, firstByteMs, ms } = request;
  const tried = attempts.map(({ member, exit, source, code: failure, ms: took }) =>
    TEXTS.request.attempt(
      [member, exit ?? ''].join(' ').trim(),
      source,
      failure ?? TEXTS.request.accepted,
      milliseconds(took),
    ),
  );
  const end =
    code === null
      ? TEXTS.request.end(milliseconds(ms), firstByteMs === null ? '–' : milliseconds(firstByteMs))
      : TEXTS.request.failed(code, count(attempts.length), milliseconds(ms));
  return [...tried, end, [id, protocol, client ?? ''].join(' · ')];
}
