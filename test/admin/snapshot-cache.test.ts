import { expect, test } from 'vitest';
import { cached as cachedSnapshot } from '../../src/admin/routes.ts';
import { ManualClock } from '../support/manual-clock.ts';

function makeCached(costMs: number) {
  const clock = new ManualClock();
  let made = 0;
  const cached = cachedSnapshot(clock, () => {
    clock.advance(costMs);
    made += 1;
    return { made };
  });
  return { clock, cached, made: () => made };
}

test('snapshot-cache: creates a cheap snapshot at every read', () => {
  const { cached } = makeCached(0);
  expect([cached.get().made, cached.get().made]).toEqual([1, 2]);
});

test('snapshot-cache: keeps a snapshot that took 20 ms for a second', () => {
  const { clock, cached, made } = makeCached(20);
  cached.get();
  clock.advance(999);
  cached.get();
  expect(made()).toBe(1);
  clock.advance(1);
  cached.get();
  expect(made()).toBe(2);
});

test('snapshot-cache: creates a new snapshot after clear()', () => {
  const { cached, made } = makeCached(20);
  cached.get();
  cached.clear();
  cached.get();
  expect(made()).toBe(2);
});
