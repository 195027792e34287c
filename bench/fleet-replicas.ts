/**
 * Replicas of a fleet without listeners, in one process: complete pools that follow a real store. Each message runs one part of the
 * measurement, and the answer is its result.
 */
import { randomUUID } from 'node:crypto';
import { parseConfig } from '../src/config/load.ts';
import { pause, systemClock } from '../src/core/clock.ts';
import { EventBus } from '../src/core/events.ts';
import { systemRandom } from '../src/core/random.ts';
import { createFleet, type Fleet, storeConnector } from '../src/daemon/fleet.ts';
import { fleetInstances, poolSettings } from '../src/daemon/part-options.ts';
import type { DrawnMember } from '../src/pool/drawn-member.ts';
import { isLease } from '../src/pool/lease.ts';
import { Pool } from '../src/pool/pool.ts';
import { until } from '../test/support/until.ts';

export type FleetWork =
  /** Opens this many replicas of a fleet, with `members` in their pool. */
  | {
      readonly kind: 'open';
      readonly storePort: number;
      readonly fleet: string;
      readonly replicas: number;
      readonly members: number;
    }
  /** Uses members for `seconds`, at this rate in all replicas together. */
  | { readonly kind: 'use'; readonly perSecond: number; readonly seconds: number }
  /** Adds a draw to one replica, `count` times, and measures until every other replica can use its members. */
  | { readonly kind: 'draw'; readonly count: number }
  /** Opens new sessions, one after the other. */
  | { readonly kind: 'sessions'; readonly count: number }
  /** Opens this many new sessions on one replica, many at once. */
  | { readonly kind: 'hold'; readonly sessions: number }
  /** Opens one replica of a fleet that has `members`. The latencies are the times until it can use its first member and all. */
  | { readonly kind: 'join'; readonly storePort: number; readonly fleet: string; readonly members: number }
  /** One replica loads all members and its sessions again. */
  | { readonly kind: 'reload' }
  | { readonly kind: 'close' };

export interface FleetWorkResult {
  /** Sorted. Empty for work without latencies. */
  readonly latenciesMs: readonly number[];
  /** Beats that the store answered during the work, and how often a replica lost the store. */
  readonly beats: number;
  readonly losses: number;
  /** Of the process of the replicas, after the work. */
  readonly residentMiB: number;
}

interface OpenReplica {
  readonly pool: Pool;
  readonly bus: EventBus;
  readonly fleet: Fleet;
}

const SOURCE = 'bench';
const LIFE_MS = 3_600_000;
const MEMBERS_PER_DRAW = 5;
/** How often `use` uses members. */
const STEP_MS = 50;

/** Replicas that open at the same time, and facts that one process decodes before its next beats. */
const REPLICAS_AT_ONCE = 25;
const FACTS_AT_ONCE = 20_000;
const MAX_MEMBERS_AT_ONCE = 5_000;
const SESSIONS_AT_ONCE = 200;
const OPEN_TIMEOUT_MS = 120_000;
const MIB = 1_048_576;

let replicas: readonly OpenReplica[] = [];
let drawn = 0;
let requests = 0;
let beats = 0;
let losses = 0;

async function work(order: FleetWork): Promise<readonly number[]> {
  switch (order.kind) {
    case 'open':
      await open(order);
      return [];
    case 'use':
      await use(order);
      return [];
    case 'draw':
      return repeat(order.count, draw);
    case 'sessions':
      return repeat(order.count, () => openSession());
    case 'hold':
      await hold(order.sessions);
      return [];
    case 'join':
      return join(order);
    case 'reload':
      return [await reload()];
    case 'close':
      for (const { fleet } of replicas) await fleet.replica.close();
      for (const { pool } of replicas) pool.close();
      replicas = [];
      return [];
  }
}

async function open({ storePort, fleet, replicas: count, members }: Extract<FleetWork, { kind: 'open' }>) {
  while (replicas.length < count) {
    const first = replicas.length;
    const numbers = Array.from({ length: Math.min(REPLICAS_AT_ONCE, count - first) }, (_, n) => first + n);
    replicas = [
      ...replicas,
      ...(await Promise.all(numbers.map((number) => openReplica(storePort, fleet, `replica-${number}`)))),
    ];
  }
  await until(
    'the replicas see each other',
    () => replicas.every(({ fleet }) => fleet.shared.replicas.length === count),
    OPEN_TIMEOUT_MS,
  );
  const atOnce = Math.min(MAX_MEMBERS_AT_ONCE, Math.ceil(FACTS_AT_ONCE / count));
  for (let added = 0; added < members; ) {
    const next = Math.min(members, added + atOnce);
    replicas[0]?.pool.addMembers(SOURCE, newMembers(next - added));
    added = next;
    const have = () => replicas.every(({ pool }) => readyIn(pool) === added);
    await until('all have the members', have, OPEN_TIMEOUT_MS);
  }
}

const readyIn = (pool: Pool) => pool.counts()[0]?.ready ?? 0;

async function hold(sessions: number): Promise<void> {
  let left = sessions;
  const openSome = async () => {
    for (; left > 0; left -= 1) await openSession(replicas[0]);
  };
  await Promise.all(Array.from({ length: SESSIONS_AT_ONCE }, openSome));
}

