/** What happens to a member from its draw to its end, and what then is left of it. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  LateClock,
  openKit,
  type PoolKit,
  refusal,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

const PATIENT = { health: { maxFailures: 9, quarantineMs: 10_000 } };
const idsOf = (kit: PoolKit) => kit.pool.members().map(({ id }) => id);
const sourceOf = (kit: PoolKit) => {
  const source = kit.pool.parts.members.sources.get('city');
  if (source === undefined) throw new Error('no source');
  return source;
};

/** A failed attempt or a cut tunnel that the target may have caused. */
function suspect(
  kit: PoolKit,
  avoid: readonly string[],
  {
    host,
    client = 'a',
    blame = 'member-for-target',
    cut = false,
  }: { host: string; client?: string; blame?: 'member-for-target' | 'unclear'; cut?: boolean },
): void {
  const lease = acquire(kit, { client }, { targetHost: host, avoid });
  if (cut) {
    accept(kit, lease);
    close(kit, lease, blame);
  } else kit.pool.report({ lease: lease.id, kind: 'failed', blame, fault: 'member-silent' });
}

test.each(['expired', 'evicted', 'removed', 'failed'])(
  'members: one that has %s is in no list any more',
  (reason) => {
    const kit = openKit({ health: { maxFailures: 2, quarantineMs: 10_000 } });
    addMembers(kit, 1, 60_000);
    const [id = ''] = idsOf(kit);
    use(kit, { session: 's' });
    const { members, sessions } = kit.pool.parts;
    const source = sourceOf(kit);
    source.suspected.add(members.byId.get(id) ?? (undefined as never));
    fail(kit, acquire(kit));
    if (reason === 'expired') kit.clock.advance(57_000);
    if (reason === 'evicted') kit.pool.evict(id);
    if (reason === 'removed') kit.pool.retainMembers('city', []);
    if (reason === 'failed') fail(kit, acquire(kit));
    sessions.forget('s');
    expect([members.byId.size, members.byKey.size, source.members.size, source.expiries.size]).toEqual([
      0, 0, 0, 0,
    ]);
    expect([source.quarantined.size, source.suspected.size, source.openLeases]).toEqual([0, 0, 0]);
    expect([sessions.byName.size, sessions.countByMember.size, sessions.reserved.size]).toEqual([0, 0, 0]);
    expect(source.counts).toEqual({ joining: 0, ready: 0, quarantined: 0, draining: 0, left: 1 });
    expect(kit.pool.acquireForProbe(9, 0)).toEqual([]);
    kit.clock.advance(3_600_000);
    expect(kit.clock.armedCount).toBe(0);
  },
);

test('members: one that drains takes every report and every removal, and is nowhere afterwards', () => {
  const kit = openKit(PATIENT);
  addMembers(kit, 1, 60_000);
  const tunnels = [acquire(kit), acquire(kit), acquire(kit)];
  const [first, second, third] = tunnels;
  const id = first?.member ?? '';
  kit.pool.evict(id);
  expect(kit.pool.evict(id)).toBe(true);
  kit.clock.advance(52_000);
  kit.pool.blockSource('city', 'bad login');
  kit.pool.blockSource('city', undefined);
  expect(kit.pool.acquireForProbe(9, 0)).toEqual([]);
  if (first === undefined || second === undefined || third === undefined) throw new Error('no leases');
  accept(kit, second);
  accept(kit, third);
  fail(kit, first);
  close(kit, second, 'member-for-target');
  expect([stateOf(kit, id), kit.events('member.drained').length]).toEqual(['draining', 1]);
  kit.clock.advance(90_000);
  close(kit, third);
  expect(kit.pool.countsOf('city')).toMatchObject({ ready: 0, draining: 0, openTunnels: 0 });
  expect(kit.events('member.left')).toMatchObject([{ member: id, reason: 'evicted', uses: 2 }]);
  expect(kit.clock.armedCount).toBe(0);
});

test('members: only those with faults, or barred, are remembered, and not longer than they must', () => {
  const kit = openKit(PATIENT);
  const { departed } = kit.pool.parts.members;
  const left = (number: number, lifeMs: number, isFaulty: boolean) => {
    kit.pool.addMembers('city', [drawn(kit, number, lifeMs)]);
    if (isFaulty) fail(kit, acquire(kit));
    kit.clock.advance(lifeMs);
    return departed.size;
  };
  expect([left(1, 20_000, false), left(2, 20_000, true), left(3, 20_000, false)]).toEqual([0, 1, 1]);
  // The end of the fourth forgets the second, which was remembered for the length of its life.
  expect(left(4, 20_000, true)).toBe(1);
  expect(kit.pool.snapshot().remembered).toHaveLength(1);
});

