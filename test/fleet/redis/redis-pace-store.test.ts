import { beforeEach, expect, test } from 'vitest';
import { systemBoot, systemClock } from '../../../src/core/clock.ts';
import { RedisPaceStore } from '../../../src/fleet/redis/pace-store.ts';
import type { FleetStore } from '../../../src/fleet/redis/store.ts';
import {
  type Claim,
  claimCall,
  PERMIT_VALID_MS,
  type Turn,
  waitBefore,
} from '../../../src/refill/pace-rule.ts';
import { createTimekeeper } from '../../../src/state/moment.ts';
import type { PaceEntry } from '../../../src/state/pace-file.ts';
import { openCuttingProxy } from '../../support/cutting-proxy.ts';
import { NO_STORE, openStore, type TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { openStoreStage, type StoreStage } from './store-stage.ts';

const RULE = { intervalMs: 10_000, callTimeoutMs: 5_000 };
const { stopwatch } = createTimekeeper(systemClock, systemBoot());

let server: TestStore;
let stage: StoreStage;
if (!NO_STORE) {
  beforeEach(async () => {
    server = await openStore();
    stage = openStoreStage(server);
  });
}

interface Opened {
  readonly store: FleetStore;
  readonly pace: RedisPaceStore;
}

async function open(
  port?: number,
  log?: ConstructorParameters<typeof RedisPaceStore>[0]['log'],
): Promise<Opened> {
  const store = stage.store(port === undefined ? {} : { address: server.address(port) });
  const options = { store, clock: systemClock, stopwatch, callTimeoutMs: () => RULE.callTimeoutMs };
  await untilConnected(store);
  return { store, pace: new RedisPaceStore(log === undefined ? options : { ...options, log }) };
}

const untilConnected = (store: FleetStore) =>
  until('it is connected', () => store.connection.fault === undefined);

/** Opens a replica as if the fleet had been running for some time. */
async function openOld(port?: number): Promise<Opened> {
  const opened = await open(port);
  await server.command('HSET', opened.store.keys.epoch, 'openAt', '0');
  return opened;
}

const turn = (id: string): Turn => ({ id, rule: RULE });
const claim = ({ pace }: Opened, id: string, key = 'city'): Promise<Claim> =>
  pace.change(key, (entry, now) => claimCall(entry, now, turn(id)));
/** Returns the ms until the next call of the instance. */
const waitMs = ({ pace }: Opened, key = 'city') =>
  pace.change(key, (entry, now) => ({ result: entry === undefined ? 0 : waitBefore(entry, now, RULE) }));
const entryOf = ({ pace }: Opened, key = 'city') =>
  pace.change(key, (entry): { result: PaceEntry | undefined } => ({ result: entry }));

test.skipIf(NO_STORE)('redis pace: of replicas that claim at once, one gets the call', async () => {
  const replicas = await Promise.all(Array.from({ length: 8 }, () => openOld()));
  const claims = await Promise.all(replicas.map((replica, index) => claim(replica, `turn ${index}`)));
  expect(claims.filter(({ granted }) => granted)).toHaveLength(1);
  expect((await entryOf(replicas[0] as Opened))?.call?.fate).toBe('pending');
});

test.skipIf(NO_STORE)('redis pace: each instance has its own entry, and reading writes nothing', async () => {
  const replica = await openOld();
  expect((await claim(replica, 'one', 'city')).granted).toBe(true);
  const before = await server.command('HGETALL', replica.store.keys.pace('city'));
  expect(await entryOf(replica, 'harbor')).toBeUndefined();
  expect(await server.command('HGETALL', replica.store.keys.pace('city'))).toEqual(before);
  expect((await claim(replica, 'two', 'harbor')).granted).toBe(true);
});

test.skipIf(NO_STORE)('redis pace: concurrent changes of one entry are all kept', async () => {
  const replicas = await Promise.all([openOld(), openOld(), openOld()]);
  const enter = ({ pace }: Opened, id: string) =>
    pace.change('city', (entry, now) => {
      const queue = [...(entry?.queue ?? []), { id, intervalMs: 1, renewedAt: now, validMs: 60_000 }];
      return { newEntry: { ...entry, queue }, result: undefined };
    });
  await Promise.all(
    replicas.flatMap((replica, index) => [1, 2, 3, 4].map((n) => enter(replica, `${index} ${n}`))),
  );
  expect((await entryOf(replicas[0] as Opened))?.queue).toHaveLength(12);
});

test.skipIf(NO_STORE)('redis pace: a claim waits until its replica has applied the whole log', async () => {
  let position = 0;
  const asked: number[] = [];
  const log = {
    position: () => position,
    flushed: async () => {},
    catchUp: async (_: string, number: number) => {
      asked.push(number);
      position = number;
    },
  };
  const replica = await open(undefined, log);
  const { keys } = replica.store;
  await server.command('HSET', keys.epoch, 'openAt', '0');
  const data = await server.command('HGET', keys.epoch, 'data');
  await server.command('HSET', `${keys.instance('city')}:state`, 'number', '5', 'data', String(data));
  expect((await claim(replica, 'one')).granted).toBe(true);
  expect(asked).toEqual([5]);
});

test.skipIf(NO_STORE)('redis pace: the scripts are sent again after SCRIPT FLUSH', async () => {
  const replica = await openOld();
  await server.command('SCRIPT', 'FLUSH');
  expect((await claim(replica, 'one')).granted).toBe(true);
});

test.skipIf(NO_STORE)('redis pace: a new fleet opens within 3 s, and no claim is earlier', async () => {
  const replica = await open();
  const before = Number(await server.command('HGET', replica.store.keys.epoch, 'openAt'));
  expect(before - replica.store.clock.atLeast()).toBeLessThan(3_000);
  expect((await claim(replica, 'one')).granted).toBe(true);
  expect((await entryOf(replica))?.call?.claimedAt.wallAt).toBeGreaterThanOrEqual(before);
});

/** The minimum wait after a claim may have been lost: the longest call, then one interval. */
const FULL_WAIT_MS = PERMIT_VALID_MS + RULE.callTimeoutMs + RULE.intervalMs;
/** The store counts some of its times in whole seconds. */
const ROUNDING_MS = 2_000;

/** Causes a fault. @returns a function that says how long calls must still wait, at least. */
async function leastWaitAfter(fault: () => Promise<unknown>): Promise<() => number> {
  const startedAt = systemClock.monotonic();
  await fault();
  return () => FULL_WAIT_MS - ROUNDING_MS - (systemClock.monotonic() - startedAt);
}

test.skipIf(NO_STORE)(
  'redis pace: after a restart of the store, every instance waits as long as a lost claim may still be in use',
  async () => {
    await server.kill();
    server = await openStore({ args: ['--appendonly', 'yes'] });
    stage = openStoreStage(server);
    const replica = await openOld();
    await claim(replica, 'one', 'harbor');
    await server.kill();
    const leastWaitMs = await leastWaitAfter(() => server.start());
    await untilConnected(replica.store);
    for (const key of ['city', 'harbor']) {
      const ms = await waitMs(replica, key);
      expect(ms).toBeGreaterThan(leastWaitMs());
      expect(ms).toBeLessThan(FULL_WAIT_MS + 1_000);
    }
  },
);

test.skipIf(NO_STORE)(
  'redis pace: after a restart of the store, a replica that has just started waits, too',
  async () => {
    await server.kill();
    server = await openStore({ args: ['--appendonly', 'yes'] });
    stage = openStoreStage(server);
    const first = await openOld();
    await claim(first, 'one', 'harbor');
    await first.store.close();
    await server.kill();
    const leastWaitMs = await leastWaitAfter(() => server.start());
    const ms = await waitMs(await open());
    expect(ms).toBeGreaterThan(leastWaitMs());
  },
);

test.skipIf(NO_STORE)(
  'redis pace: an emptied store waits for lost claims when one replica remembers it',
  async () => {
    const old = await openOld();
    await claim(old, 'one');
    await server.command('FLUSHALL');
    const fresh = await open();
    // The old replica has not contacted the emptied store yet. When it contacts the store, all replicas must wait, although the
    // new replica knows nothing of a claim.
    await entryOf(old).catch(() => {});
    await untilConnected(old.store);
    expect(await waitMs(fresh)).toBeGreaterThan(RULE.intervalMs);
    expect((await claim(fresh, 'two')).granted).toBe(false);
  },
);

test.skipIf(NO_STORE)(
  'redis pace: a store that was emptied by FLUSHALL waits for lost claims, although no noria remembers it',
  async () => {
    const old = await openOld();
    await claim(old, 'one');
    await old.store.close();
    const leastWaitMs = await leastWaitAfter(() => server.command('FLUSHALL'));
    const fresh = await open();
    expect(await waitMs(fresh)).toBeGreaterThan(leastWaitMs());
    expect((await claim(fresh, 'two')).granted).toBe(false);
  },
);

test.skipIf(NO_STORE)(
  'redis pace: a store that was restarted empty waits for lost claims when a noria that starts remembers it',
  async () => {
    const old = await openOld();
    await claim(old, 'one');
    const rememberedEpoch = old.store.epochId;
    await old.store.close();
    await server.kill();
    const leastWaitMs = await leastWaitAfter(() => server.start({ empty: true }));
    const store = stage.store({ rememberedEpoch });
    await untilConnected(store);
    const pace = new RedisPaceStore({
      store,
      clock: systemClock,
      stopwatch,
      callTimeoutMs: () => RULE.callTimeoutMs,
    });
    expect(await waitMs({ store, pace })).toBeGreaterThan(leastWaitMs());
  },
);

test.skipIf(NO_STORE)('redis pace: a store whose clock was set forward grants no early claim', async () => {
  const replica = await openOld();
  await claim(replica, 'one');
  const { pace, store } = replica;
  const key = store.keys.pace('city');
  const entry = String(await server.command('HGET', key, 'entry'));
  // Simulates that the store's clock was set forward by an hour: sets back, by an hour, the time that the replica remembers and
  // the moments of the entry.
  store.clock.record(Date.now() - 3_600_000, store.clock.elapsed());
  const hourAgo = entry.replace(
    /"(wallAt|elapsedMs)":(\d+)/g,
    (_all, name, at) => `"${name}":${at - 3_600_000}`,
  );
  await server.command('HSET', key, 'entry', hourAgo);
  await entryOf(replica).catch(() => {}); // the replica notices that the clock was set
  await entryOf(replica).catch(() => {}); // the replica reports to the store that the clock was set
  await untilConnected(store);
  expect(await pace.change('city', (found) => ({ result: found?.call?.fate }))).toBe('unanswered');
  expect(await waitMs(replica)).toBeGreaterThan(RULE.intervalMs);
});

test.skipIf(NO_STORE)(
  'redis pace: without its store a change fails at once, and works again when the store is back',
  async () => {
    const proxy = await openCuttingProxy(server.port);
    const replica = await openOld(proxy.port);
    proxy.cut();
    await until('the loss is noticed', () => replica.store.connection.fault !== undefined);
    await expect(claim(replica, 'one')).rejects.toMatchObject({ code: 'fleet-store-lost' });
    proxy.heal();
    await untilConnected(replica.store);
    expect((await claim(replica, 'one')).granted).toBe(true);
  },
);

test.skipIf(NO_STORE)(
  'redis pace: a store that hangs fails the change at its deadline, and its late answers count for nothing',
  async () => {
    const proxy = await openCuttingProxy(server.port);
    const replica = await openOld(proxy.port);
    proxy.stall();
    await expect(claim(replica, 'one')).rejects.toMatchObject({
      code: 'fleet-store-lost',
      message: expect.stringContaining('no answer to EVALSHA within 1000 ms'),
    });
    proxy.heal();
    await untilConnected(replica.store);
    expect((await claim(replica, 'two')).granted).toBe(true);
  },
);
