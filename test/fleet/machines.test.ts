/** A fleet of two machines with two workers each. The primary of a machine passes on what its workers and the fleet learn. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { SharedPool } from '../../src/fleet/shared-pool.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  type PoolKit,
  request,
  stateOf,
  use,
} from '../pool/pool-kit.ts';
import { CITY } from '../support/pool-settings.ts';
import { type Machine, type MachineOptions, openMachine } from './machine-kit.ts';
import { acquireAt, BEAT_MS, beaten, openFleet, type ReplicaKit, settled, viewOf } from './replica-kit.ts';

interface Stage {
  readonly fleet: ReturnType<typeof openFleet>;
  readonly a: Machine;
  readonly b: Machine;
  /** The workers of both machines. */
  readonly workers: readonly [ReplicaKit, ReplicaKit, ReplicaKit, ReplicaKit];
  /** The pools of all processes. */
  readonly all: readonly PoolKit[];
  /** Resolves when beats have passed from every worker to every other worker. */
  heard(): Promise<void>;
}

async function openStage(
  pool?: MachineOptions['pool'],
  wrap = (_name: string, shared: SharedPool) => shared,
): Promise<Stage> {
  const fleet = openFleet();
  const { clock, memory } = fleet;
  const open = (name: string) =>
    openMachine({ name, clock, shared: wrap(name, memory.connect(name)), ...(pool && { pool }) });
  const [a, b] = [await open('a'), await open('b')];
  const [a1, a2] = a.workers as [ReplicaKit, ReplicaKit];
  const [b1, b2] = b.workers as [ReplicaKit, ReplicaKit];
  return {
    fleet,
    a,
    b,
    workers: [a1, a2, b1, b2],
    all: [a.primary, a1, a2, b.primary, b1, b2],
    async heard() {
      for (let hop = 0; hop < 4; hop += 1) await beaten(clock);
    },
  };
}

const ids = ({ pool }: PoolKit) =>
  pool
    .members()
    .filter(({ state }) => state !== 'draining')
    .map(({ id }) => id)
    .sort();

/** A connection that a test can cut. A cut connection passes nothing, as if the store were lost. */
function cuttable() {
  let isCut = false;
  let reconnect = () => {};
  const wrap = (shared: SharedPool): SharedPool => ({
    ...shared,
    follow(follower) {
      reconnect = () => {
        void shared.close().then(() => shared.follow(follower));
      };
      return shared.follow({
        receiveState: (state) => follower.receiveState(state),
        receiveFacts: (facts) => isCut || follower.receiveFacts(facts),
        receiveActivity: (view) => isCut || follower.receiveActivity(view),
        heldSessions: () => follower.heldSessions(),
      });
    },
    publish: (facts) => isCut || shared.publish(facts),
    beat: (beat) => isCut || shared.beat(beat),
    bindSession: async (proposed, from) => (isCut ? undefined : shared.bindSession(proposed, from)),
  });
  return {
    wrap,
    cut() {
      isCut = true;
    },
    restore() {
      isCut = false;
      reconnect();
    },
  };
}

test('machines: a member that one primary draws serves the clients of all workers', async () => {
  const { a, b, all, workers } = await openStage();
  addMembers(a.primary, 3);
  await settled();
  for (const kit of all) expect(ids(kit)).toEqual(ids(a.primary));
  b.primary.pool.addMembers('city', [drawn(b.primary, 0, 300_000)]);
  await settled();
  for (const kit of all) {
    expect(kit.events('member.joined').map(({ renewed }) => renewed)).toEqual([false, false, false, true]);
  }
  for (const kit of workers) expect((await acquireAt(kit)).host).toMatch(/^203\.0\./);
});

test('machines: a session has the same member in all workers, and moves for all together', async () => {
  const { a, b, all, workers } = await openStage();
  const [a1, , b1, b2] = workers;
  addMembers(a.primary, 5);
  await settled();
  const answers = await Promise.all(workers.map((kit) => acquireAt(kit, { session: 's1' })));
  const member = answers[0]?.member ?? '';
  expect(answers.map((lease) => lease.member)).toEqual(Array(4).fill(member));
  for (const kit of all) expect(kit.pool.memberOfSession('s1')).toBe(member);

  const opened = await acquireAt(a1, { session: 's2' });
  await settled();
  for (const kit of all) expect(kit.pool.memberOfSession('s2')).toBe(opened.member);
  b2.pool.rotateSession('s2');
  await settled();
  const moved = b2.pool.memberOfSession('s2');
  expect(moved).not.toBe(opened.member);
  for (const kit of all) expect(kit.pool.memberOfSession('s2')).toBe(moved);
  expect((await acquireAt(b1, { session: 's2' })).member).toBe(moved);
  b.primary.pool.parts.sessions.forget('s1');
  await settled();
  for (const kit of all) expect(kit.pool.sessions().map(({ id }) => id)).toEqual(['s2']);
});