test('members: an evicted one is barred for a quarantine at least', () => {
  const kit = openKit();
  addMembers(kit, 1, 5_000);
  kit.pool.evict(idsOf(kit)[0] ?? '');
  kit.clock.advance(9_999);
  const again = () => kit.pool.addMembers('city', [drawn(kit, 0, 60_000)]);
  expect(again().rejected).toBe(1);
  kit.clock.advance(1);
  expect(again().joined).toBe(1);
});

test('members: clients may report bans of an exit for ten minutes after its member left', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000);
  const [member = ''] = idsOf(kit);
  kit.pool.evict(member);
  const ban = () => kit.pool.ban({ holder: { member }, host: 'shop.example', verdict: 'banned' });
  kit.clock.advance(600_000);
  expect(ban()).toBe(true);
  kit.clock.advance(1);
  expect(ban()).toBe(false);
});

test('members: a draw that names the same address renews login, exit and life', () => {
  const kit = openKit();
  const login = (password: string) => ({ login: { username: 'u', password: new Secret(password) } });
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { ...login('old'), exitIp: 'a' })]);
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { ...login('new'), exitIp: 'b' })]);
  const lease = acquire(kit);
  expect([lease.exit, lease.login?.password.reveal()]).toEqual(['b', 'new']);
  kit.pool.sites.of('never.example');
  expect(kit.pool.sites.views()).toMatchObject([{ usableExits: 1 }, { usableExits: 1 }]);
  expect(kit.events('member.joined')).toMatchObject([
    { remainingMs: 60_000, renewed: false },
    { remainingMs: 60_000, renewed: true },
  ]);
  const unknown = { endsAt: undefined };
  kit.pool.addMembers('city', [drawn(kit, 2, 0, unknown)]);
  kit.clock.advance(1_000);
  kit.pool.addMembers('city', [drawn(kit, 2, 0, unknown)]);
  expect(kit.pool.members()).toMatchObject([{ remainingSeconds: 59 }, { remainingSeconds: null }]);
});

test('members: a success renews an assumed life, but not for less than a sixty-fourth of it', () => {
  const kit = openKit({ sources: [{ ...CITY, unknownLifetimeMs: 640_000 }], minRemainingMs: 638_000 });
  kit.pool.addMembers('city', [drawn(kit, 1, 0, { endsAt: undefined })]);
  const start = kit.clock.monotonic();
  const endAfter = (ms: number) => {
    kit.clock.advance(ms);
    use(kit);
    return (kit.pool.nextLossAt('city', 0) ?? 0) - start + 3_000;
  };
  expect([endAfter(9_999), endAfter(1)]).toEqual([640_000, 650_000]);
  kit.pool.addMembers('city', [drawn(kit, 2, 638_500)]);
  const { byId } = kit.pool.parts.members;
  kit.clock.advance(5_000);
  expect([...byId.values()].map(({ bucket }) => bucket)).toEqual(['expiring', 'expiring']);
  kit.clock.advance(5_000);
  accept(kit, acquire(kit, {}, { avoid: [idsOf(kit)[1] ?? ''] }));
  expect([...byId.values()].map(({ bucket }) => bucket)).toEqual(['fresh', 'expiring']);
});

test('members: each gets an id of its own, whatever the random numbers', () => {
  for (const random of [0, 0.999_999_999_999_99]) {
    const kit = openKit({ random: () => random });
    addMembers(kit, 3);
    expect(new Set(idsOf(kit)).size).toBe(3);
    for (const id of idsOf(kit)) expect(id).toMatch(/^[0-9a-z]{8}$/);
  }
});

test('members: the first success admits a new one, and restores only a quarantined one', () => {
  const kit = openKit(PATIENT);
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { unproven: true })]);
  const probe = () => kit.pool.acquireForProbe(9, 1)[0] ?? acquire(kit);
  const trial = probe();
  const [member] = kit.pool.parts.members.byId.values();
  if (member !== undefined) member.source.suspected.add(member);
  accept(kit, trial);
  expect(kit.events('member.restored')).toEqual([]);
  expect(sourceOf(kit).suspected.size, 'it works').toBe(0);
  fail(kit, acquire(kit));
  kit.clock.advance(10_000);
  accept(kit, acquire(kit));
  expect(kit.events('member.restored')).toHaveLength(1);
  expect(sourceOf(kit).quarantined.size).toBe(0);
});

