import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  LatencyEstimator,
  type LatencySample,
  MIN_SAMPLES,
  profileOf,
} from '../../src/dialer/source-memory.ts';

function samples(
  spec: readonly (readonly [member: string, ms: number, count: number])[],
  at = 0,
): LatencySample[] {
  return spec.flatMap(([member, ms, count]) => Array.from({ length: count }, () => ({ member, ms, at })));
}

test('latency: there is no profile until there are enough samples', () => {
  const latency = new LatencyEstimator();
  for (const sample of samples([['m1', 100, MIN_SAMPLES - 1]])) latency.add(sample);
  expect(latency.profile?.p95Ms).toBeUndefined();
  latency.add({ member: 'm1', ms: 100, at: 0 });
  expect(latency.profile?.p95Ms).toBe(100);
});

test('latency: the slower half of the members does not count', () => {
  const mixed = samples([
    ['fast', 10, 30],
    ['quick', 20, 30],
    ['slow', 2_000, 30],
    ['slower', 3_000, 30],
  ]);
  expect(profileOf(mixed, 0)?.p95Ms).toBe(20);
});

test('latency: a member that takes far longer than good ones is slow', () => {
  const mixed = samples([
    ['fast', 10, 30],
    ['quick', 20, 30],
    ['fair', 99, 30],
    ['slow', 2_000, 3],
    ['slower', 3_000, 1],
  ]);
  expect(profileOf(mixed, 0)?.slowMembers).toEqual(['slow', 'slower']);
});

test('latency: reports the 95th percentile, not the average', () => {
  const spread = Array.from({ length: 100 }, (_, index) => ({ member: 'm1', ms: index + 1, at: 0 }));
  expect(profileOf(spread, 0)?.p95Ms).toBe(95);
});

test('latency: old samples are replaced by newer ones, or ignored by age', () => {
  const old = [...samples([['m1', 500, 50]], 0), ...samples([['m1', 10, 25]], 1_000)];
  expect(profileOf(old, 1_000)?.p95Ms).toBe(10);
  const latency = new LatencyEstimator();
  for (const sample of samples([['m1', 500, 300]])) latency.add(sample);
  for (const sample of samples([['m1', 10, 300]], 999)) latency.add(sample);
  expect(latency.profile?.p95Ms, 'recomputed at most once a second').toBe(500);
  latency.add({ member: 'm1', ms: 10, at: 1_000 });
  expect(latency.profile?.p95Ms).toBe(10);
});

test('latency: there is no profile after a long time without samples', () => {
  const latency = new LatencyEstimator();
  for (const sample of samples([['m1', 500, 40]])) latency.add(sample);
  for (const sample of samples([['m1', 10, 32]], 3_600_000)) latency.add(sample);
  expect(latency.profile?.p95Ms, 'too few again').toBeUndefined();
  latency.add({ member: 'm1', ms: 10, at: 3_601_000 });
  expect(latency.profile?.p95Ms).toBe(10);
});

test('latency: the percentile is always a measured value', () => {
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
