import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { pause, systemClock } from '../../src/core/clock.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('clock: all processes of a machine have the same monotonic time', () => {
  const clock = fileURLToPath(new URL('../../src/core/clock.ts', import.meta.url));
  const script = `import { systemClock } from '${clock}'; console.log(systemClock.monotonic())`;
  const before = systemClock.monotonic();
  const there = Number(execFileSync(process.execPath, ['--input-type=module', '-e', script]));
  expect(there).toBeGreaterThan(before);
  expect(there).toBeLessThan(systemClock.monotonic());
});

describe('clock: system clock', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test('clock: a timer fires once, not early', () => {
    let runs = 0;
    systemClock.after(1_000, () => {
      runs += 1;
    });
    vi.advanceTimersByTime(999);
    expect(runs).toBe(0);
    vi.advanceTimersByTime(5_000);
    expect(runs).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('clock: a fraction of a millisecond is rounded up', () => {
    let ran = false;
    systemClock.after(0.2, () => {
      ran = true;
    });
    vi.advanceTimersByTime(0);
    expect(ran).toBe(false);
    vi.advanceTimersByTime(1);
    expect(ran).toBe(true);
  });

  test('clock: delays beyond the limit of Node timers work and can be cancelled', () => {
    const day = 86_400_000;
    let runs = 0;
    const run = () => {
      runs += 1;
    };
    systemClock.after(60 * day, run);
    const calledOff = systemClock.after(60 * day, run);
    vi.advanceTimersByTime(40 * day); // more than the 24.8 days of the first timer
    calledOff[Symbol.dispose]();
    expect(runs).toBe(0);
    vi.advanceTimersByTime(20 * day);
    expect(runs).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('clock: wall and monotonic time advance together', () => {
    const [wall, monotonic] = [systemClock.now(), systemClock.monotonic()];
    vi.advanceTimersByTime(250);
    expect(systemClock.now() - wall).toBe(250);
    expect(systemClock.monotonic() - monotonic).toBeCloseTo(250);
  });
});

describe('clock: pause', () => {
  test('clock: a pause ends after its time', async () => {
    const clock = new ManualClock();
    const paused = pause(clock, 500);
    clock.advance(500);
    await paused;
    expect(clock.armedCount).toBe(0);
  });

  test('clock: an abort ends a pause and clears its timer', async () => {
    const clock = new ManualClock();
    const abort = new AbortController();
    const paused = pause(clock, 500, abort.signal);
    abort.abort();
    await paused;
    expect(clock.armedCount).toBe(0);
    await pause(clock, 500, abort.signal); // the signal is already aborted, so there is no wait
    expect(clock.armedCount).toBe(0);
  });

  test('clock: a pause leaves no listener on its signal', async () => {
    const clock = new ManualClock();
    const { signal } = new AbortController();
    const paused = pause(clock, 500, signal);
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    clock.advance(500);
    await paused;
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});