test('machines: opening a session appends one fact to the log of the fleet', async () => {
  const { fleet, a, workers } = await openStage();
  addMembers(a.primary, 2);
  await settled();
  const facts: string[] = [];
  await fleet.memory.connect('watcher', { servesClients: false }).follow({
    receiveState() {},
    receiveFacts: (logged) => void facts.push(...logged.map(({ by, fact }) => `${by} ${fact.kind}`)),
    receiveActivity() {},
    heldSessions: () => [],
  });
  await acquireAt(workers[2], { session: 's1' });
  await settled();
  expect(facts).toEqual(['b session.moved']);
});

test('machines: the workers of one machine are one replica in the vote for an eviction', async () => {
  const { fleet, a, workers } = await openStage();
  const [a1, a2, b1, b2] = workers;
  addMembers(a.primary, 2);
  await settled();
  const [id = '', other = ''] = ids(a.primary);
  const failOnce = async (kit: ReplicaKit) => {
    fail(kit, acquire(kit, {}, { avoid: [other] }));
    await settled();
    fleet.clock.advance(10_000);
  };
  await failOnce(a1);
  await failOnce(a2);
  expect([ids(a1), ids(a2), ids(b1), ids(b2)]).toEqual([[other], [other], [id, other], [id, other]]);
  const [late] = (await openMachine({ name: 'c', clock: fleet.clock, shared: fleet.memory.connect('c') }))
    .workers;
  expect(late && ids(late), 'the vote of one machine').toEqual([id, other]);
  await failOnce(b1);
  await failOnce(b2);
  for (const kit of [...workers, late ?? a1]) expect(ids(kit)).toEqual([other]);
  a.primary.pool.addMembers('city', [drawn(a.primary, 0), drawn(a.primary, 1)]);
  await settled();
  for (const kit of workers) expect(ids(kit), 'a draw cannot bring it back').toEqual([other]);
});

test('machines: a quarantine of another machine spares a member that worked in any worker lately', async () => {
  const pool = { health: { maxFailures: 10, quarantineMs: 10_000 } };
  const { fleet, a, workers, heard } = await openStage(pool);
  const [a1, a2, b1, b2] = workers;
  addMembers(a.primary, 1);
  await settled();
  const [id = ''] = ids(a.primary);
  use(a1);
  await heard();
  fail(b1, acquire(b1));
  await settled();
  expect([stateOf(a1, id), stateOf(a2, id), stateOf(b2, id)]).toEqual(['ready', 'ready', 'quarantined']);
  fleet.clock.advance(61_000);
  fail(b1, acquire(b1));
  await settled();
  expect([stateOf(a1, id), stateOf(a2, id), stateOf(b2, id)]).toEqual(Array(3).fill('quarantined'));
});

test('machines: a success on another machine ends a quarantine, but not the faults on this one', async () => {
  const { fleet, a, workers } = await openStage({ health: { maxFailures: 2, quarantineMs: 10_000 } });
  const [a1, a2, b1] = workers;
  addMembers(a.primary, 2);
  await settled();
  const [id = '', other = ''] = ids(a.primary);
  fail(a1, acquire(a1, {}, { avoid: [other] }));
  await settled();
  fleet.clock.advance(10_000);
  use(b1, {}, { avoid: [other] });
  await settled();
  for (const kit of workers) expect(stateOf(kit, id)).toBe('ready');
  fail(a2, acquire(a2, {}, { avoid: [other] }));
  await settled();
  expect([stateOf(a1, id), stateOf(a2, id), stateOf(b1, id)]).toEqual(['left', 'left', 'ready']);
});

