/** How many warm connections are opened, and for how long they are kept. */
import { expect, test } from 'vitest';
import { MAX_KEEP_MS, MIN_CLOSING_MEMBERS, OpeningTimes } from '../../src/dialer/source-memory.ts';
import { stockFor, TunnelRate } from '../../src/dialer/warm-connections.ts';
import { ManualClock } from '../support/manual-clock.ts';

/** Returns the rate after `count` tunnels at this interval. */
function rateAt(intervalMs: number, count: number): number {
  const rate = new TunnelRate();
  for (let tunnel = 0; tunnel < count; tunnel += 1) rate.add(tunnel * intervalMs);
  return rate.perMs;
}

test('tunnel rate: a single tunnel is no stream, nor are tunnels ten seconds apart', () => {
  expect([rateAt(0, 1), rateAt(10_000, 20)]).toEqual([0, 0]);
});

test.each([
  [2, 0.5],
  [50, 0.02],
  [1_000, 0.001],
])('tunnel rate: one tunnel every %i ms is a rate of about %f per ms', (intervalMs, expected) => {
  const perMs = rateAt(intervalMs, 20_000 / intervalMs);
  expect(perMs / expected).toBeGreaterThan(0.9);
  expect(perMs / expected).toBeLessThan(1.2);
});

test('tunnel rate: follows a rise within half a second', () => {
  expect(rateAt(2, 250)).toBeGreaterThan(0.25);
});

test.each([
  ['20 a second, 50 ms away', 0.02, 50, 3],
  ['500 a second, 50 ms away', 0.5, 50, 35],
  ['500 a second, 200 ms away', 0.5, 200, 120],
  ['one a second, 50 ms away', 0.001, 50, 1],
  ['one in five seconds', 0.0002, 50, 1],
  ['one in six seconds: most would be closed before their use', 1 / 6_000, 50, 0],
  ['none', 0, 50, 0],
])('warm stock: %s', (_, perMs, openingMs, stock) => {
  expect(stockFor(perMs, openingMs, 10_000)).toBe(stock);
});

test('warm stock: is 0 if members close a connection before its use', () => {
  expect(stockFor(0.001, 50, 1_000)).toBe(0);
  expect(stockFor(0.02, 50, 1_000)).toBe(3);
});

test('opening times: the minimum forgets a member that has left, and ignores the load of this machine', () => {
  const times = new OpeningTimes(ManualClock.dayOld());
  expect(times.averageMs).toBeUndefined();
  times.opened(0.5);
  times.opened(10.5);
  expect(times.averageMs, 'a moving average').toBe(1.5);
  for (let time = 0; time < 400; time += 1) times.opened(50);
  expect([times.averageMs, times.minMs].map((ms) => Math.round(ms ?? 0))).toEqual([50, 50]);
  for (let time = 0; time < 100; time += 1) times.opened(time % 20 === 0 ? 0.5 : 30);
  expect(times.minMs).toBeLessThan(1);
});

test('opening times: several members that close an unused connection teach how long to keep one', () => {
  const clock = ManualClock.dayOld();
  const times = new OpeningTimes(clock);
  for (let member = 1; member < MIN_CLOSING_MEMBERS; member += 1) times.closedUnused(`m${member}`, 2_000);
  times.closedUnused('m1', 100); // one member decides nothing, however often it closes a connection
  expect(times.keepMs).toBe(MAX_KEEP_MS);
  times.closedUnused('m3', 2_000);
  expect(times.keepMs).toBe(1_600);
  clock.advance(10 * 60_000 + 1);
  expect(times.keepMs).toBe(MAX_KEEP_MS);
});
