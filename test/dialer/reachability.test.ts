import { expect, test } from 'vitest';
import { Reachability } from '../../src/dialer/reachability.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('witnesses: a target is reachable for half a minute, a member proven for a minute', () => {
  const clock = new ManualClock();
  const witnesses = new Reachability(clock);
  expect([witnesses.targetReached('a:1'), witnesses.memberWorked('m1')]).toEqual([false, false]);
  witnesses.recordReached('m1', 'a:1');
  clock.advance(30_000);
  expect([
    witnesses.targetReached('a:1'),
    witnesses.targetReached('b:1'),
    witnesses.memberWorked('m1'),
  ]).toEqual([true, false, true]);
  clock.advance(1);
  expect([witnesses.targetReached('a:1'), witnesses.memberWorked('m1')]).toEqual([false, true]);
  clock.advance(30_000);
  expect(witnesses.memberWorked('m1')).toBe(false);
});

test('witnesses: what is seen again and again stays known', () => {
  const clock = new ManualClock();
  const witnesses = new Reachability(clock);
  for (let second = 0; second < 120; second += 1) {
    witnesses.recordReached('m1', 'a:1');
    clock.advance(999);
  }
  expect([witnesses.targetReached('a:1'), witnesses.memberWorked('m1')]).toEqual([true, true]);
});

test('witnesses: different targets in a row are counted for each member, until it reaches one or is judged', () => {
  const witnesses = new Reachability(new ManualClock());
  expect(['a:1', 'b:1', 'a:1', 'c:1'].map((target) => witnesses.recordUnreachable('m1', target))).toEqual([
    1, 2, 2, 3,
  ]);
  expect(witnesses.recordUnreachable('m2', 'a:1')).toBe(1);
  witnesses.recordReached('m1', 'z:1');
  expect(witnesses.recordUnreachable('m1', 'a:1')).toBe(1);
  witnesses.resetUnreachable('m1');
  expect(witnesses.recordUnreachable('m1', 'b:1')).toBe(1);
});

test('witnesses: they forget the oldest rather than grow', () => {
  const witnesses = new Reachability(new ManualClock());
  for (let index = 0; index < 5_000; index += 1) {
    witnesses.recordReached(`m${index}`, `t${index}:1`);
    witnesses.recordUnreachable(`d${index}`, 'a:1');
  }
  expect([witnesses.targetReached('t0:1'), witnesses.targetReached('t4999:1')]).toEqual([false, true]);
  expect([witnesses.memberWorked('m0'), witnesses.memberWorked('m4999')]).toEqual([false, true]);
  expect([witnesses.recordUnreachable('d0', 'b:1'), witnesses.recordUnreachable('d4999', 'b:1')]).toEqual([
    1, 2,
  ]);
});