async function join({ storePort, fleet, members }: Extract<FleetWork, { kind: 'join' }>): Promise<number[]> {
  const startedAt = systemClock.monotonic();
  const sinceMs = () => systemClock.monotonic() - startedAt;
  const joined = await openReplica(storePort, fleet, 'joined');
  replicas = [joined];
  await until('it has a member', () => readyIn(joined.pool) > 0, OPEN_TIMEOUT_MS);
  const firstMs = sinceMs();
  await until('it has all members', () => readyIn(joined.pool) === members, OPEN_TIMEOUT_MS);
  return [firstMs, sinceMs()];
}

async function reload(): Promise<number> {
  const [holder] = replicas;
  const { promise: loaded, resolve } = Promise.withResolvers<void>();
  holder?.bus.on('fleet.loaded', () => resolve());
  const loadingAt = systemClock.monotonic();
  holder?.fleet.shared.reload();
  await loaded;
  return systemClock.monotonic() - loadingAt;
}

async function openReplica(storePort: number, name: string, replica: string): Promise<OpenReplica> {
  const config = parseConfig(
    `
service: { baseUrl: "http://127.0.0.1:9" }
sources: [{ name: ${SOURCE}, product: short-classic, instance: "202611210001", akey: "0123456789abcdef" }]
fleet: { url: "redis://127.0.0.1:${storePort}", name: ${name}, replica: ${replica} }
`,
    'bench.yaml',
    { env: {} },
  );
  const bus = new EventBus((event, error) => {
    throw new Error(`an observer of ${event} failed`, { cause: error });
  });
  const common = { clock: systemClock, random: systemRandom, bus };
  const pool = new Pool({ ...poolSettings(config), ...common, forecasts: () => [] });
  bus.on('fleet.answered', ({ operation }) => {
    if (operation === 'beat') beats += 1;
  });
  bus.on('fleet.store', ({ up }) => {
    if (!up) losses += 1;
  });
  const [{ key } = { key: '' }] = fleetInstances(config);
  if (config.fleet === undefined) throw new TypeError('the configuration has no fleet');
  const fleet = await createFleet({
    ...common,
    connector: storeConnector(config.fleet),
    restored: undefined,
    pool,
    sources: { keyOf: () => key, sourceOf: () => SOURCE },
    onCommand: () => {},
    onReport: () => {},
    instances: () => fleetInstances(config),
    refuses: () => undefined,
    clients: () => 0,
    refusals: () => [],
    callTimeoutMs: () => config.service.timeoutMs,
  });
  await fleet.replica.open();
  return { pool, bus, fleet };
}

function newMembers(count: number): DrawnMember[] {
  return Array.from({ length: count }, () => {
    drawn += 1;
    const host = `203.${Math.floor(drawn / 62_500) % 250}.${Math.floor(drawn / 250) % 250}.${(drawn % 250) + 1}`;
    return {
      protocol: 'http',
      host,
      port: 8_000,
      endsAt: systemClock.monotonic() + LIFE_MS,
      unproven: false,
    };
  });
}

async function use({ perSecond, seconds }: Extract<FleetWork, { kind: 'use' }>): Promise<void> {
  const startedAt = systemClock.monotonic();
  const elapsed = () => systemClock.monotonic() - startedAt;
  for (let used = 0; elapsed() < 1_000 * seconds; ) {
    for (const due = (perSecond * elapsed()) / 1_000; used < due; used += 1) useMember(used);
    await pause(systemClock, STEP_MS);
  }
}

function useMember(number: number): void {
  const { pool } = replicas[number % replicas.length] as OpenReplica;
  const lease = pool.acquire(request({}));
  if (lease instanceof Promise || !isLease(lease)) throw new Error('no member is usable');
  pool.report({ lease: lease.id, kind: 'accepted', latencyMs: 20 });
  pool.report({ lease: lease.id, kind: 'closed', cut: false, answered: true });
}

function request(routing: { readonly session?: string }) {
  requests += 1;
  return { id: requests, routing, targetHost: 'example.com', avoid: [], waitMs: 0 };
}

/** Resolves when every replica has the members. */
async function draw(): Promise<void> {
  const [first, ...others] = replicas;
  const joined = others.map(({ bus }) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let left = MEMBERS_PER_DRAW;
    const subscription = bus.on('member.joined', () => {
      left -= 1;
      if (left > 0) return;
      subscription[Symbol.dispose]();
      resolve();
    });
    return promise;
  });
  first?.pool.addMembers(SOURCE, newMembers(MEMBERS_PER_DRAW));
  await Promise.all(joined);
}

async function openSession(replica = replicas[requests % replicas.length]): Promise<void> {
  const { fleet, pool } = replica as OpenReplica;
  const lease = await fleet.replica.acquire(request({ session: randomUUID() }));
  if (!isLease(lease)) throw new Error('no member is usable');
  pool.report({ lease: lease.id, kind: 'closed', cut: false, answered: true });
}

async function repeat(count: number, one: () => Promise<void>): Promise<number[]> {
  const latenciesMs: number[] = [];
  for (let left = count; left > 0; left -= 1) {
    const startedAt = systemClock.monotonic();
    await one();
    latenciesMs.push(systemClock.monotonic() - startedAt);
    await pause(systemClock, 5); // so that beats and timers have their turn
  }
  return latenciesMs.sort((a, b) => a - b);
}

process.on('message', (order: FleetWork) => {
  const [beatsBefore, lossesBefore] = [beats, losses];
  void work(order).then((latenciesMs) => {
    const result: FleetWorkResult = {
      latenciesMs,
      beats: beats - beatsBefore,
      losses: losses - lossesBefore,
      residentMiB: process.memoryUsage().rss / MIB,
    };
    process.send?.(result);
  });
});
process.on('disconnect', () => process.exit(0));
