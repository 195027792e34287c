import { expect, test } from 'vitest';
import type { LeaseReport } from '../../src/pool/lease.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  openKit,
  type PoolKit,
  refusal,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

type Step = 'member' | 'target' | 'source' | 'network' | 'nobody' | 'use' | number;

/**
 * Each row has steps with the only member of a pool, and the member's state after them. The quarantine is 10 s,
 * `maxFailures` is 3.
 */
const REPLAYS: readonly { title: string; steps: readonly Step[]; state: string }[] = [
  { title: 'a fault quarantines a member', steps: ['member'], state: 'quarantined' },
  {
    title: 'the end of a quarantine alone does not make a member ready',
    steps: ['member', 10_000],
    state: 'quarantined',
  },
  {
    title: 'a success after a quarantine makes a member ready',
    steps: ['member', 10_000, 'use'],
    state: 'ready',
  },
  {
    title: 'three faults in a row evict a member',
    steps: ['member', 10_000, 'member', 20_000, 'member'],
    state: 'left',
  },
  {
    title: 'a success between faults prevents the eviction',
    steps: ['member', 10_000, 'use', 'member', 10_000, 'member'],
    state: 'quarantined',
  },
  {
    title: 'faults of the target do not count',
    steps: ['target', 'target', 'target', 'target'],
    state: 'ready',
  },
  { title: 'faults of the source do not count', steps: ['source', 'source', 'source'], state: 'ready' },
  { title: 'faults of our network do not count', steps: ['network', 'network', 'network'], state: 'ready' },
  { title: 'disconnects of the client do not count', steps: ['nobody', 'nobody', 'nobody'], state: 'ready' },
  {
    title: 'a trial that ends with a fault of the target decides nothing',
    steps: ['member', 10_000, 'target'],
    state: 'quarantined',
  },
];

function play(kit: PoolKit, step: Step): void {
  if (typeof step === 'number') {
    kit.clock.advance(step);
    return;
  }
  const lease = acquire(kit);
  if (step === 'use') {
    accept(kit, lease);
    close(kit, lease);
  } else kit.pool.report({ lease: lease.id, kind: 'failed', blame: step, fault: 'member-silent' });
}

test.each(REPLAYS)('quarantine: $title', ({ steps, state }) => {
  const kit = openKit({ health: { maxFailures: 3, quarantineMs: 10_000 } });
  addMembers(kit, 1, 1_800_000);
  const [member] = kit.pool.members();
  for (const step of steps) play(kit, step);
  expect(stateOf(kit, member?.id ?? '')).toBe(state);
});

test('quarantine: each consecutive quarantine is twice as long, up to the end of the member', () => {
  const kit = openKit({ health: { maxFailures: 99, quarantineMs: 10_000 } });
  addMembers(kit, 1, 100_000);
  for (let fault = 0; fault < 4; fault += 1) {
    fail(kit, acquire(kit));
    kit.clock.advance(10_000 * 2 ** fault);
  }
  expect(kit.events('member.quarantined').map(({ forMs }) => forMs)).toEqual([
    10_000, 20_000, 40_000, 30_000,
  ]);
});

test('quarantine: a quarantined member is never picked while there are others', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const quarantined = acquire(kit);
  fail(kit, quarantined);
  const others = Array.from({ length: 10 }, () => use(kit).member);
  expect(others).not.toContain(quarantined.member);
});

test('quarantine: after a quarantine, one client tries the member in its turn, and no other client before the outcome', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const quarantined = acquire(kit);
  fail(kit, quarantined);
  kit.clock.advance(10_000);
  const leases = Array.from({ length: 6 }, () => acquire(kit));
  const trials = leases.filter(({ member }) => member === quarantined.member);
  expect(trials).toMatchObject([{ doubtful: true }]);
  accept(kit, trials[0] ?? leases[0] ?? quarantined);
  expect(kit.events('member.restored')).toMatchObject([{ member: quarantined.member }]);
  const after = Array.from({ length: 3 }, () => acquire(kit));
  expect(after.find(({ member }) => member === quarantined.member)).toMatchObject({ doubtful: false });
});