test('members: a reload keeps their limits, and frees what it allows', async () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 60_000 } });
  addMembers(kit, 1);
  use(kit);
  const waiting = kit.pool.acquire(request({}, { waitMs: 30_000 }));
  expect(waiting).toBeInstanceOf(Promise);
  kit.pool.reconfigure(poolSettings());
  await expect(waiting).resolves.toMatchObject({ waitedMs: 0 });
});

test('members: a pool without sources refuses, and another source may come', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000, { location: 'East' });
  use(kit, { location: 'east' }, { targetHost: 'x.example' });
  for (let time = 0; time < 2; time += 1) kit.pool.reconfigure(poolSettings({ sources: [] }));
  expect(refusal(kit).code).toBe('pool-empty');
  expect(kit.pool.members()).toEqual([]);
  kit.pool.reconfigure(poolSettings());
  addMembers(kit, 1);
  use(kit);
});

test.each(['acquireForProbe', 'upcoming', 'rotateSession', 'rejectMemberOf', 'assignMember'])(
  'members: %s uses no expired one, even when the timer is late',
  (method) => {
    const clock = new LateClock();
    clock.advance(1_000_000);
    const kit = openKit({ clock, rotation: { sessionTtlMs: 3_600_000 } });
    kit.pool.addMembers('city', [drawn(kit, 1, 60_000), drawn(kit, 2, 60_000)]);
    use(kit, { session: 's' });
    clock.lateMs = 57_000;
    const { pool } = kit;
    if (method === 'acquireForProbe') expect(pool.acquireForProbe(9, 0)).toEqual([]);
    else if (method === 'upcoming')
      expect(pool.upcoming({ routing: {}, count: 9, isKnown: () => false })).toEqual([]);
    else if (method === 'rotateSession') expect(pool.rotateSession('s')?.to).toBeUndefined();
    else if (method === 'assignMember')
      expect(
        pool.assignMember({ session: 't', routing: {}, taken: new Map(), mode: 'fill' }),
      ).toBeUndefined();
    else {
      pool.rejectMemberOf('s');
      expect(pool.memberOfSession('s')).toBeUndefined();
      expect(kit.events('member.quarantined')).toEqual([]);
    }
    expect(kit.events('member.left')).toHaveLength(2);
  },
);

test('members: an expired one that is drawn again joins, even when the timer is late', () => {
  const clock = new LateClock();
  const kit = openKit({ clock });
  addMembers(kit, 1, 60_000);
  clock.lateMs = 57_000;
  expect(kit.pool.addMembers('city', [drawn(kit, 0, 60_000)])).toEqual({
    joined: 1,
    renewed: 0,
    rejected: 0,
  });
});

test('members: a closed pool gives none to anybody', () => {
  const kit = openKit();
  addMembers(kit, 2);
  use(kit, { session: 's' });
  kit.pool.close();
  const { pool } = kit;
  expect(pool.acquireForProbe(9, 0)).toEqual([]);
  expect(pool.acquireForComparison('city', 60_000)).toBeUndefined();
  expect(pool.upcoming({ routing: {}, count: 9, isKnown: () => false })).toEqual([]);
  expect(pool.assignMember({ session: 's', routing: {}, taken: new Map(), mode: 'keep' })).toBeUndefined();
  expect(pool.isWorthWaiting({}, 60_000)).toBe(false);
});

test('evidence: a failure of a lease that began before the quarantine does not count again', () => {
  const kit = openKit({ health: { maxFailures: 2, quarantineMs: 10_000 } });
  addMembers(kit, 1);
  const [id = ''] = idsOf(kit);
  const leases = ['a', 'b', 'c'].map((client) =>
    acquire(kit, { client }, { targetHost: `${client}.example` }),
  );
  kit.clock.advance(1);
  for (const { id: lease } of leases)
    kit.pool.report({ lease, kind: 'failed', blame: 'member-for-target', fault: 'member-silent' });
  expect(kit.pool.members()).toMatchObject([{ id, state: 'quarantined', faults: 1 }]);
});

test('evidence: a draw replaces a member that failed by itself or for two clients, not for one', () => {
  const stockAfter = (...clients: string[]) => {
    const kit = openKit(PATIENT);
    addMembers(kit, 2, 3_600_000);
    const others = idsOf(kit).slice(1);
    if (clients.length === 0) fail(kit, acquire(kit));
    for (const [index, client] of clients.entries()) {
      kit.clock.advance(10_000);
      suspect(kit, others, { host: `host${index}.test`, client });
    }
    // each quarantine in a row is twice as long
    expect(kit.events('member.quarantined').map(({ forMs }) => forMs)).toEqual(
      [10_000, 20_000].slice(0, clients.length || 1),
    );
    const { usable, counted, held } = kit.pool.stockAt('city', kit.clock.monotonic());
    return [usable, counted, held];
  };
  expect([stockAfter(), stockAfter('a'), stockAfter('a', 'b')]).toEqual([
    [1, 1, 2],
    [1, 2, 2],
    [1, 1, 2],
  ]);
});

