/**
 * Measures the cost of a pick, for each strategy and pool size: a lease is acquired, accepted and closed.
 * `npm run bench` includes the figures of the default strategy for three sizes.
 *
 *   node bench/pick.ts
 *
 * Prints ns per cycle. The cost must grow at most with the logarithm of the number of members; beyond that it grows by
 * cache misses. For comparison, the last line shows a loop over as many numbers.
 */

import { systemClock } from '../src/core/clock.ts';
import { EventBus } from '../src/core/events.ts';
import { systemRandom } from '../src/core/random.ts';
import type { DrawnMember } from '../src/pool/drawn-member.ts';
import { isLease, type RoutingOptions } from '../src/pool/lease.ts';
import { type PoolSettings, STRATEGIES, type Strategy } from '../src/pool/options.ts';
import { Pool } from '../src/pool/pool.ts';
import { CITY, poolSettings } from '../test/support/pool-settings.ts';
import type { Bench } from './bench.ts';

const SIZES = [10, 40, 1_000, 100_000];
/** The best run counts, because other programs on the machine disturb some runs. */
const RUNS = 6;
/** The cycles of a run. Together, the runs use every member of the largest pool. */
const CYCLES = 20_000;
const LIFE_MS = 3_600_000;
const NS_PER_US = 1_000;
const NS_PER_MS = 1e6;

/** Adds the figures of the default strategy to the report. */
export function measurePicks({ report }: Bench): void {
  for (const size of [10, 1_000, 100_000]) {
    const pool = filledPool(size);
    const noria = measure(pool, {}) / NS_PER_US;
    pool.close();
    const scenario = `pick and release, ${size.toLocaleString('en')} members`;
    report.add({ scenario, unit: 'µs', noria, limit: { most: 25 } });
  }
}

function main(): void {
  const pools = SIZES.map(filledPool);
  console.log('ns to acquire, accept and close'.padEnd(40) + SIZES.map(column).join(''));
  for (const strategy of STRATEGIES) {
    for (const pool of pools) pool.reconfigure(settingsOf(strategy));
    print(strategy, pools, {});
  }
  for (const pool of pools) pool.reconfigure(settingsOf('round-robin'));
  print('round-robin, one location of ten', pools, { location: 'City 3' });
  print('round-robin, a life that half have', pools, { minLifeMs: 1.5 * LIFE_MS });
  print('one session', pools, { session: 'bench' });
  console.log('a loop over as many numbers'.padEnd(40) + SIZES.map((size) => column(loop(size))).join(''));
  for (const pool of pools) pool.close();
}

function print(name: string, pools: readonly Pool[], routing: RoutingOptions): void {
  console.log(name.padEnd(40) + pools.map((pool) => column(measure(pool, routing))).join(''));
}

function measure(pool: Pool, routing: RoutingOptions): number {
  return Math.min(...Array.from({ length: RUNS }, () => run(pool, routing)));
}

/** Returns the ns per cycle. */
function run(pool: Pool, routing: RoutingOptions): number {
  const startAt = systemClock.monotonic();
  for (let cycle = 0; cycle < CYCLES; cycle += 1) {
    const lease = pool.acquire({ id: 0, routing, targetHost: 'example.com', avoid: [], waitMs: 0 });
    if (lease instanceof Promise || !isLease(lease)) throw new Error('a full pool granted no lease');
    pool.report({ lease: lease.id, kind: 'accepted', latencyMs: 10 });
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
  }
  return ((systemClock.monotonic() - startAt) * NS_PER_MS) / CYCLES;
}

function filledPool(size: number): Pool {
  const pool = new Pool({
    ...settingsOf('round-robin'),
    clock: systemClock,
    random: systemRandom,
    bus: new EventBus((_name, error) => {
      throw error;
    }),
    forecasts: () => [],
  });
  const now = systemClock.monotonic();
  pool.addMembers(
    'city',
    Array.from({ length: size }, (_, number): DrawnMember => {
      return {
        protocol: 'http',
        host: `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`,
        port: 8000,
        endsAt: now + LIFE_MS * (1 + (number % 2)) + number,
        unproven: false,
        location: `City ${number % 10}`,
      };
    }),
  );
  return pool;
}

function settingsOf(strategy: Strategy): PoolSettings {
  return poolSettings({ sources: [{ ...CITY, size: 20 }], rotation: { strategy } });
}

function loop(size: number): number {
  const numbers = Float64Array.from({ length: size }, (_, index) => index);
  const rounds = Math.ceil(2_000_000 / size);
  let least = 0;
  const startAt = systemClock.monotonic();
  for (let round = 0; round < rounds; round += 1) {
    for (const number of numbers) if (number < least) least = number;
  }
  return ((systemClock.monotonic() - startAt) * NS_PER_MS) / rounds;
}

function column(value: number): string {
  return Math.round(value).toLocaleString('en').padStart(12);
}

if (import.meta.main) main();