test('quarantine: without another member, one client at a time gets a quarantined one', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const [one, two] = [acquire(kit), acquire(kit)];
  fail(kit, one);
  fail(kit, two);
  const trials = [acquire(kit), acquire(kit)];
  expect(trials.map(({ member }) => member).sort()).toEqual([one.member, two.member].sort());
  expect(refusal(kit).code).toBe('pool-empty');
});

test('quarantine: faults of leases older than the quarantine do not count', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const older = Array.from({ length: 10 }, () => acquire(kit));
  kit.clock.advance(5_000);
  for (const lease of older) fail(kit, lease);
  expect(kit.pool.members()).toMatchObject([{ state: 'quarantined', faults: 1 }]);
});

test('quarantine: a success of an older lease makes the member ready', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const [slow, failed] = [acquire(kit), acquire(kit)];
  fail(kit, failed);
  accept(kit, slow);
  expect(kit.pool.members()).toMatchObject([{ state: 'ready', faults: 0 }]);
});

test('quarantine: a waiting client gets the member after an undecided trial', async () => {
  const kit = openKit();
  addMembers(kit, 1);
  fail(kit, acquire(kit));
  const trial = acquire(kit);
  const waiting = kit.pool.acquire(request({}, { waitMs: 30_000 }));
  const undecided: LeaseReport = {
    lease: trial.id,
    kind: 'failed',
    blame: 'target',
    fault: 'target-doubted',
  };
  kit.pool.report(undecided);
  await expect(waiting).resolves.toMatchObject({ member: trial.member, doubtful: true });
});

test('quarantine: while evictions are frozen faults do not count, and afterwards every member can be tried', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const before = acquire(kit);
  fail(kit, before);
  kit.pool.freezeEvictions(true);
  for (let fault = 0; fault < 10; fault += 1) fail(kit, acquire(kit));
  expect(kit.pool.counts()).toMatchObject([{ ready: 2, quarantined: 1 }]);
  kit.pool.freezeEvictions(false);
  const tried = Array.from({ length: 3 }, () => acquire(kit).member);
  expect(tried).toContain(before.member);
  fail(kit, acquire(kit));
  expect(kit.pool.counts()).toMatchObject([{ ready: 1, quarantined: 2 }]);
});

test('probes: clients get an unproven member only after a successful probe', () => {
  const kit = openKit();
  addMembers(kit, 2, 60_000, { unproven: true });
  expect(kit.pool.members().map(({ state }) => state)).toEqual(['joining', 'joining']);
  expect(refusal(kit).code).toBe('pool-empty');
  const [first, second, ...more] = kit.pool.acquireForProbe(10);
  expect(more).toEqual([]);
  expect(kit.pool.acquireForProbe(10)).toEqual([]);
  if (first === undefined || second === undefined) throw new Error('nothing to probe');
  accept(kit, first);
  close(kit, first);
  fail(kit, second);
  expect(kit.pool.members()).toMatchObject([{ id: first.member, state: 'ready', uses: 0 }]);
  expect(kit.events('member.left')).toMatchObject([{ member: second.member, reason: 'failed' }]);
  expect(acquire(kit).member).toBe(first.member);
});

test('probes: a probe that ends with a fault of the target is repeated', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000, { unproven: true });
  for (let round = 0; round < 3; round += 1) {
    const [probe] = kit.pool.acquireForProbe(1);
    if (probe === undefined) throw new Error('nothing to probe');
    fail(kit, probe, 'target');
  }
  expect(kit.pool.members()).toMatchObject([{ state: 'joining', openTunnels: 0 }]);
});

