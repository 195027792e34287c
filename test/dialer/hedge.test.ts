import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { EventBus } from '../../src/core/events.ts';
import {
  Hedge,
  type HedgeAfter,
  HedgeBudget,
  hedgeDelayMs,
  MIN_HEDGE_DELAY_MS,
  OverdueAttempts,
} from '../../src/dialer/hedge.ts';
import { ManualClock } from '../support/manual-clock.ts';

test.each<[string, HedgeAfter, p95Ms: number | undefined, doubtful: boolean, delayMs: number | undefined]>([
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

function makeHedge(hedgeAfter: HedgeAfter) {
  const clock = new ManualClock();
  const bus = new EventBus(() => {});
  const parts = { bus, hedgeBudget: new HedgeBudget(), deadlines: new Deadlines(clock, 10) };
  return new Hedge(parts, { hedgeAfter, attemptTimeoutMs: 5_000 }, () => {});
}

test('hedge: only a lost hedge is charged to the budget', () => {
  const hedge = makeHedge('auto');
  const spend = (count: number, end: () => void) =>
    Array.from({ length: count }, () => {
      const spent = hedge.spend();
      end();
      return spent;
    });
  expect(spend(50, () => hedge.ended('won'))).not.toContain(false);
  expect(spend(50, () => hedge.ended('failed'))).not.toContain(false);
  expect(spend(50, () => hedge.refund())).not.toContain(false);
  expect(spend(12, () => hedge.ended('lost')).filter(Boolean)).toHaveLength(10);
  hedge.refund();
  expect(hedge.spend(), 'a lost hedge is not refunded later').toBe(false);
});

test('hedge: a configured delay has no budget', () => {
  const hedge = makeHedge(300);
  for (let time = 0; time < 100; time += 1) {
    expect(hedge.spend()).toBe(true);
    hedge.ended('lost');
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
