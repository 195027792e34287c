/**
 * `node bench/economy/prediction.ts`: compares what `noria simulate` predicts with real runs of ten minutes, ten times
 * faster than real time, in four worlds. A prediction is of a mean, and chance decides about some IPs in each run: so
 * it compares the means over several loads, the same on both sides. `--runs` says over how many (default 8), all at the same time.
 */
import { parseArgs } from 'node:util';
import { seededRandom } from '../../src/core/random.ts';
import { poolSettings, refillSettings } from '../../src/daemon/part-options.ts';
import { MemoryFleet } from '../../src/fleet/memory-fleet.ts';
import { rateInHours } from '../../src/refill/simulation/clients.ts';
import { simulate } from '../../src/refill/simulation/simulate.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { configOf, openNoria } from './subjects.ts';
import { LIFETIME_MS, openWorld, type World } from './world.ts';

const RUN_MS = 600_000;
const DAY_MS = 86_400_000;
/** The clients come when noria has made its first draw. */
const FIRST_AT = 5_000;
/** After this time without clients all members have ended, and noria draws no more. */
const END_MS = 540_000;
const FACTOR = 10;
const APART_MS = 15_000;
/** A real run is one of the many that its load may have; a simulated one costs little, so there are more of them. */
const SIMULATIONS_PER_RUN = 5;

interface Case {
  readonly about: string;
  readonly dead: number;
  readonly replicas: number;
  readonly momentsOf: (seed: number) => readonly number[];
}

const CASES: readonly Case[] = [
  { about: 'perfect', dead: 0, replicas: 1, momentsOf: (seed) => poisson(10, seed) },
  { about: '20 % dead', dead: 0.2, replicas: 1, momentsOf: (seed) => poisson(10, seed) },
  { about: 'bursts', dead: 0, replicas: 1, momentsOf: bursts },
  { about: 'a fleet of two', dead: 0, replicas: 2, momentsOf: (seed) => poisson(20, seed) },
];

/** Requests at random, this many a minute. */
function poisson(perMinute: number, seed: number): number[] {
  const random = seededRandom(seed);
  const moments: number[] = [];
  for (let at = FIRST_AT; at < RUN_MS; at += (-Math.log(1 - random()) * 60_000) / perMinute) moments.push(at);
  return moments;
}

/** Forty requests in two seconds, each second minute. */
function bursts(): number[] {
  return Array.from({ length: 200 }, (_, at) => FIRST_AT + Math.floor(at / 40) * 120_000 + (at % 40) * 50);
}

/** @returns the IPs of the simulation. */
async function predicted({ dead, replicas }: Case, moments: readonly number[], world: World, seed: number) {
  const config = configOf(world, 'demand');
  const { drawn } = await simulate({
    refill: refillSettings(config),
    pool: poolSettings(config),
    waitForMemberMs: config.dial.waitForMemberMs,
    ...{ days: RUN_MS / DAY_MS, seed, replicas },
    load: { ratesByHour: rateInHours(1), tunnelMs: 100, log: { moments, everyMs: DAY_MS } },
    vendor: { dead, slow: 0, early: 0, lifetimeMs: [LIFETIME_MS, LIFETIME_MS] },
  });
  return drawn;
}

/** @returns the IPs of the run. */
async function real({ about, replicas }: Case, moments: readonly number[], world: World): Promise<number> {
  const { clock } = world;
  const startAt = clock.monotonic();
  const elapsedMs = () => clock.monotonic();
  const timekeeper = createTimekeeper(clock, { id: 'economy', elapsedMs, uptimeMs: elapsedMs });
  const fleet = new MemoryFleet('economy', '0', clock, timekeeper);
  const norias = [];
  for (let number = 0; number < replicas; number += 1)
    norias.push(
      await openNoria(world, 'demand', { fleet: replicas > 1 ? fleet.connector(`n${number}`) : undefined }),
    );
  const pages: Promise<boolean>[] = [];
  for (const [at, moment] of moments.entries()) {
    const waitMs = startAt + moment - clock.monotonic();
    if (waitMs > 0) await world.wait(waitMs);
    const noria = norias[at % norias.length];
    if (noria !== undefined) pages.push(noria.page(world.sites.open.url));
  }
  await world.wait(Math.max(0, startAt + RUN_MS - clock.monotonic()) + END_MS);
  const ok = (await Promise.all(pages)).filter((served) => served).length;
  if (ok < pages.length) console.log(`  ${about}: ${pages.length - ok} of ${pages.length} pages failed`);
  const drawn = norias.reduce((sum, noria) => sum + noria.drawn(), 0);
  for (const noria of norias) await noria.close();
  return drawn;
}

/** One load on one world. All simulations come before all runs, so that they take no time of the machine from a run. */
async function comparison(each: Case, seed: number) {
  const { dead, momentsOf } = each;
  const moments = momentsOf(seed);
  const world = await openWorld({ factor: FACTOR, seed, vendor: { dead, slow: 0, early: 0 } });
  const expected: number[] = [];
  for (let more = 0; more < SIMULATIONS_PER_RUN; more += 1)
    expected.push(await predicted(each, moments, world, seed * SIMULATIONS_PER_RUN + more));
  return {
    ...{ about: each.about, expected },
    async run(): Promise<number> {
      // bursts of all runs at the same moment would measure the machine
      await world.wait(seed * APART_MS);
      const found = await real(each, moments, world);
      await world.close();
      return found;
    },
  };
}

const { values } = parseArgs({ options: { runs: { type: 'string', default: '8' } } });
const seeds = Array.from({ length: Number(values.runs) }, (_, at) => at + 1);
const comparisons: Awaited<ReturnType<typeof comparison>>[] = [];
for (const each of CASES) for (const seed of seeds) comparisons.push(await comparison(each, seed));
const results = await Promise.all(
  comparisons.map(async ({ about, expected, run }) => ({ about, expected, found: await run() })),
);
for (const { about } of CASES) {
  const runs = results.filter((one) => one.about === about);
  const expected = runs.flatMap((run) => run.expected);
  const found = runs.map((run) => run.found);
  const error = Math.round((100 * (mean(expected) - mean(found))) / mean(found));
  console.log(`${about.padEnd(16)} predicted ${textOf(expected)}, real ${textOf(found)} IPs: ${error} %`);
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

function textOf(numbers: readonly number[]): string {
  return `${mean(numbers).toFixed(1)} (${Math.min(...numbers)} to ${Math.max(...numbers)})`;
}
