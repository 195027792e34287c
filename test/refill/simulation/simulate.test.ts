import { expect, test } from 'vitest';
import { formatReport } from '../../../src/refill/simulation/report.ts';
import { simulate } from '../../../src/refill/simulation/simulate.ts';
import type { SimulationOptions } from '../../../src/refill/simulation/world.ts';
import { sourceOptions } from '../rig.ts';
import { randomWorld } from './random-world.ts';

/** `SIMULATION_SEEDS=1-500` looks further than a usual run has time for. */
const [FIRST_SEED = 1, LAST_SEED = 4] = (process.env['SIMULATION_SEEDS'] ?? '1-4').split('-').map(Number);
const SEEDS = Array.from({ length: LAST_SEED - FIRST_SEED + 1 }, (_, index) => FIRST_SEED + index);
const HOUR_MS = 3_600_000;

function calmWorld(changes: Partial<SimulationOptions> = {}): SimulationOptions {
  return {
    days: 1,
    seed: 1,
    refill: { sources: [sourceOptions({ size: 10 })], idleAfterMs: 300_000, callTimeoutMs: 10_000 },
    pool: {
      sources: [{ name: 'city', priority: 1, size: 10, unknownLifetimeMs: 600_000 }],
      rotation: {
        strategy: 'round-robin',
        maxTunnelsPerMember: 0,
        maxUsesPerMember: 0,
        perHostSpacingMs: 0,
        sessionTtlMs: 600_000,
      },
      safetyMarginMs: 3_000,
      minRemainingMs: 10_000,
      health: { maxFailures: 2, quarantineMs: 10_000 },
    },
    waitForMemberMs: 15_000,
    load: { requestsPerMinute: 5, activeHours: [0, 24], tunnelMs: 5_000 },
    ...changes,
  };
}

const callsOf = ({ calls }: { readonly calls: Readonly<Record<string, number>> }) =>
  Object.values(calls).reduce((sum, count) => sum + count, 0);

test.each(SEEDS)('simulation: a day of everything at once breaks no promise (seed %i)', async (seed) => {
  const report = await simulate(randomWorld(seed, 1));
  expect(callsOf(report), 'nothing happened').toBeGreaterThan(0);
  expect(report.violations, formatReport(report)).toEqual([]);
  expect(report.violationCount).toBe(0);
});

test('simulation: the same seed gives the same days, another one others', async () => {
  const first = await simulate(randomWorld(7, 1));
  expect(await simulate(randomWorld(7, 1))).toEqual(first);
  expect((await simulate({ ...randomWorld(7, 1), seed: 8 })).clients).not.toEqual(first.clients);
});

test('simulation: when nothing goes wrong every client is served and nobody waits but the first', async () => {
  const report = await simulate(calmWorld());
  expect(report.clients).toMatchObject({ noMember: 0, membersFailed: 0, killed: 0 });
  expect(report.clients.served).toBeGreaterThan(5_000);
  expect(report.waits.count).toBeLessThanOrEqual(1);
  expect(report.calls).toEqual({ 10001: callsOf(report) });
});

test('simulation: a day without a client costs the few draws of the start', async () => {
  const load = { requestsPerMinute: 1e-9, activeHours: [0, 24], tunnelMs: 1 } as const;
  const report = await simulate(calmWorld({ load }));
  expect(callsOf(report)).toBeLessThanOrEqual(12);
  expect(report.drawn).toBeGreaterThanOrEqual(10);
  expect(report.drawn).toBeLessThanOrEqual(25);
});

test('simulation: a day on which every member is dead costs few calls and few members', async () => {
  const report = await simulate(calmWorld({ world: { deadShare: 1 } }));
  expect(report.clients.served).toBe(0);
  // One a call, every two minutes, once it is clear; 8,429 calls would keep the pace too.
  expect(callsOf(report)).toBeLessThanOrEqual(740);
  expect(report.drawn).toBeLessThanOrEqual(760);
});

test('simulation: a day on which the service gives the same few members again and again costs few calls', async () => {
  const world = { repeatShare: 1, lifetimeMs: () => [36 * HOUR_MS, 36 * HOUR_MS] as const };
  const report = await simulate(calmWorld({ world }));
  expect(report.drawn).toBe(1);
  expect(callsOf(report)).toBeLessThanOrEqual(740);
  expect(report.clients.noMember).toBe(0);
});

test('simulation: an hour without the service costs only the clients of that hour', async () => {
  const outage = { kind: 'outage', fromMs: 6 * HOUR_MS, toMs: 7 * HOUR_MS } as const;
  const report = await simulate(calmWorld({ world: { troubles: [outage] } }));
  expect(report.violations).toEqual([]);
  expect(report.clients.noMember).toBeGreaterThan(200);
  expect(report.clients.noMember).toBeLessThan(330);
  expect(report.longestEmptyMs).toBeLessThan(HOUR_MS + 90_000);
  expect(report.calls['transport']).toBeLessThanOrEqual(75);
});

test('simulation: the judge sees what it is there to see', async () => {
  const broken = await simulate(
    // A pool that keeps its members for half a minute after their end.
    calmWorld({ pool: { ...calmWorld().pool, safetyMarginMs: -30_000 } }),
  );
  expect(broken.violationCount).toBeGreaterThan(0);
  expect(formatReport(broken)).toMatch(/promises were broken/);
});

test('simulation: the report is a page of figures', async () => {
  const report = await simulate(calmWorld());
  expect(formatReport(report).split('\n')).toEqual([
    expect.stringMatching(/^simulated +1 day, seed 1$/),
    expect.stringMatching(/^calls +\d+ \(\d+ a day\): 10001 \d+$/),
    expect.stringMatching(/^members drawn +\d+ \(\d+ a day\)$/),
    expect.stringMatching(/^ {2}used +\d+ \([\d.]+ %\)$/),
    expect.stringMatching(/^ {2}wasted +\d+ \([\d.]+ %\): ended without ever having been used$/),
    expect.stringMatching(/^client requests +\d+, [\d.]+ for each member drawn$/),
    expect.stringMatching(/^ {2}served +\d+ \(100 %\)$/),
    expect.stringMatching(/^ {2}no member in time +0$/),
    expect.stringMatching(/^ {2}members failed +0$/),
    expect.stringMatching(/^waits for a member +/),
    expect.stringMatching(/^longest empty stretch +/),
    '',
    'No call broke the pace, no member was used after its end, nothing was drawn beyond demand.',
  ]);
});
