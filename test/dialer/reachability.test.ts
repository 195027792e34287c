import { expect, test } from 'vitest';
import { networkSign, Reachability } from '../../src/dialer/reachability.ts';
import { ManualClock } from '../support/manual-clock.ts';

function wasReached(reachability: Reachability, target: string): boolean {
  return reachability.sinceReachedMs(target) < Infinity;
}

test('reachability: a target counts as reached for half a minute, a member as working for a minute', () => {
  const clock = ManualClock.dayOld();
  const reachability = new Reachability(clock);
  expect([wasReached(reachability, 'a:1'), reachability.memberWorked('m1')]).toEqual([false, false]);
  reachability.recordReached('m1', 'a:1');
  clock.advance(30_000);
  expect([
    wasReached(reachability, 'a:1'),
    wasReached(reachability, 'b:1'),
    reachability.memberWorked('m1'),
  ]).toEqual([true, false, true]);
  clock.advance(1);
  expect([wasReached(reachability, 'a:1'), reachability.memberWorked('m1')]).toEqual([false, true]);
  clock.advance(30_000);
  expect(reachability.memberWorked('m1')).toBe(false);
});

test('reachability: repeated success renews both', () => {
  const clock = ManualClock.dayOld();
  const reachability = new Reachability(clock);
  for (let second = 0; second < 120; second += 1) {
    reachability.recordReached('m1', 'a:1');
    clock.advance(999);
  }
  expect([wasReached(reachability, 'a:1'), reachability.memberWorked('m1')]).toEqual([true, true]);
});

test('reachability: a cut is the fault of its member only if another member got an answer after the cuts of all others', () => {
  const clock = ManualClock.dayOld();
  const reachability = new Reachability(clock);
  const cut = (member: string) => {
    clock.advance(1);
    return reachability.recordCut(member, 'a:1');
  };
  const answer = (member: string) => {
    clock.advance(1);
    reachability.recordAnswered(member, 'a:1');
  };
  expect(cut('m1'), 'no answer').toBe(false);
  answer('m1');
  expect(cut('m1'), 'an answer of the same member').toBe(false);
  answer('m2');
  expect(cut('m1')).toBe(true);
  expect(cut('m3'), 'another member failed after the answer').toBe(false);
  answer('m2');
  clock.advance(30_000);
  expect(cut('m1'), 'the answer is old').toBe(false);
  answer('m2');
  expect(reachability.recordCut('m1', 'b:1'), 'another target').toBe(false);
});

test('reachability: a member that alone failed for a target is avoided for it for ten seconds', () => {
  const clock = ManualClock.dayOld();
  const reachability = new Reachability(clock);
  reachability.avoid('m1', 'a:1');
  clock.advance(4_000);
  reachability.avoid('m2', 'a:1');
  expect([reachability.membersToAvoid('a:1'), reachability.membersToAvoid('b:1')]).toEqual([
    ['m1', 'm2'],
    [],
  ]);
  clock.advance(6_000);
  expect(reachability.membersToAvoid('a:1')).toEqual(['m2']);
  reachability.avoid('m2', 'a:1');
  clock.advance(9_999);
  expect(reachability.membersToAvoid('a:1')).toEqual(['m2']);
  clock.advance(1);
  expect(reachability.membersToAvoid('a:1')).toEqual([]);
});

test('reachability: replaces the oldest entries when it is full', () => {
  const reachability = new Reachability(ManualClock.dayOld());
  for (let index = 0; index < 5_000; index += 1) {
    reachability.recordReached(`m${index}`, `t${index}:1`);
    reachability.recordAnswered('m1', `t${index}:1`);
  }
  expect([wasReached(reachability, 't0:1'), wasReached(reachability, 't4999:1')]).toEqual([false, true]);
  expect([reachability.memberWorked('m0'), reachability.memberWorked('m4999')]).toEqual([false, true]);
  expect([reachability.recordCut('m2', 't0:1'), reachability.recordCut('m2', 't4999:1')]).toEqual([
    false,
    true,
  ]);
});

test('reachability: a target is mute after thrice its slowest recent first byte, after a second at least', () => {
  const clock = ManualClock.dayOld();
  const reachability = new Reachability(clock);
  expect(reachability.muteAfterMs('a:1'), 'nothing is known').toBe(4_000);
  reachability.recordFirstByte('a:1', 10);
  expect(reachability.muteAfterMs('a:1')).toBe(1_000);
  reachability.recordFirstByte('a:1', 2_000);
  reachability.recordFirstByte('a:1', 10);
  expect(reachability.muteAfterMs('a:1'), 'an old maximum fades').toBeCloseTo(3 * 0.98 * 2_000);
  expect(reachability.muteAfterMs('b:1')).toBe(4_000);
  clock.advance(10 * 60_000 + 1);
  expect(reachability.muteAfterMs('a:1')).toBe(4_000);
});

test.each([
  ['member-incapable', 'SOCKS4 has no IPv6 addresses', 'unknown'],
  ['front-proxy-failed', 'ECONNREFUSED', 'unknown'],
  ['front-proxy-silent', 'end of stream', 'unknown'],
  ['member-silent', 'answer timed out', 'up'],
  ['target-doubted', 'status 502', 'up'],
  ['member-unreachable', 'ECONNREFUSED', 'up'],
  ['member-unreachable', 'ECONNRESET', 'up'],
  ['member-unreachable', 'EMFILE', 'unknown'],
  ['member-unreachable', 'ERR_SOCKET_BAD_PORT', 'unknown'],
  ['member-unreachable', 'EHOSTUNREACH', 'down'],
  ['member-unreachable', 'connection timed out', 'down'],
] as const)('network: %s (%s) shows that it is %s', (fault, detail, sign) => {
  expect(networkSign(fault, detail)).toBe(sign);
});
