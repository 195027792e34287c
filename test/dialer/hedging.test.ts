import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { EventBus } from '../../src/core/events.ts';
import { Hedge } from '../../src/dialer/hedge.ts';
import { HEDGE_FLOOR_MS, type HedgeAfter, HedgeBudget, hedgeDelayMs } from '../../src/dialer/hedging.ts';
import { LatencyEstimator, type LatencySample, MIN_SAMPLES, profileOf } from '../../src/dialer/latency.ts';
import { OverdueAttempts } from '../../src/dialer/overdue-attempts.ts';
import { ManualClock } from '../support/manual-clock.ts';

function samples(
  spec: readonly (readonly [member: string, ms: number, count: number])[],
  at = 0,
): LatencySample[] {
  return spec.flatMap(([member, ms, count]) => Array.from({ length: count }, () => ({ member, ms, at })));
}

test('latency: nothing is known before there are enough samples', () => {
  const latency = new LatencyEstimator();
  for (const sample of samples([['m1', 100, MIN_SAMPLES - 1]])) latency.add(sample);
  expect(latency.profile?.p95Ms).toBeUndefined();
  latency.add({ member: 'm1', ms: 100, at: 0 });
  expect(latency.profile?.p95Ms).toBe(100);
});

test('latency: slow members do not teach patience, as long as they are not the faster half', () => {
  const mixed = samples([
    ['fast', 10, 30],
    ['quick', 20, 30],
    ['slow', 2_000, 30],
    ['slower', 3_000, 30],
  ]);
  expect(profileOf(mixed, 0)?.p95Ms).toBe(20);
});

test('latency: members are slow that take far longer than good ones', () => {
  const mixed = samples([
    ['fast', 10, 30],
    ['quick', 20, 30],
    ['fair', 99, 30],
    ['slow', 2_000, 3],
    ['slower', 3_000, 1],
  ]);
  expect(profileOf(mixed, 0)?.slowMembers).toEqual(['slow', 'slower']);
});

test('laggards: members are told as long as an attempt through them is overdue, and the slow ones with them', () => {
  const laggards = new OverdueAttempts();
  const through = (member: string) => ({ lease: { member } });
  const [one, another, two] = [through('m1'), through('m1'), through('m2')];
  expect(laggards.membersToAvoid([], [])).toEqual([]);
  for (const attempt of [one, one, another, two]) laggards.add(attempt);
  expect(laggards.membersToAvoid(['m2', 'm3', 'm4'], ['m4']).toSorted()).toEqual(['m1', 'm2', 'm3']);
  for (const attempt of [one, two, two, through('m9')]) laggards.delete(attempt);
  expect(laggards.membersToAvoid([], [])).toEqual(['m1']);
  laggards.delete(another);
  expect(laggards.size).toBe(0);
  for (let index = 0; index < 500; index += 1) laggards.add(through(`m${index}`));
  expect(laggards.membersToAvoid(['slow'], [])).toHaveLength(64);
});

test('latency: the 95th percentile of the good ones, not their average', () => {
  const spread = Array.from({ length: 100 }, (_, index) => ({ member: 'm1', ms: index + 1, at: 0 }));
  expect(profileOf(spread, 0)?.p95Ms).toBe(95);
});

test('latency: old samples are forgotten, by age and by newer ones', () => {
  const old = [...samples([['m1', 500, 50]], 0), ...samples([['m1', 10, 25]], 1_000)];
  expect(profileOf(old, 1_000)?.p95Ms).toBe(10);
  const latency = new LatencyEstimator();
  for (const sample of samples([['m1', 500, 300]])) latency.add(sample);
  for (const sample of samples([['m1', 10, 300]], 999)) latency.add(sample);
  expect(latency.profile?.p95Ms, 'worked out once a second at most').toBe(500);
  latency.add({ member: 'm1', ms: 10, at: 1_000 });
  expect(latency.profile?.p95Ms).toBe(10);
});

test('latency: after a long silence the past says nothing any more', () => {
  const latency = new LatencyEstimator();
  for (const sample of samples([['m1', 500, 40]])) latency.add(sample);
  for (const sample of samples([['m1', 10, 32]], 3_600_000)) latency.add(sample);
  expect(latency.profile?.p95Ms, 'too few again').toBeUndefined();
  latency.add({ member: 'm1', ms: 10, at: 3_601_000 });
  expect(latency.profile?.p95Ms).toBe(10);
});

test('latency: the figure is always one that was measured', () => {
  const some = fc.array(
    fc.record({ member: fc.constantFrom('a', 'b', 'c'), ms: fc.nat(5_000), at: fc.constant(0) }),
    { minLength: MIN_SAMPLES, maxLength: 60 },
  );
  fc.assert(
    fc.property(some, (list) => {
      expect(list.map(({ ms }) => ms)).toContain(profileOf(list, 0)?.p95Ms);
    }),
  );
});

test.each<[string, Parameters<typeof hedgeDelayMs>, number | undefined]>([
  ['off is never', ['off', 5_000, 100, true], undefined],
  ['a duration is that duration', [300, 5_000, 100, true], 300],
  ['auto without experience is a quarter of the attempt', ['auto', 5_000, undefined, false], 1_250],
  ['auto is what good members need', ['auto', 5_000, 220, false], 220],
  ['auto is never sooner than the floor', ['auto', 5_000, 3, false], HEDGE_FLOOR_MS],
  ['a doubtful member gets half the patience', ['auto', 5_000, 220, true], 110],
  ['a doubtful member gets it without experience, too', ['auto', 5_000, undefined, true], 625],
])('hedging: %s', (_, given, expected) => {
  expect(hedgeDelayMs(...given)).toBe(expected);
});

test('hedging: hedges that lose are at most a tenth of the dials over time', () => {
  const budget = new HedgeBudget();
  let hedges = 0;
  for (let dial = 0; dial < 10_000; dial += 1) {
    budget.earn();
    if (budget.spend()) hedges += 1;
  }
  expect(hedges).toBeGreaterThan(990);
  expect(hedges).toBeLessThanOrEqual(1_000 + 10);
});

test('hedging: hedges that help are as many as are needed', () => {
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
  const parts = { bus, budget: new HedgeBudget(), deadlines: new Deadlines(clock, 10) };
  return new Hedge(parts, { hedgeAfter, attemptTimeoutMs: 5_000 }, () => {});
}

test('hedge: one that lost is spent, all others are given back', () => {
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
  expect(hedge.spend(), 'what is lost is not given back later').toBe(false);
});

test('hedge: a delay that the operator has chosen needs no budget', () => {
  const hedge = makeHedge(300);
  for (let time = 0; time < 100; time += 1) {
    expect(hedge.spend()).toBe(true);
    hedge.ended('lost');
  }
});
