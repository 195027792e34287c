import { expect, test } from 'vitest';
import { advise, formatAdvice } from '../../../src/refill/simulation/advice.ts';
import { rateInHours } from '../../../src/refill/simulation/clients.ts';
import { formatReport } from '../../../src/refill/simulation/report.ts';
import type { SimulationOptions } from '../../../src/refill/simulation/simulate.ts';
import { simulate } from '../../../src/refill/simulation/simulate.ts';
import { calmTrial } from './calm-trial.ts';

const simulateCalm = (changes: Partial<SimulationOptions> = {}) => simulate({ ...calmTrial(), ...changes });
const calm = await simulateCalm();

test('simulation: the same seed gives the same result, another seed another one', async () => {
  expect(await simulateCalm()).toEqual(calm);
  expect((await simulateCalm({ seed: 8 })).clients).not.toEqual(calm.clients);
});

test('simulation: every client is served, only the first one waits, and every member ends used or wasted', () => {
  const { clients, waits, calls, drawn, used, wasted } = calm;
  expect(clients).toMatchObject({ noMember: 0, membersFailed: 0 });
  expect(clients.served).toBeGreaterThan(5_000);
  expect(waits.count).toBeLessThanOrEqual(1);
  expect(Object.keys(calls)).toEqual(['10001']);
  expect(used + wasted).toBe(drawn);
});

test('simulation: clients arrive in the active hours only', async () => {
  const hour = await simulateCalm({ load: { ...calmTrial().load, ratesByHour: rateInHours(5, [8, 9]) } });
  expect(calm.clients.served / hour.clients.served).toBeGreaterThan(18);
  expect(calm.clients.served / hour.clients.served).toBeLessThan(32);
});

test('simulation: a burst of an hour brings its requests and no more members than its size', async () => {
  const quiet = thrifty(1, { days: 1 });
  const ratesByHour = rateInHours(1).fill(120, 9, 10);
  const even = await simulate(quiet);
  const burst = await simulate({ ...quiet, load: { ...quiet.load, ratesByHour } });
  const extra = burst.clients.served - even.clients.served;
  expect(extra / (119 * 60)).toBeGreaterThan(0.95);
  expect(extra / (119 * 60)).toBeLessThan(1.05);
  expect(burst.clients.noMember).toBe(0);
  // members live three minutes: an hour at the full size takes 20 members 20 times
  expect(burst.drawn - even.drawn).toBeGreaterThan(200);
  expect(burst.drawn - even.drawn).toBeLessThan(20 * 20 * 1.2);
});

test('simulation: a day without clients costs one call', async () => {
  const load = { ratesByHour: rateInHours(1e-9), tunnelMs: 1 } as const;
  const { calls, drawn } = await simulateCalm({ load });
  expect(calls).toEqual({ 10001: 1 });
  expect(drawn).toBe(5);
});

test('simulation: the report lists the figures', () => {
  expect(formatReport(calm).split('\n')).toEqual([
    expect.stringMatching(/^simulated +1 day, seed 1$/),
    expect.stringMatching(/^calls +\d+ \(\d+ a day\): 10001 \d+$/),
    expect.stringMatching(/^members drawn +\d+ \(\d+ a day\)$/),
    expect.stringMatching(/^ {2}used +\d+ \([\d.]+ %\)$/),
    expect.stringMatching(/^ {2}wasted +\d+ \([\d.]+ %\): never used$/),
    expect.stringMatching(/^client requests +\d+, [\d.]+ per drawn member$/),
    expect.stringMatching(/^ {2}served +\d+ \(100 %\)$/),
    expect.stringMatching(/^ {2}no member in time +0$/),
    expect.stringMatching(/^ {2}members failed +0$/),
    expect.stringMatching(/^ {2}until a member accepted +p50 [\d.]+ s, p99 [\d.]+ s$/),
    expect.stringMatching(/^requests that waited +/),
    expect.stringMatching(/^longest time without a member +/),
  ]);
});

const PERFECT = { dead: 0, slow: 0, early: 0, lifetimeMs: [180_000, 180_000] } as const;
const HOUR = 1 / 24;

/** An hour with `fill: demand`, at most 20 members that live three minutes. */
function thrifty(requestsPerMinute: number, changes: Partial<SimulationOptions> = {}): SimulationOptions {
  const calm = calmTrial();
  const load = { ...calm.load, ratesByHour: rateInHours(requestsPerMinute) };
  const size = 20;
  return {
    ...calm,
    refill: { ...calm.refill, fill: 'demand', sources: calm.refill.sources.map((one) => ({ ...one, size })) },
    pool: { ...calm.pool, sources: calm.pool.sources.map((one) => ({ ...one, size })) },
    ...{ days: HOUR, load, vendor: PERFECT },
    ...changes,
  };
}

