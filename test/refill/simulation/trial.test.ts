import { expect, test } from 'vitest';
import { HOUR_MS } from '../../../src/core/duration.ts';
import { rateInHours } from '../../../src/refill/simulation/clients.ts';
import { calmTrial } from './calm-trial.ts';
import { randomTrial } from './random-trial.ts';
import { runTrial } from './trial.ts';

/** The seeds. Set for example `SIMULATION_SEEDS=1-500` to run more than usual. */
const [FIRST_SEED = 1, LAST_SEED = 4] = (process.env['SIMULATION_SEEDS'] ?? '1-4').split('-').map(Number);
const SEEDS = Array.from({ length: LAST_SEED - FIRST_SEED + 1 }, (_, index) => FIRST_SEED + index);

test.each(SEEDS)('trial: a day of random failures breaks no invariant (seed %i)', async (seed) => {
  const result = await runTrial(randomTrial(seed, 1));
  expect(result.callCount, 'calls').toBeGreaterThan(0);
  expect(result.violations).toEqual([]);
});

test('trial: the same seed gives the same result', async () => {
  expect(await runTrial(randomTrial(7, 0.25))).toEqual(await runTrial(randomTrial(7, 0.25)));
});

test('trial: a calm day breaks no invariant', async () => {
  const { violations, clients } = await runTrial(calmTrial());
  expect(violations).toEqual([]);
  expect(clients).toMatchObject({ noMember: 0, membersFailed: 0, killed: 0 });
});

test('trial: six hours in which every member is dead cost few calls and few members', async () => {
  const { clients, callCount, drawn } = await runTrial({ ...calmTrial({ deadShare: 1 }), days: 0.25 });
  expect(clients.served).toBe(0);
  // One member per call and a call every two minutes are 180 calls. The pace would allow 2,107.
  expect(callCount).toBeLessThanOrEqual(200);
  expect(drawn).toBeLessThanOrEqual(220);
});

test('trial: a day on which the service repeats the same few members costs few calls', async () => {
  const lifetimeMs = () => [36 * HOUR_MS, 36 * HOUR_MS] as const;
  const { drawn, callCount, clients } = await runTrial(calmTrial({ repeatShare: 1, lifetimeMs }));
  expect(drawn).toBe(1);
  expect(callCount).toBeLessThanOrEqual(740);
  expect(clients.noMember).toBe(0);
});

test('trial: an hour without the service costs only the clients of that hour', async () => {
  const outage = { kind: 'outage', fromMs: 6 * HOUR_MS, toMs: 7 * HOUR_MS } as const;
  const { violations, clients, longestEmptyMs, calls } = await runTrial({
    ...calmTrial({ troubles: [outage] }),
    days: 0.5,
  });
  expect(violations).toEqual([]);
  expect(clients.noMember).toBeGreaterThan(200);
  expect(clients.noMember).toBeLessThan(330);
  expect(longestEmptyMs).toBeLessThan(HOUR_MS + 90_000);
  expect(calls['transport']).toBeLessThanOrEqual(75);
});

test('trial: crashes end the open requests, and the clients after the restart are served', async () => {
  const trial = calmTrial({ crashesPerDay: 24 });
  const { violations, clients } = await runTrial({
    ...trial,
    days: 0.5,
    load: { ...trial.load, ratesByHour: rateInHours(20) },
  });
  expect(violations).toEqual([]);
  expect(clients.killed).toBeGreaterThan(0);
  expect(clients.noMember).toBe(0);
});

test('trial: the checker notices members that are used after they expired', async () => {
  const trial = calmTrial();
  const pool = { ...trial.pool, safetyMarginMs: -30_000 };
  const { violationCount } = await runTrial({ ...trial, days: 0.2, pool });
  expect(violationCount).toBeGreaterThan(0);
});
