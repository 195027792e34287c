// @ts-check
/** The actions of the page: each is one request to the API. Destructive ones ask for confirmation; a toast shows the result. */
import { send } from './api.js';
import { confirm, toast } from './dialogs.js';
import { counted, sentence } from './format.js';

/**
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../schemas.ts').SourceJson} Source
 * @typedef {import('../schemas.ts').SessionJson} Session
 */

/** @param {() => void} onDone - called after each request, also a failed one */
export function openActions(onDone) {
  /** @param {string} success @param {'POST' | 'DELETE'} method @param {string} path @param {object} [body] */
  const perform = async (success, method, path, body) => {
    try {
      await send(method, path, body);
      toast(sentence(success), 'done');
    } catch (error) {
      toast(sentence(error instanceof Error ? error.message : String(error)), 'failed');
    }
    onDone();
  };

  return {
    /** @param {Member} member */
    async evict({ id, openTunnels }) {
      const tunnels = openTunnels === 0 ? '' : ` It still has ${counted(openTunnels, 'open tunnel')}.`;
      const text = `noria stops using it for new connections and does not draw it again. Open tunnels continue.${tunnels}`;
      if (!(await confirm({ title: `Evict ${id}?`, text, action: 'Evict' }))) return;
      await perform(`${id} was evicted`, 'POST', apiPath('members', id, 'evict'));
    },
    /** @param {Source} source */
    refill: ({ name }) =>
      perform(`${name} draws as soon as its pace allows`, 'POST', apiPath('sources', name, 'refill')),
    /** @param {Source} source */
    resume: ({ name }) => perform(`${name} was resumed`, 'POST', apiPath('sources', name, 'resume')),
    /** @param {Source} source */
    async pause({ name, ready }) {
      const text = `noria draws nothing from it until you resume it. Its ${counted(ready, 'usable member')} can be used until they expire.`;
      if (!(await confirm({ title: `Pause ${name}?`, text, action: 'Pause' }))) return;
      await perform(`${name} was paused`, 'POST', apiPath('sources', name, 'pause'));
    },
    /** @param {Session} session */
    rotate: ({ id }) =>
      perform(
        `${id} moves to another member with its next connection`,
        'POST',
        apiPath('sessions', id, 'rotate'),
      ),
    /** @param {Session} session */
    async rotateNow({ id }) {
      const text = 'The session moves to another member, and its open tunnels are closed immediately.';
      if (!(await confirm({ title: `Rotate ${id} now?`, text, action: 'Rotate now' }))) return;
      const path = apiPath('sessions', id, 'rotate');
      await perform(`${id} was moved and its tunnels were closed`, 'POST', path, { close: true });
    },
    /** @param {Session} session */
    async forget({ id }) {
      const text =
        'The next connection starts a new session, possibly with another member. Open tunnels continue.';
      if (!(await confirm({ title: `Forget ${id}?`, text, action: 'Forget' }))) return;
      await perform(`${id} was forgotten`, 'DELETE', apiPath('sessions', id));
    },
  };
}

/** @param {...string} parts */
function apiPath(...parts) {
  return `/api/${parts.map(encodeURIComponent).join('/')}`;
}
