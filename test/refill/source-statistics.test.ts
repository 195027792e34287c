import { expect, test } from 'vitest';
import { DAY_MS, HOUR_MS } from '../../src/core/duration.ts';
import {
  DailyBudget,
  readStatistics,
  SourceStatistics,
  serviceDay,
  untilServiceMidnight,
} from '../../src/refill/source-statistics.ts';

const MIDNIGHT_AT = Date.UTC(2030, 0, 1) - 8 * HOUR_MS;
const GAP_MS = 10_250;
const DEAD = { hasFailed: true, isOwn: true };

const fresh = (unproven = false) => new SourceStatistics(MIDNIGHT_AT, undefined, { unproven });

test("daily budget: the service's day begins at midnight in UTC+8", () => {
  expect(serviceDay(MIDNIGHT_AT)).toBe(serviceDay(MIDNIGHT_AT + DAY_MS - 1));
  expect(serviceDay(MIDNIGHT_AT)).toBe(serviceDay(MIDNIGHT_AT - 1) + 1);
  expect(untilServiceMidnight(MIDNIGHT_AT - 1)).toBe(1);
  expect(untilServiceMidnight(MIDNIGHT_AT)).toBe(DAY_MS);
});

test('daily budget: an IP counts once a day, and the next day starts at zero', () => {
  const budget = new DailyBudget(MIDNIGHT_AT);
  budget.add(['a', 'b', 'a'], MIDNIGHT_AT);
  budget.add(['b', 'c'], MIDNIGHT_AT + HOUR_MS);
  expect(budget.used(MIDNIGHT_AT + DAY_MS - 1)).toBe(3);
  expect(budget.used(MIDNIGHT_AT + DAY_MS)).toBe(0);
});

test('daily budget: it survives a restart and a clock that is set back, but not by days', () => {
  const budget = new DailyBudget(MIDNIGHT_AT);
  budget.add(['a'], MIDNIGHT_AT);
  const restored = new DailyBudget(MIDNIGHT_AT, budget.record());
  expect(restored.used(MIDNIGHT_AT - HOUR_MS)).toBe(1);
  expect(restored.used(MIDNIGHT_AT - 3 * DAY_MS)).toBe(0);
  expect(new DailyBudget(MIDNIGHT_AT + DAY_MS, budget.record()).used(MIDNIGHT_AT + DAY_MS)).toBe(0);
});

test('daily budget: the first draw of a day counts only for that day', () => {
  const budget = new DailyBudget(MIDNIGHT_AT);
  budget.add(['a', 'b'], MIDNIGHT_AT);
  budget.add(['c'], MIDNIGHT_AT + DAY_MS);
  expect(budget.used(MIDNIGHT_AT + DAY_MS)).toBe(1);
});

test('draw spacing: fruitless draws are spaced from the third on, up to two minutes', () => {
  const spacing = fresh();
  const waits: number[] = [];
  for (let draw = 0; draw < 8; draw += 1) {
    spacing.recordDraw(0, 1_000, GAP_MS);
    waits.push(Math.max(0, spacing.notBeforeAt(false) - 1_000));
  }
  expect(waits).toEqual([0, 0, 20_500, 41_000, 82_000, 120_000, 120_000, 120_000]);
  expect(spacing.notBeforeAt(true), 'a client waits and nothing is usable').toBe(0);
  spacing.recordDraw(1, 1_000, GAP_MS);
  expect(spacing.notBeforeAt(false)).toBe(0);
  expect(spacing.isPromising).toBe(true);
});

test('draw spacing: ten unused failures in a row cause single, spaced draws until a member is used', () => {
  const spacing = fresh();
  const reports = Array.from({ length: 12 }, () => spacing.recordRemoval(0, DEAD));
  expect(reports.indexOf(true)).toBe(9);
  expect(reports.filter((isNew) => isNew)).toHaveLength(1);
  expect([spacing.isDistrusted, spacing.isPromising]).toEqual([true, false]);
  for (let draw = 0; draw < 6; draw += 1) spacing.recordDraw(1, 0, GAP_MS);
  expect(spacing.notBeforeAt(true)).toBe(120_000);
  spacing.recordUse();
  expect([spacing.isDistrusted, spacing.isPromising, spacing.notBeforeAt(false)]).toEqual([false, true, 0]);
});