test('machines: each process knows the uses of all workers, and counts each use once', async () => {
  const { fleet, a, b, all, workers, heard } = await openStage();
  addMembers(a.primary, 1, 600_000);
  await settled();
  const [id = ''] = ids(a.primary);
  for (let round = 1; round <= 3; round += 1) {
    for (const kit of workers) {
      for (let n = 0; n < round; n += 1) {
        const lease = await acquireAt(kit, { session: 's1' });
        accept(kit, lease);
        close(kit, lease);
      }
    }
    await heard();
    const uses = 2 * round * (round + 1);
    for (const kit of all) expect(viewOf(kit, id)?.uses).toBe(uses);
    for (const { primary } of [a, b]) expect(primary.pool.sessions()).toMatchObject([{ id: 's1', uses }]);
  }
  const late = await openMachine({ name: 'c', clock: fleet.clock, shared: fleet.memory.connect('c') });
  await heard();
  for (const kit of [late.primary, ...late.workers]) expect(viewOf(kit, id)?.uses).toBe(24);
  expect(viewOf(await b.openWorker('b3'), id)?.uses).toBe(24);
});

test('machines: a member retires when the uses of all workers reach the limit', async () => {
  const { fleet, a, all, workers, heard } = await openStage({ rotation: { maxUsesPerMember: 6 } });
  addMembers(a.primary, 1, 3_600_000);
  await settled();
  let uses = 0;
  for (let step = 0; step < 200 && ids(a.primary).length > 0; step += 1) {
    for (const kit of workers) {
      const lease = kit.pool.acquire(request());
      if (!('member' in lease)) continue;
      accept(kit, lease);
      close(kit, lease);
      uses += 1;
    }
    await heard();
  }
  for (const kit of all) expect(ids(kit)).toEqual([]);
  expect([6, 7], 'two machines may use it at the same moment').toContain(uses);
  expect(fleet.clock.monotonic()).toBeLessThan(3_600_000);
});

test('machines: waiting clients of a worker are demand for all, until they are served', async () => {
  const { a, b, workers, heard } = await openStage();
  const [, a2, b1] = workers;
  const expectWaiting = (count: number) => {
    for (const { primary } of [a, b]) {
      expect(primary.pool.demand('city').waiting).toBe(count);
      expect(primary.pool.waitingCount).toBe(count);
    }
  };
  const first = a2.replica.acquire(request({}, { waitMs: 60_000 }));
  await settled();
  expectWaiting(1);
  const second = b1.replica.acquire(request({}, { waitMs: 60_000 }));
  await heard();
  await heard();
  expectWaiting(2); // no replica repeats the demand of another
  b.primary.pool.addMembers('city', [drawn(b.primary, 1)]);
  expect(b.primary.pool.demand('city').waiting, 'before the next beats').toBe(0);
  for (const waiting of [first, second]) await expect(waiting).resolves.toMatchObject({ host: '203.0.0.2' });
  await settled();
  expectWaiting(0);
});

test('machines: maxTunnelsPerMember is divided among the machines, then among their workers', async () => {
  const { fleet, a, workers, b } = await openStage({ rotation: { maxTunnelsPerMember: 7 } });
  addMembers(a.primary, 1);
  await settled();
  const openAt = (kit: PoolKit) => {
    let count = 0;
    while (!('code' in kit.pool.acquire(request()))) count += 1;
    return count;
  };
  expect(workers.map(openAt)).toEqual([2, 2, 2, 1]);
  await b.replica.close();
  await settled();
  expect(workers.slice(0, 2).map(openAt), 'the machine that is left has all').toEqual([2, 1]);
  const late = await a.openWorker('a3');
  expect(openAt(late)).toBe(2);
  expect(fleet.clock.monotonic()).toBe(0);
});

test('machines: a limit that one machine observed is divided among its workers only', async () => {
  const { a, workers } = await openStage();
  addMembers(a.primary, 1);
  await settled();
  const open = await Promise.all(Array.from({ length: 8 }, () => acquireAt(workers[0])));
  expect(open).toHaveLength(8);
  await beatenTwice(a);
  a.primary.pool.limitTunnels('city', 0.5);
  await settled();
  let count = 0;
  while (!('code' in workers[1].pool.acquire(request()))) count += 1;
  expect(count, 'half of 4').toBe(2);
  expect((await acquireAt(workers[2])).member, 'the other machine is not limited').toBeDefined();
});

async function beatenTwice({ primary }: Machine): Promise<void> {
  for (let n = 0; n < 2; n += 1) {
    primary.clock.advance(0);
    await settled();
  }
}

