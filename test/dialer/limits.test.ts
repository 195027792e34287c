import { expect, test } from 'vitest';
import {
  CLIENT_ATTEMPTS_PER_SECOND,
  CLIENT_BURST,
  ClientBudgets,
  type DialerSettings,
  FULL_REPORT_POINTS,
  HedgeBudget,
  hedgeDelayMs,
  MIN_HEDGE_DELAY_MS,
  maxReportPoints,
  OverdueAttempts,
} from '../../src/dialer/limits.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('attempts: two members decide that a target is unreachable, five if it was reached recently, none if just now', () => {
  const points = [Infinity, 5_001, 5_000].map(maxReportPoints);
  expect(points).toEqual([2 * FULL_REPORT_POINTS, 5 * FULL_REPORT_POINTS, Infinity]);
});

test('client budgets: a client may spend its burst, then what each second adds', () => {
  const clock = ManualClock.dayOld();
  const budgets = new ClientBudgets(clock);
  const spend = () => {
    let spent = 0;
    for (; budgets.allows('mallory'); spent += 1) budgets.charge('mallory', 1);
    return spent;
  };
  expect(spend()).toBe(CLIENT_BURST);
  clock.advance(1_000);
  expect(spend()).toBe(CLIENT_ATTEMPTS_PER_SECOND);
  clock.advance(3_600_000);
  expect(spend(), 'never more than the burst').toBe(CLIENT_BURST);
  expect(budgets.allows('alice'), 'another client').toBe(true);
});

test('client budgets: a tenth of the attempts of all clients is added', () => {
  const budgets = new ClientBudgets(ManualClock.dayOld());
  budgets.charge('mallory', CLIENT_BURST);
  for (let attempt = 0; attempt < 9; attempt += 1) budgets.attempted();
  expect(budgets.allows('mallory')).toBe(false);
  for (let attempt = 0; attempt < 2; attempt += 1) budgets.attempted();
  expect(budgets.allows('mallory')).toBe(true);
});

test.each<
  [
    string,
    DialerSettings['hedgeAfter'],
    p95Ms: number | undefined,
    doubtful: boolean,
    delayMs: number | undefined,
  ]
>([
  ['off: there is no hedge', 'off', 100, true, undefined],
  ['a configured delay is used as it is', 300, 100, true, 300],
  ['auto without samples: a quarter of the attempt timeout', 'auto', undefined, false, 1_250],
  ['auto: the latency of good members', 'auto', 220, false, 220],
  ['auto: at least the minimum', 'auto', 3, false, MIN_HEDGE_DELAY_MS],
  ['auto: half the delay for an unproven member', 'auto', 220, true, 110],
  ['auto without samples: half the delay for an unproven member', 'auto', undefined, true, 625],
])('hedge delay: %s', (_, hedgeAfter, p95Ms, doubtful, delayMs) => {
  expect(hedgeDelayMs({ hedgeAfter, attemptTimeoutMs: 5_000 }, p95Ms, doubtful)).toBe(delayMs);
});

test('hedge budget: lost hedges are at most a tenth of the dials over time', () => {
  const budget = new HedgeBudget();
  let hedges = 0;
  for (let dial = 0; dial < 10_000; dial += 1) {
    budget.earn();
    if (budget.spend()) hedges += 1;
  }
  expect(hedges).toBeGreaterThan(990);
  expect(hedges).toBeLessThanOrEqual(1_000 + 10);
});

test('hedge budget: hedges that are refunded have no limit', () => {
  const budget = new HedgeBudget();
  for (let dial = 0; dial < 1_000; dial += 1) {
    budget.earn();
    expect(budget.spend()).toBe(true);
    budget.refund();
  }
});

test('overdue attempts: hedges avoid their members until they end, and slow members', () => {
  const overdue = new OverdueAttempts();
  const through = (member: string) => ({ lease: { member } });
  const [one, another, two] = [through('m1'), through('m1'), through('m2')];
  expect(overdue.membersToAvoid([], [])).toEqual([]);
  for (const attempt of [one, one, another, two]) overdue.add(attempt);
  expect(overdue.membersToAvoid(['m2', 'm3', 'm4'], ['m4']).toSorted()).toEqual(['m1', 'm2', 'm3']);
  for (const attempt of [one, two, two, through('m9')]) overdue.delete(attempt);
  expect(overdue.membersToAvoid([], [])).toEqual(['m1']);
  overdue.delete(another);
  expect(overdue.size).toBe(0);
  for (let index = 0; index < 500; index += 1) overdue.add(through(`m${index}`));
  expect(overdue.membersToAvoid(['slow'], [])).toHaveLength(64);
});

test('client budgets: beyond 4,096 clients, the one that was charged first has its burst again', () => {
  const budgets = new ClientBudgets(ManualClock.dayOld());
  for (let client = 0; client < 4_097; client += 1) budgets.charge(`c${client}`, CLIENT_BURST + 5);
  expect(['c0', 'c1', 'c4096'].map((client) => budgets.allows(client))).toEqual([true, false, false]);
});

test('hedge budget: ten hedges at first, one for ten dials, and never more than ten', () => {
  const budget = new HedgeBudget();
  const spendAll = () => {
    let spent = 0;
    while (budget.spend()) spent += 1;
    return spent;
  };
  budget.refund();
  expect(spendAll()).toBe(10);
  for (let dial = 0; dial < 11; dial += 1) budget.earn();
  expect(spendAll()).toBe(1);
  for (let hedge = 0; hedge < 3; hedge += 1) budget.refund();
  expect(spendAll()).toBe(3);
  for (let dial = 0; dial < 1_000; dial += 1) budget.earn();
  expect(spendAll()).toBe(10);
});