test('simulation: with fill demand the IPs follow the requests, and with fill size they do not', async () => {
  const [slow, medium, busy] = await Promise.all([1, 10, 600].map((rate) => simulate(thrifty(rate))));
  expect(slow?.drawn).toBeLessThanOrEqual(25);
  expect(medium?.drawn).toBeLessThanOrEqual(200);
  expect(busy?.drawn).toBeGreaterThan(360);
  for (const report of [slow, medium, busy]) {
    expect(report?.clients).toMatchObject({ noMember: 0, membersFailed: 0 });
    expect(report?.delay.p99Ms).toBeLessThan(1_500);
  }
  const refill = { ...thrifty(1).refill, fill: 'size' as const };
  expect((await simulate(thrifty(1, { refill }))).drawn).toBeGreaterThan(300);
});

test('simulation: dead, slow and early-dying IPs cost members and waits', async () => {
  const vendor = { ...PERFECT, dead: 0.2, slow: 0.3, early: 0.2 };
  const [good, bad] = await Promise.all([simulate(thrifty(30)), simulate(thrifty(30, { vendor }))]);
  expect(bad.drawn).toBeGreaterThan(good.drawn * 1.2);
  expect(bad.delay.p99Ms).toBeGreaterThan(good.delay.p99Ms + 1_500);
});

test('simulation: two norias of a fleet need about the members of one', async () => {
  const [one, two] = await Promise.all([simulate(thrifty(20)), simulate(thrifty(20, { replicas: 2 }))]);
  expect(two.clients.served).toBeGreaterThan(one.clients.served * 0.9);
  expect(two.drawn / one.drawn).toBeLessThan(1.3);
  expect(two.drawn / one.drawn).toBeGreaterThan(0.7);
});

test('simulation: a log comes again after its period, and all replicas together have its requests', async () => {
  const { load } = thrifty(1);
  const moments = Array.from({ length: 41 }, (_, at) => at * 50 + 1_000);
  const bursts = await simulate(thrifty(1, { load: { ...load, log: { moments, everyMs: 120_000 } } }));
  expect(bursts.clients.served).toBe(41 * 30);
  const one = { ...load, log: { moments: [1_000], everyMs: 60_000 } };
  const shared = await simulate(thrifty(30, { load: one, replicas: 2 }));
  expect(shared.clients.served).toBe(60);
});

test('simulation: sessions keep members, and a site that bans costs exits', async () => {
  const { load } = thrifty(1);
  const sessions = { count: 6, lengthMs: 60_000 };
  const withSessions = await simulate(
    thrifty(1, { load: { ...load, ratesByHour: rateInHours(12), sessions } }),
  );
  expect(withSessions.drawn).toBeGreaterThan((await simulate(thrifty(12))).drawn * 0.7);
  const banned = await simulate(
    thrifty(1, { load: { ...load, ratesByHour: rateInHours(12), pagesPerExit: 1 } }),
  );
  expect(banned.drawn).toBeGreaterThan((await simulate(thrifty(12))).drawn);
});

test('simulation: the cost counts what each drawn IP costs', async () => {
  const { drawn, days, costPerDay } = await simulate(thrifty(4, { prices: new Map([['city', 0.5]]) }));
  expect(costPerDay).toBeCloseTo((drawn * 0.5) / days);
  expect((await simulate(thrifty(4))).costPerDay).toBeNull();
});

test('advice: it names the cheapest settings that serve the load, and none that serves it worse', async () => {
  const refill = { ...thrifty(1).refill, fill: 'size' as const };
  const advice = await advise(thrifty(1, { refill }), []);
  expect(advice.now.drawnPerDay).toBeGreaterThan(5_000);
  const [cheapest] = advice.best;
  expect(cheapest?.drawnPerDay).toBeLessThan(1_000);
  for (const { p99Ms, failedShare } of advice.best) {
    expect(p99Ms).toBeLessThanOrEqual(Math.max(1_500, advice.now.p99Ms));
    expect(failedShare).toBe(0);
  }
  expect(formatAdvice(advice)).toMatch(
    /^advice: these settings serve the load at the least cost\n {6}fill: \w+, size: \d+, count: \d+, timespan: 3: \d+ IPs a day, p99 [\d.]+ s\n/,
  );
});