test('machines: a machine without its store goes on with all its workers, and catches up later', async () => {
  const link = cuttable();
  const { a, b, workers, all } = await openStage(undefined, (name, shared) =>
    name === 'a' ? link.wrap(shared) : shared,
  );
  const [a1, a2] = workers;
  addMembers(a.primary, 4);
  await settled();
  link.cut();
  const opened = await Promise.all([acquireAt(a1, { session: 's1' }), acquireAt(a2, { session: 's1' })]);
  expect(opened[0]?.member, 'both workers agree').toBe(opened[1]?.member);
  const [first = '', second = ''] = ids(a.primary).filter((id) => id !== opened[0]?.member);
  a2.pool.ban({ holder: { member: second }, host: 'one.example', verdict: 'banned' });
  a.primary.pool.evict(first);
  b.primary.pool.addMembers('city', [drawn(b.primary, 9)]);
  await settled();
  const [drawnMeanwhile = ''] = ids(b.primary).filter((id) => !ids(a.primary).includes(id) && id !== first);
  expect([ids(a1), ids(a2)].map((each) => each.includes(first))).toEqual([false, false]);
  expect(b.primary.pool.memberOfSession('s1')).toBeUndefined();
  link.restore();
  await settled();
  for (const kit of all) {
    expect(kit.pool.memberOfSession('s1')).toBe(opened[0]?.member);
    expect(ids(kit)).toContain(drawnMeanwhile);
    expect(ids(kit)).not.toContain(first);
  }
  const avoid = ids(a.primary).filter((id) => id !== second);
  for (const kit of [a1, a2]) {
    const answer = kit.pool.acquire(request({}, { targetHost: 'one.example', avoid }));
    expect(answer, 'the ban').toMatchObject({ code: 'pool-empty' });
  }
});

test('machines: a worker that starts later knows what all have learned', async () => {
  const { a, b, workers, heard } = await openStage();
  const [a1] = workers;
  addMembers(a.primary, 3);
  await settled();
  const { member } = await acquireAt(a1, { session: 's1' });
  b.primary.pool.ban({ holder: { member }, host: 'one.example', verdict: 'banned' });
  b.primary.pool.evict(ids(a1).find((id) => id !== member) ?? '');
  await heard();
  const late = await b.openWorker('b3');
  expect(ids(late)).toEqual(ids(a1));
  expect(ids(late)).toHaveLength(2);
  expect((await acquireAt(late, { session: 's1' })).member).toBe(member);
  expect(acquire(late, {}, { targetHost: 'one.example' }).member).not.toBe(member);
});

test('machines: a member of unknown lifetime lives on while any worker uses it', async () => {
  const { fleet, a, workers, all, heard } = await openStage({
    sources: [{ ...CITY, unknownLifetimeMs: 60_000 }],
  });
  a.primary.pool.addMembers('city', [drawn(a.primary, 1, 0, { endsAt: undefined })]);
  await settled();
  for (let n = 0; n < 4; n += 1) {
    fleet.clock.advance(40_000);
    use(workers[3]);
    await heard();
  }
  for (const kit of all) expect(ids(kit)).toHaveLength(1);
});

test('machines: what only one machine may know stays there', async () => {
  const { a, b, workers } = await openStage();
  const [a1, a2, b1] = workers;
  const login = { username: 'me', password: new Secret('right-one') };
  a.primary.pool.addMembers('city', [drawn(a.primary, 1, 60_000, { login }), drawn(a.primary, 2)]);
  a.primary.pool.blockSource('city', 'refused');
  a.primary.pool.freezeEvictions(true);
  await settled();
  expect([ids(a1).length, ids(a2).length, ids(b1).length, ids(b.primary).length]).toEqual([2, 2, 1, 1]);
  expect(a2.pool.acquire(request())).toMatchObject({ code: 'pool-empty' });
  const [id = ''] = ids(b1);
  expect(acquire(b1).member).toBe(id);
  fail(b1, acquire(b1));
  expect(stateOf(b1, id)).toBe('quarantined');
});

test('machines: an idle fleet sends no beats', async () => {
  const { fleet, a, workers, heard } = await openStage();
  addMembers(a.primary, 1, 600_000);
  await settled();
  use(workers[0]);
  await heard();
  await heard();
  const armed = fleet.clock.armedCount;
  fleet.clock.advance(10 * BEAT_MS);
  expect(fleet.clock.armedCount).toBe(armed);
});
