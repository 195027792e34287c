/** Faults of members. At most two of three members misbehave, so that one in three works. */
import { shuffled } from '../../../src/core/random.ts';
import type { Behaviour } from '../../../src/sandbox/scenario.ts';
import type { Fault, FaultStage } from './fault.ts';

const SHARE = 0.5;

/** During the fault, some of the members have this behaviour, including members drawn meanwhile. */
function misbehaving(name: string, behaviour: Behaviour, promise: Fault['promise'] = 'served'): Fault {
  return {
    name: `members ${name}`,
    promise,
    isLearnt: true,
    begin: async ({ sandbox, random }) => {
      const changed = new Set<string>();
      const change = async () => {
        const good = sandbox.members().filter((member) => member.behaviour.how === 'good');
        const all = sandbox.members().length;
        const wanted = Math.floor(all * SHARE) - (all - good.length);
        for (const { id } of shuffled(random, good).slice(0, Math.max(0, wanted))) {
          changed.add(id);
          await sandbox.setBehaviour(id, behaviour);
        }
      };
      await change();
      return async () => {
        for (const { id } of sandbox.members()) {
          if (changed.has(id)) await sandbox.setBehaviour(id, { how: 'good' });
        }
      };
    },
  };
}

/** Closes the tunnels through some members, as if the provider had cut the line. */
const dying: Fault = {
  name: 'members die',
  promise: 'broken',
  begin: async ({ sandbox, random }: FaultStage) => {
    const members = shuffled(random, sandbox.members());
    for (const { id } of members.slice(0, Math.floor(members.length / 3))) await sandbox.kill(id);
    return () => {};
  },
};

export const MEMBER_FAULTS: readonly Fault[] = [
  misbehaving('refuse connections', { how: 'refuse' }),
  misbehaving('never answer', { how: 'silent' }),
  misbehaving('answer slowly', { how: 'slow', ms: 1_000 }),
  misbehaving('send answers byte by byte', { how: 'dribble', ms: 5 }),
  misbehaving('answer 503', { how: 'status', status: 503 }),
  misbehaving('answer with garbage', { how: 'garbage' }),
  misbehaving('send half of an answer', { how: 'partial' }),
  misbehaving('send an endless head', { how: 'endless-head' }),
  misbehaving('close connections on accept', { how: 'close', when: 'accept' }),
  misbehaving('close connections after the request', { how: 'close' }),
  misbehaving('reset connections on accept', { how: 'reset', when: 'accept' }),
  misbehaving('reset connections after the request', { how: 'reset' }),
  // Clients notice this fault: noria has already passed the tunnel on when the member resets it.
  misbehaving('reset tunnels in the middle', { how: 'cut', afterBytes: 1_000 }, 'broken'),
  misbehaving('accept requests and relay nothing', { how: 'silent-after' }, 'broken'),
  dying,
];