test('evidence: an answer shows that cuts of one target are its own, an accepted attempt does not', () => {
  const cutAfter = (answers: boolean) => {
    const kit = openKit(PATIENT);
    addMembers(kit, 1, 3_600_000);
    const lease = acquire(kit, { client: 'a' });
    accept(kit, lease);
    kit.pool.report({ lease: lease.id, kind: 'closed', cut: false, answered: answers });
    suspect(kit, [], { host: 'one.test', cut: true });
    return kit.pool.members()[0]?.state;
  };
  expect([cutAfter(true), cutAfter(false)]).toEqual(['ready', 'quarantined']);
});

test('evidence: a client that fails alone does not count while targets answer others', () => {
  const stateWith = (other: string) => {
    const kit = openKit(PATIENT);
    addMembers(kit, 2, 3_600_000);
    const [id = '', second = ''] = idsOf(kit);
    use(kit, { client: other }, { avoid: [id] });
    kit.clock.advance(61_000);
    for (const host of ['one.test', 'two.test'])
      suspect(kit, [second], { host, client: 'mallory', cut: true });
    return stateOf(kit, id);
  };
  expect([stateWith('mallory'), stateWith('ann')]).toEqual(['quarantined', 'ready']);
});

test('trial: a member that a probe cannot judge goes on trial if none of its source works, one in ten', () => {
  const trial = ({
    fault = 'member-silent',
    prepare = () => {},
  }: {
    fault?: 'member-silent' | 'member-cut';
    prepare?: (kit: PoolKit, second: string) => void;
  }) => {
    const kit = openKit(PATIENT);
    addMembers(kit, 3, 3_600_000);
    const [id = '', second = ''] = idsOf(kit);
    prepare(kit, second);
    const undecided = () => {
      for (const lease of kit.pool.acquireForProbe(9, 0))
        if (lease.member === id)
          kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'unclear', fault });
        else kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'target', fault });
    };
    undecided();
    const now = kit.clock.monotonic();
    const result = [stateOf(kit, id), kit.pool.stockAt('city', now).counted];
    undecided();
    expect(kit.events('member.quarantined').length, 'one trial').toBeLessThan(2);
    if (result[0] === 'quarantined') {
      kit.clock.advance(10_000);
      suspect(kit, idsOf(kit).slice(1), { host: 'a.test' });
      expect(kit.pool.stockAt('city', kit.clock.monotonic()).counted, 'is replaced, as before').toBe(2);
    }
    return result;
  };
  const ON_TRIAL = ['quarantined', 2];
  const NOT = ['ready', 3];
  expect(trial({})).toEqual(ON_TRIAL);
  const accepted = (agoMs: number) => (kit: PoolKit, second: string) => {
    const lease = acquire(kit, {}, { avoid: idsOf(kit).filter((id) => id !== second) });
    accept(kit, lease);
    kit.pool.report({ lease: lease.id, kind: 'closed', cut: false });
    kit.clock.advance(agoMs);
  };
  expect(trial({ prepare: accepted(60_000) }), 'one has accepted lately').toEqual(NOT);
  expect(trial({ prepare: accepted(60_001) })).toEqual(ON_TRIAL);
  expect(trial({ prepare: accepted(0), fault: 'member-cut' }), 'none has answered').toEqual(ON_TRIAL);
  const answered = (kit: PoolKit) => use(kit);
  expect(trial({ prepare: answered, fault: 'member-cut' })).toEqual(NOT);
  expect(trial({ prepare: (kit) => kit.pool.freezeEvictions(true) }), 'noria itself is offline').toEqual(NOT);
});

test('trial: members that join allow another one', () => {
  const kit = openKit(PATIENT);
  const trials = () => {
    for (const lease of kit.pool.acquireForProbe(99, 0))
      kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'unclear', fault: 'member-silent' });
    return kit.events('member.quarantined').length;
  };
  addMembers(kit, 4, 3_600_000);
  expect([trials(), trials()]).toEqual([1, 1]);
  for (let number = 4; number < 15; number += 1) kit.pool.addMembers('city', [drawn(kit, number, 3_600_000)]);
  expect([trials(), trials()]).toEqual([2, 2]);
});

