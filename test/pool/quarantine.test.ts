import { expect, test } from 'vitest';
import type { LeaseReport } from '../../src/pool/lease.ts';
import {
  accept,
  close,
  fail,
  lend,
  offer,
  openKit,
  type PoolKit,
  pourMembers,
  refusal,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

type Step = 'member' | 'half-member' | 'target' | 'source' | 'network' | 'nobody' | 'use' | 'cut' | number;

/** What becomes of the only member of a pool (10 s of quarantine, three faults allowed) after what happens to it. */
const REPLAYS: readonly { says: string; steps: readonly Step[]; state: string }[] = [
  { says: 'a fault rests it', steps: ['member'], state: 'quarantined' },
  {
    says: 'a rest that is over does not make it ready by itself',
    steps: ['member', 10_000],
    state: 'quarantined',
  },
  { says: 'a success does', steps: ['member', 10_000, 'use'], state: 'ready' },
  { says: 'three in a row evict it', steps: ['member', 10_000, 'member', 20_000, 'member'], state: 'left' },
  {
    says: 'a success between them saves it',
    steps: ['member', 10_000, 'use', 'member', 10_000, 'member'],
    state: 'quarantined',
  },
  {
    says: 'a target’s fault is not its own',
    steps: ['target', 'target', 'target', 'target'],
    state: 'ready',
  },
  { says: 'nor is the source’s', steps: ['source', 'source', 'source'], state: 'ready' },
  { says: 'nor the network’s', steps: ['network', 'network', 'network'], state: 'ready' },
  { says: 'nor the leaving of a client', steps: ['nobody', 'nobody', 'nobody'], state: 'ready' },
  {
    says: 'a trial that ends with a target’s fault decides nothing',
    steps: ['member', 10_000, 'target'],
    state: 'quarantined',
  },
  { says: 'one cut tunnel is forgiven', steps: ['cut'], state: 'ready' },
  { says: 'two in a row rest it', steps: ['cut', 'cut'], state: 'quarantined' },
  {
    says: 'though it is accepted in between',
    steps: ['cut', 'cut', 10_000, 'cut', 'cut', 10_000, 'cut', 'cut'],
    state: 'left',
  },
  { says: 'a tunnel that ran well clears cuts', steps: ['cut', 'use', 'cut'], state: 'ready' },
  { says: 'half faults count half', steps: ['half-member', 'half-member'], state: 'quarantined' },
];

function play(kit: PoolKit, step: Step): void {
  if (typeof step === 'number') {
    kit.clock.advance(step);
    return;
  }
  const lease = lend(kit);
  if (step === 'use' || step === 'cut') {
    accept(kit, lease);
    close(kit, lease, step === 'cut');
  } else kit.pool.report({ lease: lease.id, kind: 'failed', blame: step, fault: 'member-silent' });
}

test.each(REPLAYS)('quarantine: $says', ({ steps, state }) => {
  const kit = openKit({ health: { maxFailures: 3, quarantineMs: 10_000 } });
  pourMembers(kit, 1, 1_800_000);
  const [member] = kit.pool.members();
  for (const step of steps) play(kit, step);
  expect(stateOf(kit, member?.id ?? '')).toBe(state);
});

test('quarantine: each rest in a row is twice as long, up to the life of the member', () => {
  const kit = openKit({ health: { maxFailures: 99, quarantineMs: 10_000 } });
  pourMembers(kit, 1, 100_000);
  for (let fault = 0; fault < 4; fault += 1) {
    fail(kit, lend(kit));
    kit.clock.advance(10_000 * 2 ** fault);
  }
  expect(kit.events('member.quarantined').map(({ forMs }) => forMs)).toEqual([
    10_000, 20_000, 40_000, 30_000,
  ]);
});

test('quarantine: a member that rests is left alone while others are there', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const resting = lend(kit);
  fail(kit, resting);
  const others = Array.from({ length: 10 }, () => use(kit).member);
  expect(others).not.toContain(resting.member);
});

test('quarantine: when its rest is over one client tries it, in its turn, and no other until it is known', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const resting = lend(kit);
  fail(kit, resting);
  kit.clock.advance(10_000);
  const leases = Array.from({ length: 6 }, () => lend(kit));
  const trials = leases.filter(({ member }) => member === resting.member);
  expect(trials).toMatchObject([{ doubtful: true }]);
  accept(kit, trials[0] ?? leases[0] ?? resting);
  expect(kit.events('member.restored')).toMatchObject([{ member: resting.member }]);
  const after = Array.from({ length: 3 }, () => lend(kit));
  expect(after.find(({ member }) => member === resting.member)).toMatchObject({ doubtful: false });
});

test('quarantine: with nothing else left a resting member is better than none, for one client at a time', () => {
  const kit = openKit();
  pourMembers(kit, 2);
  const [one, two] = [lend(kit), lend(kit)];
  fail(kit, one);
  fail(kit, two);
  const trials = [lend(kit), lend(kit)];
  expect(trials.map(({ member }) => member).sort()).toEqual([one.member, two.member].sort());
  expect(refusal(kit).refused).toBe('pool-empty');
});

