/** What a replica keeps while its real store is lost, and what reaches the store afterwards. */
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import type { RedisSharedPool } from '../../../src/fleet/redis/redis-shared-pool.ts';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import type { Beat, Fact } from '../../../src/fleet/schemas.ts';
import { accept, addMembers, close, type PoolKit } from '../../pool/pool-kit.ts';
import { NO_STORE, openStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { openMachine } from '../machine-kit.ts';
import { acquireAt, viewOf } from '../replica-kit.ts';
import { Recorder, sharedMember, siteBan } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

const LIFE_MS = 600_000;
/** The store loses no answered write when it is killed. */
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];
const QUIET: Beat = { waiting: 0, demand: {}, members: [], sessions: [] };

const usesOf = (member: string, uses: number): Beat => ({
  ...QUIET,
  members: [{ member, uses, openLeases: 0 }],
});
const banned = (number: number): Fact => siteBan({ clock: systemClock }, `host${number}.example`);
const untilLost = (...pools: readonly RedisSharedPool[]) =>
  until('the store is lost', () => pools.every(({ fault }) => fault !== undefined));

describe.skipIf(NO_STORE)('with a store', () => {
  test('redis: uses that replicas count while the store is lost are added when it returns', async () => {
    const store = await openStore({ args: DURABLE });
    const stage = openStoreStage(store);
    const joined = ['a', 'b'].map((name) => ({ pool: stage.connect(name), seen: new Recorder() }));
    const [a, b] = joined as [(typeof joined)[0], (typeof joined)[0]];
    for (const { pool, seen } of joined) await pool.follow(seen);
    a.pool.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01', LIFE_MS) }]);
    a.pool.beat(usesOf('member01', 2));
    const sumIs = (sum: number) =>
      until(`the sum is ${sum}`, () =>
        joined.every(({ seen }) => seen.views.some(({ uses }) => uses['member01'] === sum)),
      );
    await until('the member has arrived', () => b.seen.facts.length > 0);
    await sumIs(2);
    await store.kill();
    await untilLost(a.pool, b.pool);
    a.pool.beat(usesOf('member01', 3));
    a.pool.beat(usesOf('member01', 4));
    b.pool.beat(usesOf('member01', 5));
    await store.start();
    await sumIs(14);
    const late = new Recorder();
    await stage.connect('late').follow(late);
    await until('the state is loaded', () => late.loads.length > 0);
    expect(late.loads[0]?.members).toMatchObject([{ uses: 14 }]);
  });

  test('redis: uses that wait to be sent while the connection ends are sent after the reconnect', async () => {
    const stage = openStoreStage(await openStore());
    const pool = stage.connect('a', { beatEveryMs: LIFE_MS });
    const seen = new Recorder();
    await pool.follow(seen);
    pool.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01', LIFE_MS) }]);
    await until('the log has the member', () => seen.facts.length === 1);
    pool.beat(usesOf('member01', 3));
    pool.reload();
    await until('the uses have arrived', () => seen.views.some(({ uses }) => uses['member01'] === 3));
  });

  test('redis: an emptied store gets the uses of a member back once', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const links = ['a', 'b'].map((name) => stage.connect(name));
    const open = (name: string, shared: RedisSharedPool) =>
      openMachine({ name, clock: stage.clock, shared, workers: 1 });
    const [a, b] = [
      await open('a', links[0] as RedisSharedPool),
      await open('b', links[1] as RedisSharedPool),
    ];
    addMembers(a.primary, 1, LIFE_MS);
    const [id = ''] = a.primary.pool.members().map((member) => member.id);
    const useAt = async ({ workers: [worker] }: typeof a) => {
      if (worker === undefined) throw new TypeError('the machine has no worker');
      await until('the member has arrived', () => viewOf(worker, id) !== undefined);
      const lease = await acquireAt(worker);
      accept(worker, lease);
      close(worker, lease);
    };
    const bothKnow = (uses: number) =>
      until(`both know ${uses} uses`, () =>
        [a.primary, b.primary].every((kit: PoolKit) => viewOf(kit, id)?.uses === uses),
      );
    for (const machine of [a, b, a, b]) await useAt(machine);
    await bothKnow(4);
    await store.command('FLUSHALL');
    const uses = `${fleetKeys(stage.name).instance('city')}:uses`;
    await until('the store has the uses again', async () => (await store.command('HGET', uses, id)) !== null);
    for (const machine of [a, b]) await useAt(machine);
    await bothKnow(6);
    expect(await store.command('HGET', uses, id)).toMatch(/^6 /);
    expect(links.map((link) => link.drawnBy(id))).toEqual(['a', 'a']);
  });

  test('redis: while the store hangs, a replica keeps no facts and no sessions, however many clients it serves', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const pool = stage.connect('a');
    const seen = new Recorder();
    await pool.follow(seen);
    pool.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01', LIFE_MS) }]);
    await until('the log has the member', () => seen.facts.length === 1);
    store.signal('SIGSTOP');
    await until('the store is lost', () => {
      pool.publish([banned(0)]);
      return pool.fault !== undefined;
    });
    const count = 20_000;
    for (let number = 1; number <= count; number += 1) {
      pool.publish([banned(number)]);
      const session = {
        session: `s${number}`,
        uses: 1,
        openLeases: 0,
        usedAt: stage.clock.monotonic(),
        ttlMs: LIFE_MS,
      };
      pool.beat({ ...usesOf('member01', 1), sessions: [session] });
    }
    const before = seen.facts.length;
    store.signal('SIGCONT');
    await until('the uses have arrived', () => seen.views.some(({ uses }) => uses['member01'] === count));
    pool.publish([{ kind: 'session.ended', name: 'last' }]);
    await until('a later fact has arrived', () => seen.facts.at(-1)?.fact.kind === 'session.ended');
    const hosts = seen.facts
      .slice(before)
      .flatMap(({ fact }) => (fact.kind === 'site.banned' ? [fact.site] : []));
    expect(hosts.filter((host) => host !== 'host0.example')).toEqual([]);
    expect(await store.command('KEYS', `${fleetKeys(stage.name).prefix}:s:*`)).toEqual([]);
  });
});
