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

test('moment: uses the boot clock within one boot and the wall clock across boots', () => {
  const then = { wallAt: 1_000, boot: 'a', elapsedMs: 50 };
  expect(elapsedBetween(then, { wallAt: 9_999_999, boot: 'a', elapsedMs: 60 })).toBe(10);
  expect(elapsedBetween(then, { wallAt: 3_000, boot: 'b', elapsedMs: 1 })).toBe(2_000);
  expect(elapsedBetween(then, { wallAt: 400, boot: 'b', elapsedMs: 1 })).toBe(-600);
});

test('moment: a stopwatch counts the time in which the machine was suspended', () => {
  const times = { monotonicMs: 0, uptimeMs: 500 };
  const boot = { id: 'a', elapsedMs: () => times.monotonicMs, uptimeMs: () => times.uptimeMs };
  const clock = { now: () => 0, monotonic: () => times.monotonicMs };
  const elapsedMs = createTimekeeper(clock, boot).stopwatch();
  times.monotonicMs += 30;
  expect(elapsedMs()).toBe(30);
  times.uptimeMs += 60_000;
  expect(elapsedMs()).toBe(60_000);
});

test.skipIf(process.platform !== 'linux')('moment: a process is known by its start and its namespace', () => {
  const own = thisProcess(systemBoot());
  expect(own).toMatchObject({ pid: process.pid, namespace: expect.stringMatching(/^pid:/) });
  expect(own.startTicks).toBeGreaterThan(0);
  expect(
    isAlive({ ...own, startTicks: Number(own.startTicks) + 1 }, { id: own.boot }),
    'a later process',
  ).toBe(false);
  expect([isAlive(own, { id: own.boot }), isAlive(own, { id: 'another boot' })]).toEqual([true, false]);
});