test('quarantine: the first trial’s fault is not counted again for leases that were open before', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const crowd = Array.from({ length: 10 }, () => lend(kit));
  kit.clock.advance(5_000);
  for (const lease of crowd) fail(kit, lease);
  expect(kit.pool.members()).toMatchObject([{ state: 'quarantined', faults: 1 }]);
});

test('quarantine: a success through an older lease proves the member all the same', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const [slow, failed] = [lend(kit), lend(kit)];
  fail(kit, failed);
  accept(kit, slow);
  expect(kit.pool.members()).toMatchObject([{ state: 'ready', faults: 0 }]);
});

test('quarantine: those who wait are served by the first whose rest is over', async () => {
  const kit = openKit();
  pourMembers(kit, 1);
  fail(kit, lend(kit));
  const trial = lend(kit);
  const waiting = kit.pool.acquire(request({}, { waitMs: 30_000 }));
  const report: LeaseReport = { lease: trial.id, kind: 'failed', blame: 'target', fault: 'target-doubted' };
  kit.pool.report(report);
  await expect(waiting).resolves.toMatchObject({ member: trial.member, doubtful: true });
});

test('quarantine: while our own network is down nobody is to blame, and afterwards all may be tried at once', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const before = lend(kit);
  fail(kit, before);
  kit.pool.freezeEvictions(true);
  for (let fault = 0; fault < 10; fault += 1) fail(kit, lend(kit));
  expect(kit.pool.counts()).toMatchObject([{ ready: 2, quarantined: 1 }]);
  kit.pool.freezeEvictions(false);
  const tried = Array.from({ length: 3 }, () => lend(kit).member);
  expect(tried).toContain(before.member);
  fail(kit, lend(kit));
  expect(kit.pool.counts()).toMatchObject([{ ready: 1, quarantined: 2 }]);
});

test('probes: an unproven member is given to no client before a probe has got through', () => {
  const kit = openKit();
  pourMembers(kit, 2, 60_000, { unproven: true });
  expect(kit.pool.members().map(({ state }) => state)).toEqual(['joining', 'joining']);
  expect(refusal(kit).refused).toBe('pool-empty');
  const [first, second, ...more] = kit.pool.acquireForProbe(10);
  expect(more).toEqual([]);
  expect(kit.pool.acquireForProbe(10)).toEqual([]);
  if (first === undefined || second === undefined) throw new Error('nothing to probe');
  accept(kit, first);
  close(kit, first);
  fail(kit, second);
  expect(kit.pool.members()).toMatchObject([{ id: first.member, state: 'ready', uses: 0 }]);
  expect(kit.events('member.left')).toMatchObject([{ member: second.member, reason: 'failed' }]);
  expect(lend(kit).member).toBe(first.member);
});

test('probes: a probe that ended without a verdict on the member is repeated', () => {
  const kit = openKit();
  pourMembers(kit, 1, 60_000, { unproven: true });
  for (let round = 0; round < 3; round += 1) {
    const [probe] = kit.pool.acquireForProbe(1);
    if (probe === undefined) throw new Error('nothing to probe');
    fail(kit, probe, 'target');
  }
  expect(kit.pool.members()).toMatchObject([{ state: 'joining', openTunnels: 0 }]);
});

test('probes: unproven ones come first, then rests that are over, then those that nobody got through lately', () => {
  const kit = openKit();
  pourMembers(kit, 3, 600_000);
  fail(kit, lend(kit));
  const proven = use(kit);
  kit.clock.advance(20_000);
  const stale = kit.pool.members().find(({ id, state }) => id !== proven.member && state === 'ready');
  use(
    kit,
    {},
    {
      avoid: kit.pool
        .members()
        .map(({ id }) => id)
        .filter((id) => id !== proven.member),
    },
  );
  kit.pool.addMembers('city', [offer(kit, 9, 60_000, { unproven: true })]);
  const probes = kit.pool.acquireForProbe(10, 15_000);
  const states = new Map(kit.pool.members().map(({ id, state }) => [id, state]));
  expect(probes.map(({ member }) => states.get(member))).toEqual(['joining', 'quarantined', 'ready']);
  expect(probes[2]?.member).toBe(stale?.id);
  expect(kit.pool.acquireForProbe(10, 15_000), 'all are being probed').toEqual([]);
});

test('probes: they are no demand and no use', () => {
  const kit = openKit({ rotation: { maxUsesPerMember: 1 } });
  pourMembers(kit, 1, 60_000);
  kit.clock.advance(5_000);
  const [probe] = kit.pool.acquireForProbe(1, 1_000);
  if (probe === undefined) throw new Error('nothing to probe');
  accept(kit, probe);
  close(kit, probe);
  expect(kit.pool.members()).toMatchObject([{ uses: 0, state: 'ready' }]);
  expect(kit.pool.demand('city')).toEqual({ waiting: 0, lastWantedAt: 0, usedUpPerSecond: 0 });
  expect(lend(kit).member).toBe(probe.member);
});
