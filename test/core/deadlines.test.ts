import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { ManualClock } from '../support/manual-clock.ts';

const TICK_MS = 10;

function makeWheel() {
  const clock = new ManualClock();
  return { clock, wheel: new Deadlines(clock, TICK_MS) };
}

test('deadlines: a deadline fires once, not early and at most one tick late', () => {
  const { clock, wheel } = makeWheel();
  clock.advance(3);
  let fired = 0;
  wheel.set(25, () => fired++);
  clock.advance(24);
  expect(fired).toBe(0);
  clock.advance(1 + TICK_MS);
  expect(fired).toBe(1);
  clock.advance(60_000);
  expect(fired).toBe(1);
  expect(wheel.size).toBe(0);
  expect(clock.armedCount).toBe(0);
});

test('deadlines: a cleared deadline never fires, and can be cleared again', () => {
  const { clock, wheel } = makeWheel();
  let fired = 0;
  const one = wheel.set(50, () => fired++);
  const two = wheel.set(50, () => fired++);
  wheel.clear(one);
  wheel.clear(one);
  expect(wheel.size).toBe(1);
  clock.advance(1_000);
  expect(fired).toBe(1);
  wheel.clear(two);
  expect(wheel.size).toBe(0);
});

test('deadlines: refresh restarts the full time, and does nothing after the deadline has fired', () => {
  const { clock, wheel } = makeWheel();
  let firedAt = 0;
  const idle = wheel.set(1_000, () => {
    firedAt = clock.monotonic();
  });
  for (let i = 0; i < 10; i++) {
    clock.advance(900);
    wheel.refresh(idle);
  }
  expect(firedAt).toBe(0);
  clock.advance(1_000 + TICK_MS);
  expect(firedAt).toBe(10_000);
  wheel.refresh(idle);
  clock.advance(10_000);
  expect(firedAt).toBe(10_000);
});

test('deadlines: all share one timer, which is disarmed when the last one is cleared', () => {
  const { clock, wheel } = makeWheel();
  const set = Array.from({ length: 500 }, (_, i) => wheel.set(100 + i * 7, () => {}));
  expect(clock.armedCount).toBe(1);
  for (const deadline of set) wheel.clear(deadline);
  expect(clock.armedCount).toBe(0);
});

test('deadlines: new ones can be set after clearAll', () => {
  const { clock, wheel } = makeWheel();
  let fired = 0;
  for (let i = 0; i < 20; i++) wheel.set(i * 100, () => fired++);
  wheel.clearAll();
  expect([wheel.size, clock.armedCount]).toEqual([0, 0]);
  clock.advance(10_000);
  expect(fired).toBe(0);
  wheel.set(0, () => fired++);
  clock.advance(TICK_MS);
  expect(fired).toBe(1);
});

test('deadlines: a callback can clear a deadline of the same tick and set another', () => {
  const { clock, wheel } = makeWheel();
  const fired: string[] = [];
  wheel.set(50, () => {
    fired.push('first');
    wheel.clear(second);
    wheel.set(0, () => fired.push('third'));
  });
  const second = wheel.set(50, () => fired.push('second'));
  clock.advance(50 + 2 * TICK_MS);
  expect(fired).toEqual(['first', 'third']);
});

test('deadlines: the others fire if a callback throws', () => {
  const { clock, wheel } = makeWheel();
  let fired = 0;
  wheel.set(20, () => {
    throw new TypeError('broken');
  });
  wheel.set(20, () => fired++);
  wheel.set(90, () => fired++);
  expect(() => clock.advance(200)).toThrow('broken');
  clock.advance(200);
  expect(fired).toBe(2);
  expect(wheel.size).toBe(0);
});

test('deadlines: in any sequence of operations, each fires within a tick of its time or never', () => {
  const step = fc.record({
    act: fc.constantFrom('set', 'clear', 'refresh'),
    ms: fc.integer({ min: 0, max: 9_000 }),
    which: fc.nat(30),
    afterMs: fc.integer({ min: 0, max: 700 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { clock, wheel } = makeWheel();
      const all: {
        ms: number;
        dueAt: number;
        firedAt: number;
        over: boolean;
        clear(): void;
        refresh(): void;
      }[] = [];
      for (const { act, ms, which, afterMs } of steps) {
        const one = all[which];
        if (act === 'set') {
          const deadline = wheel.set(ms, () => {
            made.firedAt = clock.monotonic();
            made.over = true;
          });
          const made = {
            ms,
            dueAt: clock.monotonic() + ms,
            firedAt: -1,
            over: false,
            clear: () => wheel.clear(deadline),
            refresh: () => wheel.refresh(deadline),
          };
          all.push(made);
        } else if (one !== undefined && act === 'clear') {
          one.clear();
          one.over = true;
        } else if (one !== undefined) {
          one.refresh();
          if (!one.over) one.dueAt = clock.monotonic() + one.ms;
        }
        clock.advance(afterMs);
        expect(wheel.size).toBe(all.filter((other) => !other.over).length);
      }
      clock.advance(20_000);
      for (const { dueAt, firedAt } of all) {
        if (firedAt < 0) continue;
        expect(firedAt).toBeGreaterThanOrEqual(dueAt);
        expect(firedAt).toBeLessThanOrEqual(dueAt + TICK_MS);
      }
      expect([wheel.size, clock.armedCount]).toEqual([0, 0]);
      expect(all.every((one) => one.over)).toBe(true);
    }),
  );
});
