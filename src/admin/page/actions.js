// @ts-check
/** What a person can do from the page: each verb of the API, asked for twice where it hurts, and said how it went. */
import { act } from './api.js';
import { confirm, toast } from './dialogs.js';
import { counted, sentence } from './format.js';

/**
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../schemas.ts').SourceJson} Source
 * @typedef {import('../schemas.ts').SessionJson} Session
 */

/** @param {() => void} onDone - something was tried: it is time to ask again */
export function openActions(onDone) {
  /** @param {string} done @param {'POST' | 'DELETE'} method @param {string} where @param {object} [body] */
  const perform = async (done, method, where, body) => {
    try {
      await act(method, where, body);
      toast(sentence(done), 'fine');
    } catch (error) {
      toast(sentence(error instanceof Error ? error.message : String(error)), 'failed');
    }
    onDone();
  };

  return {
    /** @param {Member} member */
    async evict({ id, openTunnels }) {
      const tunnels =
        openTunnels === 0 ? '' : ` Its ${counted(openTunnels, 'open tunnel')} will go on to the end.`;
      const text = `It is paid for, takes nothing new from now on, and is not drawn again.${tunnels}`;
      if (!(await confirm({ title: `Evict ${id}?`, text, verb: 'Evict it' }))) return;
      await perform(`${id} was evicted`, 'POST', path('members', id, 'evict'));
    },
    /** @param {Source} source */
    refill: ({ name }) =>
      perform(`${name} draws as soon as its pace allows`, 'POST', path('sources', name, 'refill')),
    /** @param {Source} source */
    resume: ({ name }) => perform(`${name} was resumed`, 'POST', path('sources', name, 'resume')),
    /** @param {Source} source */
    async pause({ name, ready }) {
      const text = `It draws nothing until it is resumed. Its ${counted(ready, 'usable member')} serve until they expire.`;
      if (!(await confirm({ title: `Pause ${name}?`, text, verb: 'Pause it' }))) return;
      await perform(`${name} was paused`, 'POST', path('sources', name, 'pause'));
    },
    /** @param {Session} session */
    rotate: ({ id }) =>
      perform(`${id} moves with its next connection`, 'POST', path('sessions', id, 'rotate')),
    /** @param {Session} session */
    async rotateNow({ id }) {
      const text =
        'The session moves to another member at once, and its open tunnels are ended in the middle.';
      if (!(await confirm({ title: `Cut ${id}?`, text, verb: 'Cut its tunnels' }))) return;
      await perform(`${id} was moved and cut`, 'POST', path('sessions', id, 'rotate'), { close: true });
    },
    /** @param {Session} session */
    async forget({ id }) {
      const text =
        'Its next connection begins a new session, with whichever member comes up. Open tunnels go on.';
      if (!(await confirm({ title: `Forget ${id}?`, text, verb: 'Forget it' }))) return;
      await perform(`${id} was forgotten`, 'DELETE', path('sessions', id));
    },
  };
}

/** @param {...string} parts */
function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join('/')}`;
}
