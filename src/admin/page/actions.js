// @ts-check
/**
 * The actions of the dashboard. Each action sends one request to the admin API, and a toast shows the result.
 * Destructive actions first ask for confirmation.
 */
import { send } from './api.js';
import { confirm, toast } from './dialogs.js';
import { counted, sentence } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../../refill/status.ts').SourceStatus} Source
 * @typedef {import('../schemas.ts').SessionJson} Session
 */

/** @param {() => void} onDone - called after each request, successful or not */
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
      const { title, text, action, done } = TEXTS.actions.evict;
      const tunnels = openTunnels === 0 ? '' : counted(openTunnels, TEXTS.nouns.openTunnel);
      if (!(await confirm({ title: title(id), text: text(tunnels), action }))) return;
      await perform(done(id), 'POST', apiPath('members', id, 'evict'));
    },
    /** @param {Source} source */
    refill: ({ name }) =>
      perform(TEXTS.actions.refill.done(name), 'POST', apiPath('sources', name, 'refill')),
    /** @param {Source} source */
    resume: ({ name }) =>
      perform(TEXTS.actions.resume.done(name), 'POST', apiPath('sources', name, 'resume')),
    /** @param {Source} source */
    async pause({ name, ready }) {
      const { title, text, action, done } = TEXTS.actions.pause;
      const members = counted(ready, TEXTS.nouns.usableMember);
      if (!(await confirm({ title: title(name), text: text(members), action }))) return;
      await perform(done(name), 'POST', apiPath('sources', name, 'pause'));
    },
    /** @param {Session} session */
    rotate: ({ id }) => perform(TEXTS.actions.rotate.done(id), 'POST', apiPath('sessions', id, 'rotate')),
    /** @param {Session} session */
    async rotateNow({ id }) {
      const { title, text, action, done } = TEXTS.actions.rotateNow;
      if (!(await confirm({ title: title(id), text, action }))) return;
      await perform(done(id), 'POST', apiPath('sessions', id, 'rotate'), { close: true });
    },
    /** @param {Session} session */
    async forget({ id }) {
      const { title, text, action, done } = TEXTS.actions.forget;
      if (!(await confirm({ title: title(id), text, action }))) return;
      await perform(done(id), 'DELETE', apiPath('sessions', id));
    },
  };
}

/** @param {...string} parts */
function apiPath(...parts) {
  return `/api/${parts.map(encodeURIComponent).join('/')}`;
}
