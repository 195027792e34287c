import { expect, test } from 'vitest';
import { EarliestTimer } from '../../src/core/clock.ts';
import { ManualClock } from '../support/manual-clock.ts';

function kit() {
  const clock = new ManualClock();
  const firedAt: number[] = [];
  const timer = new EarliestTimer(clock, () => firedAt.push(clock.monotonic()));
  return { clock, firedAt, timer };
}

test('earliest timer: fires once, at the earliest moment', () => {
  const { clock, firedAt, timer } = kit();
  for (const at of [300, 100, 200]) timer.armBy(at);
  expect(timer.dueAt).toBe(100);
  expect(clock.armedCount).toBe(1);
  clock.advance(1_000);
  expect(firedAt).toEqual([100]);
  expect(timer.dueAt).toBe(Number.POSITIVE_INFINITY);
});

test('earliest timer: can be armed again while it fires', () => {
  const clock = new ManualClock();
  const moments = [10, 20, 30];
  const timer = new EarliestTimer(clock, () => timer.armBy(moments.shift() ?? Number.POSITIVE_INFINITY));
  timer.armBy(5);
  clock.advance(100);
  expect(moments).toEqual([]);
  expect(clock.armedCount).toBe(0);
});

test('earliest timer: ignores an infinite moment', () => {
  const { clock, timer } = kit();
  timer.armBy(Number.POSITIVE_INFINITY);
  expect(clock.armedCount).toBe(0);
});

test('earliest timer: does not fire after disarm, and can be armed for a later moment', () => {
  const { clock, firedAt, timer } = kit();
  timer.armBy(100);
  timer.disarm();
  timer.disarm();
  expect(clock.armedCount).toBe(0);
  timer.armBy(200);
  clock.advance(1_000);
  expect(firedAt).toEqual([200]);
});
