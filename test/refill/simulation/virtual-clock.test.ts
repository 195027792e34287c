import { expect, test } from 'vitest';
import { pause } from '../../../src/core/clock.ts';
import { seededRandom } from '../../../src/core/random.ts';
import { VirtualClock } from '../../../src/refill/simulation/virtual-clock.ts';

const START_AT = Date.UTC(2030, 0, 1);

test('virtual clock: timers fire at their time, in the order of arming if equal', async () => {
  const clock = new VirtualClock(START_AT);
  const fired: string[] = [];
  for (const [name, ms] of [
    ['c', 30],
    ['a', 10],
    ['b', 10],
    ['never', 1_000],
  ] as const) {
    clock.after(ms, () => fired.push(`${name} at ${clock.monotonic()}`));
  }
  await clock.runUntil(100);
  expect(fired).toEqual(['a at 10', 'b at 10', 'c at 30']);
  expect([clock.monotonic(), clock.now(), clock.armedCount]).toEqual([100, START_AT + 100, 1]);
});

test('virtual clock: a thousand random timers fire in order, disposed ones never', async () => {
  const clock = new VirtualClock(START_AT);
  const random = seededRandom(5);
  const fired: number[] = [];
  const timers = Array.from({ length: 1_000 }, () =>
    clock.after(random() * 500, () => fired.push(clock.monotonic())),
  );
  for (const timer of timers.filter((_timer, index) => index % 3 === 0)) {
    timer[Symbol.dispose]();
    timer[Symbol.dispose]();
  }
  expect(clock.armedCount).toBe(666);
  await clock.runUntil(500);
  expect(fired).toHaveLength(666);
  expect(fired).toEqual([...fired].sort((a, b) => a - b));
  expect(clock.armedCount).toBe(0);
});

test('virtual clock: promises continue before the next timer fires, at any depth', async () => {
  const clock = new VirtualClock(START_AT);
  const calls: string[] = [];
  const sleeper = async () => {
    await pause(clock, 10);
    for (let hop = 0; hop < 50; hop += 1) await undefined;
    calls.push('woken');
    await pause(clock, 5);
    calls.push(`again at ${clock.monotonic()}`);
  };
  const done = sleeper();
  clock.after(11, () => calls.push('timer'));
  await clock.runUntil(20);
  await done;
  expect(calls).toEqual(['woken', 'timer', 'again at 15']);
});

test('virtual clock: rounds fractions of a millisecond up, so that no wait is endless', async () => {
  const clock = new VirtualClock(START_AT);
  let rounds = 0;
  const again = () => {
    rounds += 1;
    if (rounds < 5) clock.after(1e-9, again);
  };
  clock.after(1e-9, again);
  await clock.runUntil(10);
  expect(rounds).toBe(5);
});

test('virtual clock: setting the wall clock does not change monotonic time', () => {
  const clock = new VirtualClock(START_AT);
  clock.stepWall(-5_000);
  expect([clock.now(), clock.monotonic()]).toEqual([START_AT - 5_000, 0]);
});

test('random: the same seed gives the same numbers, spread over the whole range', () => {
  const [a, b] = [seededRandom(3), seededRandom(3)];
  const numbers = Array.from({ length: 1_000 }, a);
  expect(numbers).toEqual(Array.from({ length: 1_000 }, b));
  expect(Array.from({ length: 1_000 }, seededRandom(4))).not.toEqual(numbers);
  const mean = numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  expect(Math.min(...numbers)).toBeGreaterThanOrEqual(0);
  expect(Math.max(...numbers)).toBeLessThan(1);
  expect(Math.abs(mean - 0.5)).toBeLessThan(0.05);
});
