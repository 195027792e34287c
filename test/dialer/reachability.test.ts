import { expect, test } from 'vitest';
import { Reachability } from '../../src/dialer/reachability.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('reachability: a target counts as reached for half a minute, a member as working for a minute', () => {
  const clock = new ManualClock();
  const reachability = new Reachability(clock);
  expect([reachability.targetReached('a:1'), reachability.memberWorked('m1')]).toEqual([false, false]);
  reachability.recordReached('m1', 'a:1');
  clock.advance(30_000);
  expect([
    reachability.targetReached('a:1'),
    reachability.targetReached('b:1'),
    reachability.memberWorked('m1'),
  ]).toEqual([true, false, true]);
  clock.advance(1);
  expect([reachability.targetReached('a:1'), reachability.memberWorked('m1')]).toEqual([false, true]);
  clock.advance(30_000);
  expect(reachability.memberWorked('m1')).toBe(false);
});

test('reachability: repeated success renews both', () => {
  const clock = new ManualClock();
  const reachability = new Reachability(clock);
  for (let second = 0; second < 120; second += 1) {
    reachability.recordReached('m1', 'a:1');
    clock.advance(999);
  }
  expect([reachability.targetReached('a:1'), reachability.memberWorked('m1')]).toEqual([true, true]);
});

test('reachability: counts different unreachable targets in a row per member, until it reaches one or is blamed', () => {
  const reachability = new Reachability(new ManualClock());
  expect(['a:1', 'b:1', 'a:1', 'c:1'].map((target) => reachability.recordUnreachable('m1', target))).toEqual([
    1, 2, 2, 3,
  ]);
  expect(reachability.recordUnreachable('m2', 'a:1')).toBe(1);
  reachability.recordReached('m1', 'z:1');
  expect(reachability.recordUnreachable('m1', 'a:1')).toBe(1);
  reachability.resetUnreachable('m1');
  expect(reachability.recordUnreachable('m1', 'b:1')).toBe(1);
});

test('reachability: replaces the oldest entries when it is full', () => {
  const reachability = new Reachability(new ManualClock());
  for (let index = 0; index < 5_000; index += 1) {
    reachability.recordReached(`m${index}`, `t${index}:1`);
    reachability.recordUnreachable(`d${index}`, 'a:1');
  }
  expect([reachability.targetReached('t0:1'), reachability.targetReached('t4999:1')]).toEqual([false, true]);
  expect([reachability.memberWorked('m0'), reachability.memberWorked('m4999')]).toEqual([false, true]);
  expect([
    reachability.recordUnreachable('d0', 'b:1'),
    reachability.recordUnreachable('d4999', 'b:1'),
  ]).toEqual([1, 2]);
});
