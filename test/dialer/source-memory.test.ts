import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import {
  isSameLogin,
  LatencyEstimator,
  type LatencySample,
  MIN_SAMPLES,
  profileOf,
  SourceMemory,
} from '../../src/dialer/source-memory.ts';
import { ManualClock } from '../support/manual-clock.ts';

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

test('latency: half of the members count, by their medians, and the slow ones are above both bounds', () => {
  const reversed = (member: string, list: readonly number[]) =>
    list.toReversed().map((ms) => ({ member, ms, at: 0 }));
  const spread = Array.from({ length: 20 }, (_, index) => index + 1);
  const quick = spread.map((ms) => ms * 10);
  const slow = (ms: number) => spread.map(() => ms);
  const mixed = [...reversed('slow', slow(401)), ...reversed('quick', quick), ...reversed('fair', slow(380))];
  // The median of the quick one, 100 ms, is the lowest; of its own latencies and those of the next one, 380 is the 95th.
  expect(profileOf(mixed, 0)).toEqual({ p95Ms: 380, slowMembers: [] });
  const fast = [...reversed('slow', slow(101)), ...reversed('fast', spread), ...reversed('bound', slow(100))];
  expect(profileOf([...fast, ...reversed('calm', slow(10))], 0)).toEqual({
    p95Ms: 18,
    slowMembers: ['slow'],
  });
});

test('source memory: a source has worked for a minute after a member accepted', () => {
  const clock = ManualClock.dayOld();
  const settings = {
    auth: 'none',
    instance: '',
    neverInstance: true,
    forwardMode: 'direct',
    handshake: 'auto',
  } as const;
  const memory = new SourceMemory('city', settings, clock, () => {});
  expect(memory.worked).toBe(false);
  memory.latency.add({ member: 'm1', ms: 1, at: clock.monotonic() });
  clock.advance(60_000);
  expect(memory.worked).toBe(true);
  clock.advance(1);
  expect(memory.worked).toBe(false);
});

test('login: the same user name and the same password', () => {
  const login = (username: string, password: string) => ({ username, password: new Secret(password) });
  const ann = login('ann', 'pw');
  expect(
    [ann, login('ann', 'pw'), login('ann', 'other'), login('bob', 'pw'), undefined].map((other) =>
      isSameLogin(ann, other),
    ),
  ).toEqual([true, true, false, false, false]);
  expect([isSameLogin(undefined, ann), isSameLogin(undefined, undefined)]).toEqual([false, true]);
});

test('latency: the order in which latencies were measured does not matter', () => {
  const late = Array.from({ length: 21 }, (_, index) => ({
    member: 'a',
    ms: index === 10 ? 9_000 : 10,
    at: 0,
  }));
  const rising = Array.from({ length: 21 }, (_, index) => ({
    member: 'b',
    ms: index < 10 ? 9_000 : 20,
    at: 0,
  }));
  expect(profileOf([...rising, ...late], 0)).toEqual({ p95Ms: 10, slowMembers: [] });
});