test('probes: unproven members come first, then ended quarantines, then members without a recent success', () => {
  const kit = openKit();
  addMembers(kit, 3, 600_000);
  fail(kit, acquire(kit));
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
  kit.pool.addMembers('city', [drawn(kit, 9, 60_000, { unproven: true })]);
  const probes = kit.pool.acquireForProbe(10, 15_000);
  const states = new Map(kit.pool.members().map(({ id, state }) => [id, state]));
  expect(probes.map(({ member }) => states.get(member))).toEqual(['joining', 'quarantined', 'ready']);
  expect(probes[2]?.member).toBe(stale?.id);
  expect(kit.pool.acquireForProbe(10, 15_000), 'all are probed already').toEqual([]);
});

test('probes: a probe counts neither as demand nor as a use', () => {
  const kit = openKit({ rotation: { maxUsesPerMember: 1 } });
  addMembers(kit, 1, 60_000);
  kit.clock.advance(5_000);
  const [probe] = kit.pool.acquireForProbe(1, 1_000);
  if (probe === undefined) throw new Error('nothing to probe');
  accept(kit, probe);
  close(kit, probe);
  expect(kit.pool.members()).toMatchObject([{ uses: 0, state: 'ready' }]);
  expect(kit.pool.demand('city').lastWantedAt).toBe(Number.NEGATIVE_INFINITY);
  expect(acquire(kit).member).toBe(probe.member);
});

/** A pool of which no member works; each call of `failAt` is a failure of its first member for another host. */
function openSuspected() {
  const kit = openKit({ health: { maxFailures: 3, quarantineMs: 10_000 } });
  addMembers(kit, 2, 3_600_000);
  const [bad = '', other = ''] = kit.pool.members().map(({ id }) => id);
  const failAt = (number: number) => {
    const targetHost = `host-${number}.example`;
    const lease = acquire(kit, { client: `client ${number % 2}` }, { avoid: [other], targetHost });
    kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'unclear', fault: 'member-unreachable' });
  };
  const end = (leases: readonly { readonly id: number }[], blame: 'unclear' | 'target') => {
    for (const { id } of leases)
      kit.pool.report({ lease: id, kind: 'failed', blame, fault: 'member-unreachable' });
  };
  return { kit, bad, failAt, end };
}

test('probes: while no member works, one that fails for eight hosts is probed once a minute', () => {
  const { kit, bad, failAt, end } = openSuspected();
  const probe = () => kit.pool.acquireForProbe(9);
  for (let number = 0; number < 7; number += 1) failAt(number);
  expect(probe()).toEqual([]);
  failAt(7);
  const probes = probe();
  expect(probes).toMatchObject([{ member: bad, isNew: false }]);
  expect(probe(), 'it is being tested').toEqual([]);
  end(probes, 'target');
  kit.clock.advance(59_999);
  failAt(8);
  expect(probe()).toEqual([]);
  kit.clock.advance(1);
  failAt(9);
  expect(probe()).toHaveLength(1);
  expect(stateOf(kit, bad)).toBe('ready');
});

test('probes: an undecided one puts the member on trial only while none of its source works', () => {
  const { kit, bad, failAt, end } = openSuspected();
  for (let number = 0; number < 8; number += 1) failAt(number);
  const probes = kit.pool.acquireForProbe(9);
  const worked = acquire(kit, {}, { avoid: [bad] });
  accept(kit, worked);
  end(probes, 'unclear');
  expect(stateOf(kit, bad), 'another one works').toBe('ready');
  kit.clock.advance(60_001);
  failAt(8);
  const again = kit.pool.acquireForProbe(9);
  expect(again).toHaveLength(1);
  end(again, 'unclear');
  expect(kit.events('member.quarantined')).toMatchObject([{ member: bad, forMs: 10_000 }]);
  expect(kit.pool.stockAt('city', kit.clock.monotonic()), 'a draw replaces it').toMatchObject({ counted: 1 });
  kit.clock.advance(10_000);
  const trial = acquire(kit, { client: 'one' }, { avoid: [worked.member], targetHost: 'new.example' });
  end([trial], 'unclear');
  expect(stateOf(kit, bad)).toBe('quarantined');
});
