/**
 * `node bench/economy/prediction.ts`: compares what `noria simulate` predicts with real runs of ten minutes, ten times
 * faster than real time, in four worlds. Prints the IPs of both.
 */

import { seededRandom } from '../../src/core/random.ts';
import { poolSettings, refillSettings } from '../../src/daemon/part-options.ts';
import { MemoryFleet } from '../../src/fleet/memory-fleet.ts';
import type { SimulatedVendor } from '../../src/refill/simulation/options.ts';
import { rateInHours } from '../../src/refill/simulation/options.ts';
import { simulate } from '../../src/refill/simulation/simulate.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { configOf, openNoria } from './subjects.ts';
import { LIFETIME_MS, openWorld, type World } from './world.ts';

const RUN_MS = 600_000;
const DAY_MS = 86_400_000;
/** After this time without clients all members have ended, and noria draws no more. */
const END_MS = 540_000;
const FACTOR = 10;

interface Case {
  readonly about: string;
  readonly dead: number;
  readonly replicas: number;
  readonly moments: readonly number[];
}

const CASES: readonly Case[] = [
  { about: 'perfect', dead: 0, replicas: 1, moments: poisson(10) },
  { about: '20 % dead', dead: 0.2, replicas: 1, moments: poisson(10) },
  { about: 'bursts', dead: 0, replicas: 1, moments: bursts() },
  { about: 'a fleet of two', dead: 0, replicas: 2, moments: poisson(20) },
];

/** Requests at random, this many a minute. */
function poisson(perMinute: number): number[] {
  const random = seededRandom(perMinute);
  const moments: number[] = [];
  for (let at = 0; at < RUN_MS; at += (-Math.log(1 - random()) * 60_000) / perMinute) moments.push(at);
  return moments;
}

/** Forty requests in two seconds, each second minute. */
function bursts(): number[] {
  return Array.from({ length: 200 }, (_, at) => Math.floor(at / 40) * 120_000 + (at % 40) * 50);
}

async function predicted({ dead, replicas, moments }: Case, world: World): Promise<number> {
  const config = configOf(world, 'demand');
  const vendor: SimulatedVendor = { dead, slow: 0, early: 0, lifetimeMs: [LIFETIME_MS, LIFETIME_MS] };
  const load = { ratesByHour: rateInHours(1), tunnelMs: 100, moments } as const;
  const { drawn } = await simulate({
    refill: refillSettings(config),
    pool: poolSettings(config),
    waitForMemberMs: config.dial.waitForMemberMs,
    ...{ days: RUN_MS / DAY_MS, seed: 1, load, vendor, replicas },
  });
  return drawn;
}

async function real({ replicas, moments }: Case, world: World): Promise<number> {
  const { clock } = world;
  const elapsedMs = () => clock.monotonic();
  const timekeeper = createTimekeeper(clock, { id: 'economy', elapsedMs, uptimeMs: elapsedMs });
  const fleet = new MemoryFleet({ name: 'economy', clock, timekeeper, version: '0' });
  const norias = [];
  for (let number = 0; number < replicas; number += 1)
    norias.push(
      await openNoria(world, 'demand', { fleet: replicas > 1 ? fleet.connector(`n${number}`) : undefined }),
    );
  const startAt = clock.monotonic();
  const pages: Promise<boolean>[] = [];
  for (const [at, moment] of moments.entries()) {
    const waitMs = startAt + moment - clock.monotonic();
    if (waitMs > 0) await world.wait(waitMs);
    const noria = norias[at % norias.length];
    if (noria !== undefined) pages.push(noria.page(world.sites.open.url));
  }
  await world.wait(Math.max(0, startAt + RUN_MS - clock.monotonic()) + END_MS);
  const ok = (await Promise.all(pages)).filter((served) => served).length;
  if (ok < pages.length) console.log(`  ${pages.length - ok} of ${pages.length} pages failed`);
  const drawn = norias.reduce((sum, noria) => sum + noria.drawn(), 0);
  for (const noria of norias) await noria.close();
  return drawn;
}

await Promise.all(
  CASES.map(async (each) => {
    const vendor = { dead: each.dead, slow: 0, early: 0 };
    const world = await openWorld({ factor: FACTOR, seed: 1, vendor });
    const [expected, found] = [await predicted(each, world), await real(each, world)];
    const error = Math.round((100 * (expected - found)) / found);
    console.log(`${each.about.padEnd(16)} predicted ${expected}, real ${found} IPs: ${error} %`);
    await world.close();
  }),
);
