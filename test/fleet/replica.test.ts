/** Several pools behave as one. Unless a test says otherwise, the replicas are of one machine. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { planDraw } from '../../src/refill/plan.ts';
import { accept, acquire, addMembers, close, drawn, fail, request, use } from '../pool/pool-kit.ts';
import { CITY } from '../support/pool-settings.ts';
import { acquireAt, BEAT_MS, beaten, openFleet, type ReplicaKit, settled, viewOf } from './replica-kit.ts';
import { Recorder } from './shared-pool-contract.ts';

async function openPair(changes: Parameters<ReturnType<typeof openFleet>['open']>[1] = {}) {
  const fleet = openFleet();
  const a = await fleet.open('a', changes);
  const b = await fleet.open('b', changes);
  return { fleet, a, b };
}

const ids = ({ pool }: Awaited<ReturnType<typeof openPair>>['a']) =>
  pool
    .members()
    .map(({ id }) => id)
    .sort();

test('replica: a member that one draws serves the clients of all', async () => {
  const { a, b } = await openPair();
  a.pool.addMembers('city', [
    drawn(a, 1, 60_000, { location: 'Lisbon', exitIp: '198.51.100.1', facts: { carrier: 'one' } }),
  ]);
  await settled();
  expect(b.pool.members()).toEqual(a.pool.members());
  const waiting = b.replica.acquire(request({}, { avoid: ids(a), waitMs: 5_000 }));
  a.pool.addMembers('city', [drawn(a, 2)]);
  await expect(waiting).resolves.toMatchObject({ host: '203.0.0.3' });
});

test('replica: a draw of known members renews them everywhere', async () => {
  const { fleet, a, b } = await openPair();
  addMembers(a, 2, 60_000);
  await settled();
  const [id] = ids(a);
  b.pool.addMembers('city', [drawn(b, 0, 90_000), drawn(b, 1, 90_000)]);
  await settled();
  expect(ids(a)).toEqual(ids(b));
  fleet.clock.advance(70_000);
  expect(viewOf(a, id ?? '')?.remainingSeconds).toBe(20);
  expect(b.events('member.joined').filter(({ renewed }) => renewed).length).toBe(2);
});

test('replica: one that starts later has members, quarantines, bans, sessions and uses', async () => {
  const { fleet, a } = await openPair();
  addMembers(a, 3);
  await settled();
  const session = await acquireAt(a, { session: 's1' });
  accept(a, session);
  fail(a, acquire(a));
  a.pool.ban({ holder: { member: session.member }, host: 'one.example', verdict: 'banned' });
  await beaten(fleet.clock);
  const late = await fleet.open('late');
  const seen = late.pool.members().map(({ openTunnels: _, latencyMs: __, ...view }) => view);
  const expected = a.pool.members().map(({ openTunnels: _, latencyMs: __, ...view }) => view);
  expect(seen.sort(byId)).toEqual(expected.sort(byId));
  expect(late.pool.sessions()).toMatchObject([{ id: 's1', member: session.member }]);
  const elsewhere = acquire(late, {}, { targetHost: 'one.example', avoid: [] });
  expect(elsewhere.member).not.toBe(session.member);
});

const byId = (one: { readonly id: string }, other: { readonly id: string }) => (one.id < other.id ? -1 : 1);

test('replica: members that its pool had before the start become known to all replicas', async () => {
  const fleet = openFleet();
  const a = await fleet.open('a');
  addMembers(a, 1);
  const [id = ''] = ids(a);
  use(a);
  const snapshot = a.pool.snapshot();
  await settled();
  const second = openFleet();
  const restarted = await second.open('a');
  restarted.pool.restore(snapshot, 0);
  await restarted.replica.close();
  const other = await second.open('b');
  expect(viewOf(other, id), 'it was restored after the start').toBeUndefined();
});

test('replica: a quarantine counts everywhere, and so does its end', async () => {
  const { fleet, a, b } = await openPair();
  addMembers(a, 2);
  await settled();
  const failed = acquire(a);
  fail(a, failed);
  await settled();
  expect(viewOf(b, failed.member)).toMatchObject({ state: 'quarantined', faults: 1 });
  for (let n = 0; n < 3; n += 1) expect((await acquireAt(b)).member).not.toBe(failed.member);
  fleet.clock.advance(10_000);
  const others = ids(a).filter((id) => id !== failed.member);
  use(b, {}, { avoid: others });
  await settled();
  expect(viewOf(a, failed.member)).toMatchObject({ state: 'ready', faults: 0 });
});

test('replica: faults of one member add up', async () => {
  const { fleet, a, b } = await openPair();
  addMembers(a, 2);
  await settled();
  const failed = acquire(a);
  const others = ids(a).filter((id) => id !== failed.member);
  fail(a, failed);
  await settled();
  fleet.clock.advance(10_000);
  fail(b, acquire(b, {}, { avoid: others }));
  await settled();
  expect([ids(a), ids(b)]).toEqual([others, others]);
  a.pool.addMembers('city', [drawn(a, 0), drawn(a, 1)]);
  b.pool.addMembers('city', [drawn(b, 0), drawn(b, 1)]);
  await settled();
  expect([ids(a), ids(b)], 'a draw cannot bring it back').toEqual([others, others]);
});

test('replica: replicas on two different machines must agree on an eviction', async () => {
  const votes = { sameMachine: false, evictionVotes: (replicas: number) => Math.min(2, replicas) };
  const { fleet, a, b } = await openPair(votes);
  const c = await fleet.open('c', votes);
  addMembers(a, 2);
  await settled();
  const [id = '', other = ''] = ids(a);
  const failAt = async (kit: typeof a) => {
    for (let n = 0; n < 2; n += 1) {
      fail(kit, acquire(kit, {}, { avoid: [other] }));
      fleet.clock.advance(20_000);
    }
    await settled();
  };
  await failAt(a);
  expect([ids(a), ids(b), ids(c)]).toEqual([[other], [id, other], [id, other]]);
  const late = await fleet.open('late', votes);
  expect(ids(late)).toEqual([id, other]);
  await failAt(b);
  expect([ids(a), ids(b), ids(c), ids(late)]).toEqual([[other], [other], [other], [other]]);
});

test('replica: a quarantine of another machine spares a member that worked here lately', async () => {
  const pool = { health: { maxFailures: 10, quarantineMs: 10_000 } };
  const { fleet, a, b } = await openPair({ sameMachine: false, pool });
  addMembers(a, 1);
  await settled();
  use(b);
  fleet.clock.advance(30_000);
  fail(a, acquire(a));
  await settled();
  expect(b.pool.members()[0]?.state).toBe('ready');
  fleet.clock.advance(31_000);
  fail(a, acquire(a));
  await settled();
  expect(b.pool.members()[0]?.state).toBe('quarantined');
});

test('replica: requested evictions and bans apply in all replicas', async () => {
  const { a, b } = await openPair();
  addMembers(a, 2);
  await settled();
  const [first = '', second = ''] = ids(a);
  a.pool.evict(first);
  b.pool.ban({ holder: { member: second }, host: 'one.example', verdict: 'banned' });
  await settled();
  expect([ids(a), ids(b)]).toEqual([[second], [second]]);
  expect(a.pool.acquire(request({}, { targetHost: 'one.example' }))).toMatchObject({ code: 'pool-empty' });
  a.pool.ban({ holder: { member: second }, host: 'one.example', verdict: 'ok' });
  await settled();
  expect(b.pool.acquire(request({}, { targetHost: 'one.example' }))).toMatchObject({ member: second });
});

test('replica: a session has the same member everywhere, and moves for all together', async () => {
  const { a, b } = await openPair();
  addMembers(a, 4);
  await settled();
  const first = await acquireAt(a, { session: 's1' });
  expect((await acquireAt(b, { session: 's1' })).member).toBe(first.member);
  accept(a, first);
  close(a, first);
  a.pool.evict(first.member);
  await settled();
  const next = await acquireAt(b, { session: 's1' });
  expect(next.member).not.toBe(first.member);
  await settled();
  expect((await acquireAt(a, { session: 's1' })).member).toBe(next.member);
  expect(a.pool.rotateSession('s1')).toMatchObject({ from: next.member });
  await settled();
  expect(b.pool.sessions()[0]?.member).toBe(a.pool.sessions()[0]?.member);
  b.pool.parts.sessions.forget('s1');
  await settled();
  expect(a.pool.sessions()).toEqual([]);
});

test('replica: two that open the same session at once agree on its member', async () => {
  const { a, b } = await openPair();
  addMembers(a, 6);
  await settled();
  for (let n = 0; n < 10; n += 1) {
    const name = `s${n}`;
    const leases = await Promise.all([a, b, a, b].map((kit) => acquireAt(kit, { session: name })));
    expect(new Set(leases.map(({ member }) => member)).size, name).toBe(1);
  }
  const open = [...a.pool.members(), ...b.pool.members()].map(({ openTunnels }) => openTunnels);
  expect(open.reduce((sum, each) => sum + each)).toBe(40);
});

test('replica: clients that wait for the same new session get the same member', async () => {
  const { a, b } = await openPair();
  const waiting = [a, b].map(({ replica }) => replica.acquire(request({ session: 's1' }, { waitMs: 5_000 })));
  addMembers(a, 3);
  const leases = await Promise.all(waiting);
  expect(leases[0]).toMatchObject({ session: 's1', member: expect.any(String) });
  expect((leases[1] as { member?: string }).member).toBe((leases[0] as { member?: string }).member);
});

test('replica: a session that is used elsewhere does not end here', async () => {
  const { fleet, a, b } = await openPair({ pool: { rotation: { sessionTtlMs: 60_000 } } });
  addMembers(a, 1, 600_000);
  await settled();
  await acquireAt(a, { session: 's1' });
  for (let n = 0; n < 6; n += 1) {
    fleet.clock.advance(20_000);
    close(b, await acquireAt(b, { session: 's1' }));
    await beaten(fleet.clock);
  }
  expect(a.events('session.ended')).toEqual([]);
  fleet.clock.advance(61_000);
  expect(b.events('session.ended').length).toBe(1);
});

test('replica: waiting clients are the demand of all, and a rise is known at once', async () => {
  const { fleet, a, b } = await openPair();
  const before = b.events('demand.rose').length;
  const waiting = a.replica.acquire(request({}, { waitMs: 60_000 }));
  await settled();
  expect(b.events('demand.rose').length).toBe(before + 1);
  expect(b.pool.demand('city')).toMatchObject({ waiting: 1, lastWantedAt: fleet.clock.monotonic() });
  expect(b.pool.waitingCount).toBe(1);
  expect(b.pool.stockAt('city', fleet.clock.monotonic() + 1_000).usable).toBe(0);
  addMembers(b, 1);
  expect(b.pool.stockAt('city', fleet.clock.monotonic()).usable, 'it serves the waiting client').toBe(1);
  await waiting;
  await settled();
  expect([b.pool.demand('city').waiting, b.pool.waitingCount]).toEqual([0, 0]);
});

test('replica: what another replica announces draws at most twice the size within one lifetime', async () => {
  const { clock, memory, open } = openFleet();
  const a = await open('a');
  const liar = memory.connect('liar');
  await liar.follow(new Recorder());
  const lifeMs = 60_000;
  let number = 0;
  const draw = (): number => {
    const stock = {
      countedAt: (at: number) => a.pool.stockAt('city', at).counted,
      heldAt: (at: number) => a.pool.stockAt('city', at).held,
      nextLossAt: (at: number) => a.pool.nextLossAt('city', at),
    };
    const plan = planDraw({
      ...{ now: clock.monotonic(), demand: a.pool.demand('city'), stock, fill: 'demand', atLeast: 0 },
      ...{ size: CITY.size, lifetimeMs: lifeMs, idleAfterMs: 60_000, startInMs: 0, callCycleMs: 1_000 },
      ...{
        latencyMs: 100,
        maxPerCall: 10,
        deadShare: 0,
        failedInARow: 0,
        quotaLeft: Number.POSITIVE_INFINITY,
      },
    });
    if (plan.kind !== 'draw') return 0;
    for (let left = plan.count; left > 0; left -= 1) {
      number += 1;
      a.pool.addMembers('city', [drawn(a, number, lifeMs)]);
    }
    return plan.count;
  };
  const perLife: number[] = [0, 0];
  const sizes = { waiting: 1_000, stranded: 1_000, held: 1_000, usedUpPerSecond: 1_000, perSecond: 1_000 };
  for (let second = 0; second < 114; second += 1) {
    liar.beat({
      ...{ waiting: 1_000, members: [], sessions: [] },
      demand: { city: { ...sizes, lastWantedAt: clock.monotonic() } },
    });
    await settled();
    const life = Math.floor(second / 57); // the safety margin ends a life 3 s earlier
    perLife[life] = (perLife[life] ?? 0) + draw();
    clock.advance(1_000);
  }
  expect(Math.min(...perLife), 'it draws').toBeGreaterThanOrEqual(CITY.size);
  expect(Math.max(...perLife)).toBeLessThanOrEqual(2 * CITY.size);
});

test('replica: the demand of a replica that closes ends', async () => {
  const { a, b } = await openPair();
  void a.replica.acquire(request({}, { waitMs: 60_000 }));
  await settled();
  await a.replica.close();
  await settled();
  expect(b.pool.demand('city').waiting).toBe(0);
});

test('replica: the others learn that the clients of a replica have become fewer, and that they have gone', async () => {
  const { fleet, a, b } = await openPair();
  addMembers(a, 1, 3_600_000);
  await settled();
  for (let count = 0; count < 40; count += 1) {
    const lease = await acquireAt(a);
    accept(a, lease);
    close(a, lease);
    await beaten(fleet.clock);
  }
  const rate = () => b.pool.demand('city').perSecond ?? 0;
  const atFirst = rate();
  expect(atFirst).toBeGreaterThan(1);
  for (let beats = 0; beats < 60_000 / BEAT_MS; beats += 1) await beaten(fleet.clock);
  expect(rate()).toBeLessThan(atFirst);
  for (let beats = 0; beats < 300_000 / BEAT_MS; beats += 1) await beaten(fleet.clock);
  expect(rate()).toBe(0);
  expect(fleet.clock.armedCount, 'only the end of the member in each pool').toBe(2);
});

test('replica: a member retires when the uses of all reach the limit', async () => {
  const { fleet, a, b } = await openPair({ pool: { rotation: { maxUsesPerMember: 4 } } });
  addMembers(a, 1, 600_000);
  await settled();
  const [id = ''] = ids(a);
  const usedBy: ReplicaKit[] = [];
  while (usedBy.length < 4) {
    for (const kit of [a, b]) {
      const answer = kit.pool.acquire(request());
      if (!('member' in answer)) continue; // the member's turn is that of the other replica
      accept(kit, answer);
      close(kit, answer);
      usedBy.push(kit);
    }
    await beaten(fleet.clock);
    const most = Math.max(...[a, b].map((kit) => viewOf(kit, id)?.uses ?? 4));
    expect(most).toBe(usedBy.length);
  }
  expect([ids(a), ids(b)]).toEqual([[], []]);
  expect(a.events('member.left').concat(b.events('member.left'))).toMatchObject(
    Array(2).fill({ reason: 'used-up', uses: 4 }),
  );
});

test('replica: each member is used as often as allowed, however fast the clients of all are', async () => {
  const { fleet, a, b } = await openPair({ pool: { rotation: { maxUsesPerMember: 1 } } });
  addMembers(a, 8, 600_000);
  await settled();
  const used: string[] = [];
  const waiting = [a, b].flatMap((kit) =>
    Array.from({ length: 4 }, async () => {
      const lease = await kit.replica.acquire(request({}, { waitMs: 600_000 }));
      if (!('member' in lease)) throw new Error(lease.reason);
      used.push(lease.member);
      accept(kit, lease);
      close(kit, lease);
    }),
  );
  while (used.length < 8) await beaten(fleet.clock);
  await Promise.all(waiting);
  expect(new Set(used).size).toBe(8);
});

test('replica: the spacing of a host holds for the uses of all', async () => {
  const spacingMs = 2_000;
  const { fleet, a, b } = await openPair({ pool: { rotation: { perHostSpacingMs: spacingMs } } });
  addMembers(a, 2, 600_000);
  await settled();
  const lastUse = new Map<string, number>();
  let uses = 0;
  for (let step = 0; step < 1_000; step += 1) {
    for (const kit of [a, b]) {
      const answer = kit.pool.acquire(request());
      if (!('member' in answer)) continue;
      const now = fleet.clock.monotonic();
      expect(now - (lastUse.get(answer.member) ?? Number.NEGATIVE_INFINITY)).toBeGreaterThanOrEqual(
        spacingMs,
      );
      lastUse.set(answer.member, now);
      uses += 1;
      close(kit, answer);
    }
    fleet.clock.advance(100);
  }
  expect(uses, 'of 100 that one process could make').toBeGreaterThan(60);
});

test('replica: maxTunnelsPerMember is divided', async () => {
  const { fleet, a, b } = await openPair({ pool: { rotation: { maxTunnelsPerMember: 3 } } });
  addMembers(a, 1);
  await settled();
  const openAt = (kit: typeof a) => {
    let count = 0;
    while (!('code' in kit.pool.acquire(request()))) count += 1;
    return count;
  };
  expect([openAt(a), openAt(b)]).toEqual([2, 1]);
  await b.replica.close();
  await settled();
  expect(openAt(a)).toBe(1);
  await fleet.open('c');
  expect(a.pool.acquire(request())).toMatchObject({ code: 'pool-empty' });
});

test('replica: one that serves no clients counts the leases of the others', async () => {
  const fleet = openFleet();
  const watcher = await fleet.open('watcher', { servesClients: false });
  const [a, b] = [await fleet.open('a'), await fleet.open('b')];
  watcher.pool.addMembers('city', [drawn(watcher, 1)]);
  await settled();
  const [id = ''] = ids(watcher);
  const leases = [await acquireAt(a, { session: 's1' }), await acquireAt(b)];
  for (const lease of leases) accept(lease === leases[0] ? a : b, lease, 40);
  await beaten(fleet.clock);
  expect(viewOf(watcher, id)).toMatchObject({ openTunnels: 2, uses: 2, latencyMs: 40 });
  expect(watcher.pool.counts()).toMatchObject([{ openTunnels: 2, used: 1 }]);
  fleet.clock.advance(5_000);
  expect(watcher.pool.sessions()).toMatchObject([{ id: 's1', idleSeconds: 0, uses: 1 }]);
  watcher.pool.evict(id);
  await settled();
  expect(viewOf(watcher, id)?.state).toBe('draining');
  await b.replica.close();
  await settled();
  expect(viewOf(watcher, id)).toMatchObject({ openTunnels: 1 });
  close(a, leases[0] ?? acquire(a));
  await beaten(fleet.clock);
  expect(watcher.events('member.left')).toMatchObject([{ member: id, reason: 'evicted', uses: 2 }]);
});

test('replica: a member of unknown lifetime lives on while any replica uses it', async () => {
  const { fleet, a, b } = await openPair({ pool: { sources: [{ ...CITY, unknownLifetimeMs: 60_000 }] } });
  a.pool.addMembers('city', [drawn(a, 1, 0, { endsAt: undefined })]);
  await settled();
  for (let n = 0; n < 4; n += 1) {
    fleet.clock.advance(40_000);
    use(b);
    await beaten(fleet.clock);
  }
  expect([ids(a).length, ids(b).length]).toEqual([1, 1]);
});

test('replica: a member that a probe admits serves the clients of all', async () => {
  const { a, b } = await openPair();
  a.pool.addMembers('city', [drawn(a, 1, 60_000, { unproven: true })]);
  await settled();
  expect(b.pool.acquire(request())).toMatchObject({ code: 'pool-empty' });
  const [probe] = a.pool.acquireForProbe(1);
  a.pool.report({ lease: probe?.id ?? 0, kind: 'accepted', latencyMs: 5 });
  await settled();
  expect(b.pool.acquire(request())).toMatchObject({ member: ids(a)[0] });
});

test('replica: commands for a source reach all, also those that start later', async () => {
  const { fleet, a, b } = await openPair();
  a.replica.commandSource('city', 'pause');
  await settled();
  const pause = { kind: 'source.commanded', source: 'city', command: 'pause' };
  expect([a.commands, b.commands]).toEqual([[], [pause]]);
  expect((await fleet.open('c')).commands).toEqual([pause]);
  b.replica.commandSource('city', 'resume');
  await settled();
  expect((await fleet.open('d')).commands).toEqual([]);
});

test('replica: an idle one sends no beats', async () => {
  const { fleet, a } = await openPair();
  addMembers(a, 1, 600_000);
  use(a);
  await beaten(fleet.clock);
  const armed = fleet.clock.armedCount;
  fleet.clock.advance(10 * BEAT_MS);
  expect(fleet.clock.armedCount).toBe(armed);
});

test('replica: a client that is served elsewhere is no other client, and one answer counts once', async () => {
  const { fleet, a, b } = await openPair();
  addMembers(a, 6, 3_600_000);
  await settled();
  const serve = async (client: string) => {
    const lease = acquire(a, { client });
    accept(a, lease);
    close(a, lease);
    await beaten(fleet.clock);
  };
  const failFor = (client: string) => {
    const avoid = a.pool.members().flatMap(({ id, uses }) => (uses > 0 ? [id] : []));
    const { id: lease, member } = acquire(b, { client }, { avoid });
    b.pool.report({ lease, kind: 'failed', blame: 'member-for-target', fault: 'member-refused' });
    return viewOf(b, member)?.state;
  };
  await serve('mallory');
  expect(failFor('mallory'), 'alone').toBe('quarantined');
  await serve('alice');
  expect(failFor('mallory'), 'while another client is served').toBe('ready');
  for (let minute = 0; minute < 11; minute += 1) {
    fleet.clock.advance(60_000);
    await beaten(fleet.clock);
  }
  expect(failFor('mallory'), 'alone again').toBe('quarantined');
});

test('replica: a member with its own password is not shared with other machines', async () => {
  const login = { username: 'me', password: new Secret('right-one') };
  for (const sameMachine of [true, false]) {
    const { a, b } = await openPair({ sameMachine });
    a.pool.addMembers('city', [drawn(a, 1, 60_000, { login }), drawn(a, 2)]);
    await settled();
    expect([ids(a).length, ids(b).length]).toEqual([2, sameMachine ? 2 : 1]);
  }
});

test('replica: what it learned while the shared pool was lost reaches the others when it loads the state again', async () => {
  const fleet = openFleet();
  let isLost = false;
  const a = await fleet.open('a', {
    wrap: (shared) => ({ ...shared, publish: (facts) => void (isLost || shared.publish(facts)) }),
  });
  const b = await fleet.open('b');
  addMembers(a, 3);
  await settled();
  const [evicted = '', failed = '', banned = ''] = ids(a);
  isLost = true;
  a.pool.evict(evicted);
  fail(a, acquire(a, {}, { avoid: [banned] }));
  a.pool.ban({ holder: { member: banned }, host: 'one.example', verdict: 'banned' });
  await settled();
  expect(ids(b)).toHaveLength(3);
  isLost = false;
  const reader = new Recorder();
  const connection = fleet.memory.connect('reader', { servesClients: false });
  await connection.follow(reader);
  await connection.close();
  const [state] = reader.loads;
  if (state === undefined) throw new Error('nothing was loaded');
  a.replica.receiveState(state);
  await settled();
  expect(ids(b)).toEqual([failed, banned].sort());
  expect(ids(a)).toEqual(ids(b));
  expect(viewOf(b, failed)?.state).toBe('quarantined');
  expect(acquire(b, {}, { targetHost: 'one.example' }).member).toBe(failed);
});

test('replica: the exit of an exclusive session is kept for it everywhere, and a fixed session never moves', async () => {
  const { fleet, a, b } = await openPair();
  addMembers(a, 3);
  await settled();
  const own = await acquireAt(a, { session: 'x', exclusive: true });
  accept(a, own);
  const fixed = await acquireAt(a, { session: 'f', fixed: true });
  accept(a, fixed);
  await settled();
  await beaten(fleet.clock);
  const others = Array.from({ length: 6 }, () => use(b).member);
  others.push((await acquireAt(b, { session: 's1' })).member);
  expect(others).not.toContain(own.member);
  const name = { client: 'me', session: 'x', tag: undefined };
  const verdict = { verdict: 'banned', host: 'shop.example', forMs: undefined, user: undefined } as const;
  expect(b.pool.leases.judge(name, verdict)).toEqual({ host: 'shop.example' });
  expect(b.pool.leases.describe(name)).toMatchObject({ member: own.member, session: 'x' });
  a.pool.evict(fixed.member);
  await settled();
  const answer = await b.replica.acquire(request({ session: 'f', fixed: true }));
  expect(answer).toMatchObject({ code: 'session-ended' });
  close(a, own);
  close(a, fixed);
});