test('draw spacing: nine failures are no distrust, ten are, and a use ends only what failures began', () => {
  const spacing = fresh();
  for (let time = 0; time < 9; time += 1) spacing.recordRemoval(0, DEAD);
  expect(spacing.isDistrusted).toBe(false);
  for (let draw = 0; draw < 5; draw += 1) spacing.recordDraw(0, 0, GAP_MS);
  spacing.recordUse();
  expect([spacing.failedInARow, spacing.notBeforeAt(false)], 'draws are still fruitless').toEqual([
    0, 82_000,
  ]);
  for (let time = 0; time < 10; time += 1) spacing.recordRemoval(0, DEAD);
  expect(spacing.isDistrusted).toBe(true);
});

test('draw spacing: of unproven members, a hundred must fail unused before draws are spaced', () => {
  const spacing = fresh(true);
  const reports = Array.from({ length: 100 }, () => spacing.recordRemoval(0, DEAD));
  expect(reports.indexOf(true)).toBe(99);
});

test('source statistics: a snapshot restores them', () => {
  const statistics = fresh();
  expect(statistics.snapshot()).not.toHaveProperty('learnedMost');
  statistics.drawn = 7;
  statistics.used = 1;
  statistics.unused = 1;
  statistics.quota = { remaining: 5 };
  statistics.learnedMax = 2;
  statistics.budget.add(['a'], MIDNIGHT_AT);
  const snapshot = JSON.parse(JSON.stringify(statistics.snapshot()));
  expect(snapshot).toMatchObject({
    drawn: 7,
    used: 1,
    unused: 1,
  });
  const read = readStatistics({ city: snapshot, other: 'x' });
  expect(new SourceStatistics(MIDNIGHT_AT, read.get('city'), { unproven: false }).snapshot()).toEqual(
    snapshot,
  );
  expect(read.get('other')).toBeUndefined();
});

test.each([undefined, null, 'x', [7]])('source statistics: %j restores nothing', (stored) => {
  expect([...readStatistics(stored)]).toEqual([]);
});

test('source statistics: an invalid field counts as never written', () => {
  const damaged = { drawn: -1, used: 3, learnedMost: 0, budget: { drawn: [1, 'a'] } };
  const stored = readStatistics({ city: damaged }).get('city');
  const statistics = new SourceStatistics(MIDNIGHT_AT, stored, { unproven: false });
  expect(statistics).toMatchObject({ drawn: 0, used: 3, unused: 0 });
  expect([statistics.learnedMax, statistics.budget.used(MIDNIGHT_AT)]).toEqual([Infinity, 0]);
});

test('source statistics: the latency is a default until the first answer, then a moving average', () => {
  const statistics = fresh();
  expect(statistics.latencyMs).toBe(1_000);
  statistics.recordLatency(200);
  expect(statistics.latencyMs).toBe(200);
  statistics.recordLatency(1_200);
  expect(statistics.latencyMs).toBe(500);
});

test('source statistics: the lifetime is a default until the service tells one, then a moving average', () => {
  const statistics = fresh();
  statistics.recordLifetimes([Infinity, 0, -5]);
  expect(statistics.lifetimeMs).toBe(60_000);
  statistics.recordLifetimes([100_000, 200_000, Infinity]);
  expect(statistics.lifetimeMs).toBe(150_000);
  statistics.recordLifetimes([50_000]);
  expect(statistics.lifetimeMs).toBe(130_000);
});