test('offline: faults do not count, quarantined members rest on, and then may be tried at once', () => {
  const kit = openKit(PATIENT);
  addMembers(kit, 2, 3_600_000);
  const [id = ''] = idsOf(kit);
  fail(kit, acquire(kit));
  kit.pool.freezeEvictions(true);
  expect(use(kit).member).not.toBe(id);
  expect(use(kit).member, 'still quarantined').not.toBe(id);
  fail(kit, acquire(kit));
  expect(kit.events('member.quarantined')).toHaveLength(1);
  kit.pool.freezeEvictions(false);
  expect([use(kit).member, use(kit).member]).toContain(id);
});

test('offline: a fixed session gets its quarantined member back when the network works again', async () => {
  const kit = openKit(PATIENT);
  addMembers(kit, 2, 3_600_000);
  const fixed = { session: 'f', fixed: true };
  fail(kit, acquire(kit, fixed));
  const waiting = kit.pool.acquire(request(fixed, { waitMs: 5_000 }));
  expect(waiting).toBeInstanceOf(Promise);
  expect(kit.pool.demand('city').waiting, 'no draw helps it').toBe(0);
  kit.pool.freezeEvictions(true);
  kit.clock.advance(1_000);
  kit.pool.freezeEvictions(false);
  await expect(waiting).resolves.toMatchObject({ waitedMs: 1_000 });
});

test('buckets: a member is last choice from its quarantine to its end, and expiring in between as any other', () => {
  const kit = openKit(PATIENT);
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
  const [id = ''] = idsOf(kit);
  fail(kit, acquire(kit));
  kit.pool.addMembers('city', [drawn(kit, 2, 180_000)]);
  const member = kit.pool.parts.members.byId.get(id);
  const buckets = [9_999, 1, 39_999, 1, 7_000].map((ms) => {
    kit.clock.advance(ms);
    return member?.phase.name === 'left' ? 'left' : member?.bucket;
  });
  expect(buckets).toEqual(['quarantined', 'fresh', 'fresh', 'expiring', 'left']);
});

test('evidence: an accepted attempt clears refused ones', () => {
  const kit = openKit({ health: { maxFailures: 2, quarantineMs: 1_000 } });
  addMembers(kit, 1, 3_600_000);
  const [id = ''] = idsOf(kit);
  suspect(kit, [], { host: 'one.test' });
  kit.clock.advance(1_000);
  accept(kit, acquire(kit));
  suspect(kit, [], { host: 'two.test', client: 'b' });
  expect(stateOf(kit, id)).toBe('ready');
});

test('evidence: a member that fails for a client alone is probed at the limit, and the probe decides', () => {
  const kit = openKit({ health: { maxFailures: 2, quarantineMs: 1_000 } });
  addMembers(kit, 1, 3_600_000);
  const [id = ''] = idsOf(kit);
  const suspected: string[] = [];
  kit.pool.parts.observers.push({
    ...({} as (typeof kit.pool.parts.observers)[number]),
    ...{ memberUsed: () => {}, memberQuarantined: () => {}, memberLeft: () => {} },
    memberSuspected: (member) => suspected.push(member.id),
  });
  suspect(kit, [], { host: 'one.test' });
  kit.clock.advance(1_000);
  expect([suspected, kit.pool.acquireForProbe(9)]).toEqual([[], []]);
  suspect(kit, [], { host: 'two.test' });
  expect([suspected, stateOf(kit, id)]).toEqual([[id], 'quarantined']);
  const [probe] = kit.pool.acquireForProbe(9);
  expect(probe).toMatchObject({ member: id, isNew: false });
  fail(kit, probe ?? acquire(kit));
  expect(stateOf(kit, id)).toBe('left');
});

test('replicas: a quarantine that another one reports is replaced by a draw, unless it says otherwise', () => {
  const counted = (replaced?: boolean) => {
    const kit = openKit();
    addMembers(kit, 2);
    const { members } = kit.pool.parts;
    const [member] = members.byId.values();
    const now = kit.clock.monotonic();
    if (member === undefined) throw new Error('no member');
    members.quarantineUntil(member, { untilAt: now + 1_000, fault: 'member-silent', replaced }, now);
    expect(kit.events('member.quarantined')).toMatchObject([{ forMs: 1_000, fault: 'member-silent' }]);
    return kit.pool.stockAt('city', now).counted;
  };
  expect([counted(), counted(true), counted(false)]).toEqual([1, 1, 2]);
});
