// @ts-check
/** The table of sessions. Each row has buttons to rotate and to forget the session. */
import { byId, h, keyedList, setText } from './dom.js';
import { count, counted, duration } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../schemas.ts').SessionJson} Session
 * @typedef {{ rotate(session: Session): unknown, rotateNow(session: Session): unknown, forget(session: Session): unknown }} SessionActions
 */

export const MAX_SESSIONS = 50;

/** @param {SessionActions} actions */
export function openSessions(actions) {
  const showRows = keyedList(
    byId('sessions'),
    (/** @type {Session} */ { id }) => id,
    (session) => sessionRow(session, actions),
  );
  return {
    /**
     * @param {readonly Session[]} sessions
     * @param {number} total - the number of noria's sessions, including those that the page did not request
     */
    show(sessions, total) {
      showRows(sessions);
      const more = byId('more-sessions');
      more.hidden = total <= sessions.length;
      setText(more, TEXTS.notShown(counted(total - sessions.length, TEXTS.nouns.session)));
      byId('sessions-table').hidden = sessions.length === 0;
      byId('no-sessions').hidden = sessions.length > 0;
    },
  };
}

/**
 * @param {Session} first
 * @param {SessionActions} actions
 * @returns {import('./dom.js').Row<Session>}
 */
function sessionRow(first, actions) {
  let session = first;
  const { id } = first;
  const member = h('td');
  const expiresIn = h('td', { class: 'number' });
  const uses = h('td', { class: 'number' });
  const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ click) =>
    h('button', { type: 'button', 'aria-label': label, title: label, click }, text);
  const element = h(
    'tr',
    {},
    h('th', { scope: 'row', class: 'session-id' }, id),
    member,
    expiresIn,
    uses,
    h(
      'td',
      { class: 'actions' },
      button(TEXTS.actions.rotate.action, TEXTS.actions.rotate.label(id), () => actions.rotate(session)),
      button(TEXTS.actions.rotateNow.action, TEXTS.actions.rotateNow.label(id), () =>
        actions.rotateNow(session),
      ),
      button(TEXTS.actions.forget.action, TEXTS.actions.forget.label(id), () => actions.forget(session)),
    ),
  );
  return {
    element,
    update(next) {
      session = next;
      setText(member, next.member ?? TEXTS.noMember);
      setText(expiresIn, duration(next.expiresInSeconds));
      setText(uses, count(next.uses));
    },
  };
}
