import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { systemBoot } from '../../src/core/clock.ts';
import { createTimekeeper, elapsedBetween, hasEnded, isAlive, thisProcess } from '../../src/state/moment.ts';

const own = thisProcess(systemBoot());
const ended = { ...own, pid: spawnSync(process.execPath, ['--version']).pid };

test('moment: a process is seen as ended only by one that knows its pid', () => {
  expect(hasEnded(own, own)).toBe(false);
  expect(hasEnded(ended, own)).toBe(true);
  expect(hasEnded({ ...own, startTicks: 1 }, own)).toBe(true);
  expect(hasEnded({ ...ended, boot: 'another' }, own)).toBe(false);
  expect(hasEnded({ ...ended, namespace: 'another' }, own)).toBe(false);
});

test('moment: a process of another user, an unknown start and another boot', () => {
  const first = { pid: 1, boot: own.boot };
  expect(isAlive(first, { id: own.boot })).toBe(true);
  expect(isAlive({ pid: ended.pid, boot: own.boot }, { id: own.boot })).toBe(false);
  expect(isAlive(own, { id: 'another' })).toBe(false);
});

test('moment: time passes by the boot while it lasts, else by the wall clock', () => {
  const then = { wallAt: 1_000, boot: 'a', elapsedMs: 50 };
  expect(elapsedBetween(then, { wallAt: 9_000, boot: 'a', elapsedMs: 70 })).toBe(20);
  expect(elapsedBetween(then, { wallAt: 900, boot: 'b', elapsedMs: 70 })).toBe(-100);
});

test('moment: a stopwatch counts the longer of what the process and the machine saw', () => {
  const now = { process: 100, machine: 5_000 };
  const clock = { now: () => 0, monotonic: () => now.process };
  const boot = { id: 'a', elapsedMs: () => 7, uptimeMs: () => now.machine };
  const timekeeper = createTimekeeper(clock, boot);
  expect(timekeeper.now()).toEqual({ wallAt: 0, boot: 'a', elapsedMs: 7 });
  const read = timekeeper.stopwatch();
  now.process += 30;
  now.machine += 20;
  expect(read()).toBe(30);
  now.machine += 40;
  expect(read()).toBe(60);
});