test('source statistics: the share of dead members moves with each member that leaves, and survives a restart', () => {
  const statistics = fresh();
  expect(statistics.snapshot()).not.toHaveProperty('deadShare');
  statistics.recordRemoval(0, DEAD);
  expect(statistics.deadShare, 'dead on arrival').toBeCloseTo(0.04, 6);
  expect(statistics.recordRemoval(0, { hasFailed: false, isOwn: true })).toBe(false);
  expect(statistics.deadShare, 'expired without a use').toBeCloseTo(0.04, 6);
  expect(statistics.recordRemoval(2, DEAD)).toBe(false);
  expect(statistics.deadShare, 'failed after uses').toBeCloseTo(0.038, 6);
  expect(statistics.failedInARow).toBe(1);
  for (let time = 0; time < 1_000; time += 1) statistics.recordRemoval(0, DEAD);
  expect(statistics.deadShare, 'at most').toBeCloseTo(0.8);
  const stored = readStatistics(JSON.parse(JSON.stringify({ city: statistics.snapshot() }))).get('city');
  expect(new SourceStatistics(MIDNIGHT_AT, stored, { unproven: false }).deadShare).toBeCloseTo(0.8);
});

test('source statistics: members that another noria drew count for its draws, not for those of this one', () => {
  const statistics = fresh();
  for (const [uses, isOwn] of [
    [3, true],
    [0, true],
    [0, true],
    [1, false],
    [0, false],
  ] as const)
    statistics.recordRemoval(uses, { hasFailed: false, isOwn });
  expect(statistics).toMatchObject({ used: 1, unused: 2 });
});

test('source statistics: a reload forgets fruitless draws and dead members, another instance its limits', () => {
  const statistics = fresh();
  for (let time = 0; time < 12; time += 1) statistics.recordRemoval(0, DEAD);
  for (let draw = 0; draw < 5; draw += 1) statistics.recordDraw(0, 0, GAP_MS);
  statistics.learnedMax = 2;
  statistics.quota = { remaining: 5 };
  expect([statistics.isPromising, statistics.notBeforeAt(false)]).toEqual([false, 120_000]);
  statistics.forgetDraws();
  expect([statistics.isPromising, statistics.notBeforeAt(false)]).toEqual([true, 0]);
  statistics.recordDraw(0, 0, GAP_MS);
  expect(statistics.notBeforeAt(false), 'counts from the start').toBe(0);
  expect([statistics.isPromising, statistics.learnedMax]).toEqual([false, 2]);
  statistics.forgetInstance();
  expect([statistics.learnedMax, statistics.quota]).toEqual([Infinity, {}]);
});

test('daily budget: in a fleet it counts the IPs of all, and adds its own again only if it has any', () => {
  const added: (readonly string[])[] = [];
  let others = 0;
  const shared = { add: (ips: readonly string[]) => void added.push(ips), used: () => others };
  const budget = new DailyBudget(MIDNIGHT_AT, undefined, shared);
  budget.shareAgain(MIDNIGHT_AT);
  expect(added).toEqual([]);
  budget.add(['a', 'b'], MIDNIGHT_AT);
  budget.shareAgain(MIDNIGHT_AT);
  expect(added).toEqual([
    ['a', 'b'],
    ['a', 'b'],
  ]);
  expect(budget.used(MIDNIGHT_AT)).toBe(2);
  others = 7;
  expect(budget.used(MIDNIGHT_AT)).toBe(7);
  budget.shareAgain(MIDNIGHT_AT + DAY_MS);
  expect(added, 'those of yesterday').toHaveLength(2);
});

test('source statistics: the smaller of budget and quota limits a draw; a stale "0 left" does not', () => {
  const statistics = fresh();
  expect(statistics.quotaLeft(undefined, MIDNIGHT_AT)).toBe(Infinity);
  statistics.budget.add(['a', 'b'], MIDNIGHT_AT);
  expect(statistics.quotaLeft(10, MIDNIGHT_AT)).toBe(8);
  statistics.quota = { remaining: 3 };
  expect(statistics.quotaLeft(10, MIDNIGHT_AT)).toBe(3);
  statistics.quota = { remaining: 0 };
  expect(statistics.quotaLeft(10, MIDNIGHT_AT)).toBe(8);
});
