// @ts-check
/** The sessions: which client keeps which member, for how long, and how to move or end it. */
import { byId, h, keyed, setText } from './dom.js';
import { count, counted, duration } from './format.js';

/**
 * @typedef {import('../schemas.ts').SessionJson} Session
 * @typedef {{ rotate(session: Session): unknown, rotateNow(session: Session): unknown, forget(session: Session): unknown }} SessionVerbs
 */

/** More rows are not for reading. */
const MOST_SHOWN = 50;
/** How many to ask noria for. */
export const MOST_ASKED = MOST_SHOWN;

/** @param {SessionVerbs} verbs */
export function openSessions(verbs) {
  const show = keyed(
    byId('sessions'),
    (/** @type {Session} */ { id }) => id,
    (session) => sessionRow(session, verbs),
  );
  return {
    /**
     * @param {readonly Session[]} sessions
     * @param {number} total - also those that were not asked for
     */
    show(sessions, total) {
      const shown = sessions.slice(0, MOST_SHOWN);
      show(shown);
      const more = byId('more-sessions');
      more.hidden = total <= shown.length;
      setText(more, `${counted(total - shown.length, 'more session')} not shown.`);
      byId('sessions-table').hidden = shown.length === 0;
      byId('no-sessions').hidden = shown.length > 0;
    },
  };
}

/**
 * @param {Session} first
 * @param {SessionVerbs} verbs
 * @returns {import('./dom.js').Row<Session>}
 */
function sessionRow(first, verbs) {
  let session = first;
  const { id } = first;
  const member = h('td');
  const left = h('td', { class: 'number' });
  const uses = h('td', { class: 'number' });
  const button = (/** @type {string} */ label, /** @type {string} */ name, /** @type {() => void} */ click) =>
    h('button', { type: 'button', 'aria-label': name, click }, label);
  const element = h(
    'tr',
    {},
    h('th', { scope: 'row', class: 'session-id' }, id),
    member,
    left,
    uses,
    h(
      'td',
      { class: 'verbs' },
      button('Rotate', `Move session ${id} to another member`, () => verbs.rotate(session)),
      button('Cut', `Move session ${id} and end its open tunnels`, () => verbs.rotateNow(session)),
      button('Forget', `Forget session ${id}`, () => verbs.forget(session)),
    ),
  );
  return {
    element,
    update(next) {
      session = next;
      setText(member, next.member ?? 'none yet');
      setText(left, duration(next.expiresInSeconds));
      setText(uses, count(next.uses));
    },
  };
}
