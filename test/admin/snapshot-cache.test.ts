import { expect, test } from 'vitest';
import { SnapshotCache } from '../../src/admin/snapshot-cache.ts';
import { ManualClock } from '../support/manual-clock.ts';

function makeCached(costMs: number) {
  const clock = new ManualClock();
  let made = 0;
  const cached = new SnapshotCache(clock, () => {
    clock.advance(costMs);
    made += 1;
    return { made };
  });
  return { clock, cached, made: () => made };
}

test('cached: what costs nothing is made anew each time', () => {
  const { cached } = makeCached(0);
  expect([cached.get().made, cached.get().made]).toEqual([1, 2]);
});

test('cached: what costs 20 ms is kept for a second, so that it takes a fiftieth of the time at most', () => {
  const { clock, cached, made } = makeCached(20);
  cached.get();
  clock.advance(999);
  cached.get();
  expect(made()).toBe(1);
  clock.advance(1);
  cached.get();
  expect(made()).toBe(2);
});

test('cached: what was changed by hand is seen at once', () => {
  const { cached, made } = makeCached(20);
  cached.get();
  cached.clear();
  cached.get();
  expect(made()).toBe(2);
});
