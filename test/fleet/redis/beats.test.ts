/** What the replicas of a real store know of each other by their beats: names and clients, demand, uses, and sessions in use. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import type { RedisSharedPool } from '../../../src/fleet/redis/redis-shared-pool.ts';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import type { Beat, Fact, SharedSession } from '../../../src/fleet/schemas.ts';
import { NO_DEMAND } from '../../../src/pool/drawn-member.ts';
import { openCuttingProxy } from '../../support/cutting-proxy.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember, timekeeperOf } from '../shared-pool-contract.ts';
import { instance, openStoreStage } from './store-stage.ts';

const LIFE_MS = 600_000;
const QUIET: Beat = { waiting: 0, demand: {}, members: [], sessions: [] };
const usesOf = (uses: Readonly<Record<string, number>>): Beat => ({
  ...QUIET,
  members: Object.entries(uses).map(([member, count]) => ({ member, uses: count, openLeases: 0 })),
});
const idOf = (number: number) => number.toString(36).padStart(8, '0');

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  beforeAll(async () => {
    server = new TestStore(await freePort(), {});
    await server.start();
  });
  afterAll(() => server.close());

  async function openFleet(
    names: readonly string[],
    options: Parameters<ReturnType<typeof openStoreStage>['connect']>[1] = {},
  ) {
    const stage = openStoreStage(server);
    const replicas: { readonly pool: RedisSharedPool; readonly seen: Recorder }[] = [];
    for (const name of names) {
      const pool = stage.connect(name, { beatEveryMs: 20, ...options });
      const seen = new Recorder();
      await pool.follow(seen);
      replicas.push({ pool, seen });
    }
    await until('all know all', () => replicas.every(({ seen }) => seen.replicas.join() === names.join()));
    const joined = (id: string, lifeMs = LIFE_MS): Fact => ({
      kind: 'member.joined',
      member: sharedMember(stage, id, lifeMs),
    });
    return { stage, replicas, joined, keys: fleetKeys(stage.name) };
  }

  type Opened = Awaited<ReturnType<typeof openFleet>>['replicas'][number];
  const usesSeenBy = ({ seen }: Opened) => Object.assign({}, ...seen.views.map(({ uses }) => uses));

  test('beats: the replicas of a fleet are listed by name, with their clients and when they were last seen', async () => {
    const { stage, replicas } = await openFleet(['a', 'b']);
    const counts = { c: 3 };
    const c = stage.connect('c', { beatEveryMs: 20, version: '2.0.0', clients: () => counts.c });
    await c.follow(new Recorder());
    const [a] = replicas as [Opened];
    const listed = () =>
      a.pool.replicas.map(({ name, version, clients }) => `${name} ${version} ${clients}`).join();
    await until('the list is complete', () => listed() === 'a 1.2.3 7,b 1.2.3 7,c 2.0.0 3');
    expect(a.pool.replicas.map(({ lastSeenSeconds }) => lastSeenSeconds)).toEqual([0, 0, 0]);
    counts.c = 4;
    await until('it has the new number', () => listed().endsWith('c 2.0.0 4'));
    const views = a.seen.views.length;
    await c.close();
    await until('it is no longer listed', () => a.seen.replicas.join() === 'a,b');
    expect(a.seen.views.slice(views).every(({ replicas: names }) => !names.includes('d'))).toBe(true);
    expect(listed()).toMatch(/^a 1\.2\.3 7,b 1\.2\.3 7/);
  });

  test('beats: a replica knows the sum of the demand of all others, and when they last wanted members', async () => {
    const { stage, replicas } = await openFleet(['a', 'b', 'c']);
    const [a, b, c] = replicas as [Opened, Opened, Opened];
    expect(a.seen.demand, 'nobody has wanted a member').toEqual({});
    const at = stage.clock.monotonic();
    const demand = (waiting: number, agoMs: number) => ({
      ...{ waiting, stranded: 1, held: 2, usedUpPerSecond: 0.25, perSecond: 1.5, lastWantedAt: at - agoMs },
    });
    a.pool.beat({ ...QUIET, demand: { city: demand(5, 9_000) } });
    b.pool.beat({ ...QUIET, demand: { city: demand(2, 60_000), backup: demand(1, 30_000) } });
    c.pool.beat({ ...QUIET, demand: { city: demand(3, 30_000) } });
    const waitingAt = ({ seen }: Opened) => seen.demand['city']?.waiting;
    await until('all know it', () => [a, b, c].map(waitingAt).join() === '5,8,7');
    await until('both instances', () => a.seen.demand['backup']?.waiting === 1);
    expect(a.seen.demand['city']).toEqual({
      ...{ waiting: 5, stranded: 2, held: 4, usedUpPerSecond: 0.5, perSecond: 3 },
      lastWantedAt: expect.closeTo(at - 9_000, -3),
    });
    const first = a.seen.demand['city']?.lastWantedAt;
    b.pool.beat({ ...QUIET, demand: { city: { ...NO_DEMAND, lastWantedAt: at - 60_000 } } });
    await until('it has sunk', () => waitingAt(a) === 3);
    expect(a.seen.demand['city']).toMatchObject({ held: 2, perSecond: 1.5 });
    expect(a.seen.demand['city']?.lastWantedAt, 'the same moment is converted once').toBe(first);
    await b.pool.close();
    c.pool.beat({ ...QUIET, demand: { city: { ...NO_DEMAND, lastWantedAt: at } } });
    await until('nobody waits there', () => waitingAt(a) === 0 && waitingAt(c) === 5);
    expect(a.seen.demand['city']?.lastWantedAt).toBeGreaterThan(first ?? Infinity);
  });

  test('beats: what a store makes of the sums is never less than nothing, and no wish is in the future', async () => {
    const { stage, replicas, keys } = await openFleet(['a']);
    const [a] = replicas as [Opened];
    const state = `${keys.instance('city')}:state`;
    await server.command('HSET', state, 'demand1', '-5', 'demand2', 'x', 'demand3', '2', 'wanted', '9e15');
    await until('it is read', () => a.seen.demand['city']?.held === 2);
    expect(a.seen.demand['city']).toMatchObject({
      waiting: 0,
      stranded: 0,
      usedUpPerSecond: 0,
      perSecond: 0,
    });
    expect(a.seen.demand['city']?.lastWantedAt).toBeLessThanOrEqual(stage.clock.monotonic());
  });

  test('beats: uses of more members than one script takes all arrive, and those of a member that nobody knows do not', async () => {
    const { stage, replicas, joined } = await openFleet(['a', 'b']);
    const [a, b] = replicas as [Opened, Opened];
    const ids = Array.from({ length: 510 }, (_, number) => idOf(number));
    a.pool.publish(ids.map((id) => joined(id)));
    // after a loss of the store, as on a busy machine, members come with the state
    const known = () => [
      ...a.seen.facts.flatMap(({ fact }) => (fact.kind === 'member.joined' ? [fact.member.id] : [])),
      ...a.seen.loads.flatMap(({ members }) => members.map(({ member }) => member.id)),
    ];
    await until(
      () => `all members have come: ${known().length}; ${stage.lost}`,
      () => new Set(known()).size === ids.length,
    );
    a.pool.beat(usesOf(Object.fromEntries(ids.map((id, number) => [id, number % 7]))));
    a.pool.beat(usesOf({ [idOf(0)]: 2, [idOf(1)]: 3, nobody01: 9 }));
    const expected = Object.fromEntries(ids.map((id, number) => [id, number % 7]));
    Object.assign(expected, { [idOf(0)]: 2, [idOf(1)]: 4 });
    const knows = (kit: Opened) => {
      const seen = usesSeenBy(kit);
      return Object.entries(expected).every(([id, uses]) => (seen[id] ?? 0) === uses);
    };
    for (const kit of [a, b]) await until('all uses are known', () => knows(kit));
    expect(usesSeenBy(b)).not.toHaveProperty('nobody01');
  });

  test('beats: uses that come before their member count once it is there, and are forgotten if it does not come', async () => {
    const { stage, replicas, joined, keys } = await openFleet(['a', 'b']);
    const [a, b] = replicas as [Opened, Opened];
    a.pool.beat(usesOf({ nobody01: 5 }));
    a.pool.publish([joined('member01')]);
    await until('the member has come', () => a.seen.facts.length === 1);
    const before = a.seen.views.length;
    await until('some beats have passed', () => a.seen.views.length > before + 3);
    a.pool.publish([joined('nobody01')]);
    await until('it has come now', () => b.seen.facts.length === 2);
    a.pool.beat(usesOf({ member01: 1 }));
    await until('a later use is known', () => usesSeenBy(b)['member01'] === 1);
    expect(usesSeenBy(b)).toEqual({ member01: 1 });
    expect(await server.command('HGET', `${keys.instance('city')}:uses`, 'nobody01')).toBeNull();
    expect(stage.lost).toEqual([]);
  });

  test('beats: what a replica counts without its store is sent when it is back, but for sessions', async () => {
    const stage = openStoreStage(server);
    const proxy = await openCuttingProxy(server.port);
    const pool = stage.connect('a', { address: server.address(proxy.port), beatEveryMs: 20 });
    const seen = new Recorder();
    await pool.follow(seen);
    const session: SharedSession = {
      ...{ name: 's1', owner: { user: '', address: '' }, member: 'member01', ttlMs: LIFE_MS, uses: 0 },
      usedAt: stage.clock.monotonic(),
    };
    await pool.bindSession(session, undefined);
    pool.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01', LIFE_MS) }]);
    await until('the member has come', () => seen.facts.length === 1);
    proxy.cut();
    await until('the store is lost', () => pool.fault !== undefined);
    expect(pool.lostMs).toBeGreaterThanOrEqual(0);
    const used = { session: 's1', uses: 5, openLeases: 0, usedAt: stage.clock.monotonic(), ttlMs: LIFE_MS };
    pool.beat({ ...usesOf({ member01: 3 }), sessions: [used] });
    pool.beat({
      ...usesOf({ member01: 4 }),
      demand: { city: { ...NO_DEMAND, waiting: 2, lastWantedAt: stage.clock.monotonic() } },
    });
    proxy.heal();
    await until('the sum is known', () => seen.views.some(({ uses }) => uses['member01'] === 7));
    expect(pool.lostMs).toBe(0);
    const other = new Recorder();
    await stage.connect('b', { beatEveryMs: 20 }).follow(other);
    await until('the demand is known', () => other.demand['city']?.waiting === 2);
    expect(await pool.findSession('s1')).toMatchObject({ uses: 0 });
    pool.beat({ ...QUIET, sessions: [{ ...used, uses: 2 }] });
    const uses = async () => (await pool.findSession('s1'))?.uses;
    await until('later uses count', async () => (await uses()) === 2);
  });

  test('beats: a session in use lives on, with the last use of any replica', async () => {
    const { stage, replicas } = await openFleet(['a', 'b']);
    const [a, b] = replicas as [Opened, Opened];
    const now = stage.clock.monotonic();
    const names = Array.from({ length: 510 }, (_, number) => `s${number}`);
    const session = (name: string): SharedSession => ({
      ...{
        name,
        owner: { user: '', address: '' },
        member: 'member01',
        ttlMs: 3_600_000,
        usedAt: now,
        uses: 1,
      },
    });
    await Promise.all(names.map((name) => a.pool.bindSession(session(name), undefined)));
    const use = (pool: RedisSharedPool, uses: number, laterMs: number) =>
      pool.beat({
        ...QUIET,
        sessions: names.map((name) => {
          return { session: name, uses, openLeases: 0, usedAt: now + laterMs, ttlMs: 5_400_000 };
        }),
      });
    const found = async (name: string) => b.pool.findSession(name);
    let sentAfter = -1;
    let last: number | undefined;
    /** Uses of a beat that the store did not answer, as on a busy machine, are not sent again. */
    const hasAll = async (name: string) => {
      const isOpen = a.pool.fault === undefined && b.pool.fault === undefined;
      if (isOpen && stage.lost.length > sentAfter) {
        sentAfter = stage.lost.length;
        use(a.pool, 2, 20_000);
        use(b.pool, 3, 10_000);
      }
      last = (await found(name))?.uses;
      return last === 6 || (sentAfter > 0 && Number(last) > 6);
    };
    for (const name of ['s0', 's509']) {
      await until(
        () => `both have sent it: ${last}; ${stage.lost}`,
        () => hasAll(name),
      );
      expect(await found(name)).toMatchObject({
        ttlMs: 5_400_000,
        usedAt: expect.closeTo(now + 20_000, -3),
      });
    }
  });

  test('beats: noria check compares this noria with the others, but not with itself', async () => {
    const { stage } = await openFleet(['a', 'b'], {
      instances: () => [{ ...instance('city'), settings: { intervalMs: 5_000, size: 10, params: '' } }],
    });
    const check = async (replica?: string) => {
      const own = { replica, instances: [instance('city')], refuses: () => undefined };
      const timekeeper = timekeeperOf(stage.clock);
      const report = await inspectStore(server.address(), stage.name, stage.clock, { ...own, timekeeper });
      expect(report.errors).toEqual([]);
      return report.warnings.filter((warning) => warning.includes('interval 5000'));
    };
    expect(await check()).toHaveLength(2);
    expect(await check('a')).toEqual([
      'noria b has interval 5000 ms instead of 1000 ms for the instance city; give all norias of the fleet the same configuration',
    ]);
  });

  test('beats: a replica that is closed sends nothing more, and its waits end', async () => {
    const { stage, replicas, joined } = await openFleet(['a', 'b']);
    const [a, b] = replicas as [Opened, Opened];
    await a.pool.close();
    await until('it has left the list at once', () => b.seen.replicas.join() === 'b');
    a.pool.publish([joined('member01')]);
    a.pool.beat(usesOf({ member01: 1 }));
    expect(await a.pool.findSession('s1')).toBeUndefined();
    b.pool.publish([joined('member02')]);
    await until('later facts come', () => b.seen.facts.length === 1);
    expect(b.seen.facts).toMatchObject([{ fact: { member: { id: 'member02' } } }]);
    expect(a.pool.fault?.message).toContain('noria closed the connection');
    expect(stage.lost).toEqual([]);
  });
});
