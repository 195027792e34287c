import { expect, test } from 'vitest';
import { DailyBudget, serviceDay, untilServiceMidnight } from '../../src/refill/daily-budget.ts';
import { DrawSpacing } from '../../src/refill/draw-spacing.ts';
import { readLedger, SourceRecords } from '../../src/refill/source-records.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MIDNIGHT_AT = Date.UTC(2030, 0, 1) - 8 * HOUR_MS;
const GAP_MS = 10_250;

test("budget: the service's day begins at midnight of UTC+8", () => {
  expect(serviceDay(MIDNIGHT_AT)).toBe(serviceDay(MIDNIGHT_AT + DAY_MS - 1));
  expect(serviceDay(MIDNIGHT_AT)).toBe(serviceDay(MIDNIGHT_AT - 1) + 1);
  expect(untilServiceMidnight(MIDNIGHT_AT - 1)).toBe(1);
  expect(untilServiceMidnight(MIDNIGHT_AT)).toBe(DAY_MS);
});

test('budget: distinct IPs count once a day, and the day after begins at nothing', () => {
  const budget = new DailyBudget(MIDNIGHT_AT);
  budget.note(['a', 'b', 'a'], MIDNIGHT_AT);
  budget.note(['b', 'c'], MIDNIGHT_AT + HOUR_MS);
  expect(budget.used(MIDNIGHT_AT + DAY_MS - 1)).toBe(3);
  expect(budget.used(MIDNIGHT_AT + DAY_MS)).toBe(0);
});

test('budget: it survives a restart; a clock set back does not begin the day anew, one that was far ahead does not stop it', () => {
  const budget = new DailyBudget(MIDNIGHT_AT);
  budget.note(['a'], MIDNIGHT_AT);
  const restored = new DailyBudget(MIDNIGHT_AT, budget.record());
  expect(restored.used(MIDNIGHT_AT - HOUR_MS)).toBe(1);
  expect(restored.used(MIDNIGHT_AT - 3 * DAY_MS)).toBe(0);
});

test('yield: draws that bring nothing are spaced after the third, up to two minutes', () => {
  const worth = new DrawSpacing(false);
  const waits: number[] = [];
  for (let draw = 0; draw < 8; draw += 1) {
    worth.drew(0, 1_000, GAP_MS);
    waits.push(Math.max(0, worth.notBeforeAt(false) - 1_000));
  }
  expect(waits).toEqual([0, 0, 20_500, 41_000, 82_000, 120_000, 120_000, 120_000]);
  expect(worth.notBeforeAt(true), 'a client waits and nothing is usable').toBe(0);
  worth.drew(1, 1_000, GAP_MS);
  expect(worth.notBeforeAt(false)).toBe(0);
  expect(worth.promising).toBe(true);
});

test('yield: ten members in a row that die unused make it draw one at a time, slowly, whoever waits, until one serves', () => {
  const worth = new DrawSpacing(false);
  const doubted = Array.from({ length: 12 }, () => worth.died());
  expect(doubted.indexOf(true)).toBe(9);
  expect(doubted.filter(Boolean)).toHaveLength(1);
  expect([worth.mostPerCall, worth.promising]).toEqual([1, false]);
  for (let draw = 0; draw < 6; draw += 1) worth.drew(1, 0, GAP_MS);
  expect(worth.notBeforeAt(true)).toBe(120_000);
  worth.proved();
  expect([worth.mostPerCall, worth.promising, worth.notBeforeAt(false)]).toEqual([Infinity, true, 0]);
});

test('yield: free proxies are doubted later', () => {
  const worth = new DrawSpacing(true);
  const doubted = Array.from({ length: 100 }, () => worth.died());
  expect(doubted.indexOf(true)).toBe(99);
});

test('ledger: what it keeps comes back, and what is not what it should be counts as never written', () => {
  const ledger = new SourceRecords(MIDNIGHT_AT, undefined);
  ledger.counts.drawn = 7;
  ledger.noteGone(3);
  ledger.noteGone(0);
  ledger.noteCall('10001', 300);
  ledger.noteCall('transport', undefined);
  ledger.quota = { remaining: 5 };
  ledger.learnedMost = 2;
  ledger.budget.note(['a'], MIDNIGHT_AT);
  const record = JSON.parse(JSON.stringify(ledger.record()));
  expect(record).toMatchObject({
    drawn: 7,
    used: 1,
    unused: 1,
    tunnels: 3,
    codes: { 10001: 1, transport: 1 },
  });
  expect(new SourceRecords(MIDNIGHT_AT, readLedger(record)).record()).toEqual(record);

  expect(readLedger(undefined)).toBeUndefined();
  expect(readLedger('x')).toBeUndefined();
  const odd = readLedger({
    drawn: -1,
    codes: { 10001: 'x', 12009: 2 },
    learnedMost: 0,
    budget: { drawn: [1, 'a'] },
  });
  expect(odd).toMatchObject({ drawn: 0, codes: { 12009: 2 }, budget: { day: 0, drawn: ['a'] } });
  expect(odd).not.toHaveProperty('learnedMost');
});

test('ledger: the latency is a guess until the first answer, then follows what is measured', () => {
  const ledger = new SourceRecords(MIDNIGHT_AT, undefined);
  expect(ledger.latencyMs).toBe(1_000);
  ledger.noteCall('10001', 200);
  expect(ledger.latencyMs).toBe(200);
  ledger.noteCall('10001', 1_200);
  expect(ledger.latencyMs).toBe(500);
});

test('ledger: the smaller of budget and quota is what may be drawn; an old "none left" is asked again', () => {
  const ledger = new SourceRecords(MIDNIGHT_AT, undefined);
  expect(ledger.allowance(undefined, MIDNIGHT_AT)).toBe(Infinity);
  ledger.budget.note(['a', 'b'], MIDNIGHT_AT);
  expect(ledger.allowance(10, MIDNIGHT_AT)).toBe(8);
  ledger.quota = { remaining: 3 };
  expect(ledger.allowance(10, MIDNIGHT_AT)).toBe(3);
  ledger.quota = { remaining: 0 };
  expect(ledger.allowance(10, MIDNIGHT_AT)).toBe(8);
});
