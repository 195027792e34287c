import { expect, test } from 'vitest';
import {
  claimCall,
  type PaceRule,
  type Settlement,
  settleCall,
  waitBefore,
} from '../../src/refill/pace-rule.ts';
import type { Moment } from '../../src/state/moment.ts';
import type { PaceEntry } from '../../src/state/pace-file.ts';

const RULE: PaceRule = { intervalMs: 10_000, callTimeoutMs: 15_000 };
const HOUR_MS = 3_600_000;

/** A moment of a machine that started at epoch ms 1,000,000. */
const at = (elapsedMs: number, boot = 'a', wallAt = 1_000_000 + elapsedMs): Moment => ({
  wallAt,
  boot,
  elapsedMs,
});

function called(
  startedMs: number,
  settlement: Settlement,
  endedMs = startedMs + 200,
  before?: PaceEntry,
): PaceEntry {
  const claim = claimCall(before, at(startedMs), RULE);
  if (!claim.result.granted || claim.next === undefined) throw new Error('no permit');
  const call = { claimedAt: claim.result.claimedAt, startedAt: at(startedMs), rule: RULE, settlement };
  const settled = settleCall(claim.next, at(endedMs), call, () => 0).result;
  if (settled === undefined) throw new Error('not settled');
  return settled;
}

const waitAt = (entry: PaceEntry, ms: number, boot?: string, wallAt?: number) =>
  waitBefore(entry, at(ms, boot, wallAt), RULE);

test('pace rule: the first call of an instance starts at once and is recorded', () => {
  const { next, result } = claimCall(undefined, at(5), RULE);
  expect(result).toEqual({ granted: true, claimedAt: at(5) });
  expect(next).toEqual({ startedAt: at(5), holdMs: 15_000, refusals: undefined });
});

test('pace rule: from start to start it is the interval plus 250 ms', () => {
  const entry = called(0, { kind: 'done' });
  expect(claimCall(entry, at(10_249), RULE).result).toEqual({ granted: false, waitMs: 1 });
  expect(claimCall(entry, at(10_250), RULE).result.granted).toBe(true);
});

test('pace rule: a call in flight blocks the next one for its timeout', () => {
  const { next } = claimCall(undefined, at(0), RULE);
  expect(next && waitAt(next, 10_250)).toBe(5_000);
});

test('pace rule: the interval counts from the sending of the call, not from its claim', () => {
  const claim = claimCall(undefined, at(0), RULE);
  const call = { claimedAt: at(0), startedAt: at(700), rule: RULE, settlement: { kind: 'done' } } as const;
  const { result } = settleCall(claim.next, at(900), call, () => 0);
  expect(result && waitAt(result, 900)).toBe(10_050);
});

test('pace rule: the late end of a call does not touch a later claim', () => {
  const first = claimCall(undefined, at(0), RULE).next;
  const second = claimCall(first, at(15_250), RULE).next;
  const call = { claimedAt: at(0), startedAt: at(0), rule: RULE, settlement: { kind: 'done' } } as const;
  expect(settleCall(second, at(16_000), call, () => 0)).toEqual({ result: second });
});

test('pace rule: steps of the wall clock have no effect while the machine runs', () => {
  const entry = called(0, { kind: 'done' });
  for (const wallAt of [0, 1_000_000 - HOUR_MS, 1_000_000 + 1_000 * HOUR_MS]) {
    expect(waitAt(entry, 4_000, 'a', wallAt)).toBe(6_250);
  }
});

test('pace rule: after a reboot the wall clock decides', () => {
  const entry = called(0, { kind: 'done' });
  expect(waitAt(entry, 3, 'b', 1_000_000 + 9_000)).toBe(1_250);
  expect(waitAt(entry, 3, 'b', 1_000_000 + 11_000)).toBe(0);
});

test('pace rule: a stored start in the future costs one interval', () => {
  const future: PaceEntry = { startedAt: at(0, 'b', 9e12), holdMs: 0, refusals: undefined };
  const first = claimCall(future, at(1_000), RULE);
  expect(first.result).toEqual({ granted: false, waitMs: 10_250 });
  expect(first.next?.startedAt).toEqual(at(1_000));
  expect(claimCall(first.next, at(11_249), RULE).result.granted).toBe(false);
  expect(claimCall(first.next, at(11_250), RULE).result.granted).toBe(true);
});

test('pace rule: silence counts from the answer', () => {
  const entry = called(0, { kind: 'silence', ms: 120_000 }, 800);
  expect(waitAt(entry, 800)).toBe(120_250);
});

test('pace rule: each 12002 in a row doubles the next wait, up to 16 times, from the interval the service names', () => {
  let entry: PaceEntry | undefined;
  const waits: number[] = [];
  let now = 0;
  for (let times = 0; times < 6; times += 1) {
    entry = called(now, { kind: 'refused', leastMs: undefined }, now, entry);
    waits.push(Math.round(waitAt(entry, now) - 250));
    now += Math.ceil(waitAt(entry, now));
  }
  const interval = (times: number) => 10_000 * 1.1 ** times;
  expect(waits).toEqual(
    [2, 4, 8, 16, 16, 16].map((factor, index) => Math.round(interval(index + 1) * factor)),
  );
  const named = called(0, { kind: 'refused', leastMs: 30_000 }, 0);
  expect(waitAt(named, 0)).toBe(60_250);
});

test('pace rule: 12002 widens the interval by a tenth, an hour without one takes a tenth back', () => {
  const refused = called(0, { kind: 'refused', leastMs: undefined });
  const done = called(60_000, { kind: 'done' }, 60_200, refused);
  expect(Math.round(waitAt(done, 60_000))).toBe(11_250);
  const later = called(2 * HOUR_MS, { kind: 'done' }, 2 * HOUR_MS + 200, done);
  expect(Math.round(waitAt(later, 2 * HOUR_MS))).toBe(10_250);
  expect(later.refusals).toBeUndefined();
});

test('pace rule: the interval is widened at most four times', () => {
  let entry: PaceEntry | undefined;
  let now = 0;
  for (let times = 0; times < 40; times += 1) {
    entry = called(now, { kind: 'refused', leastMs: undefined }, now, entry);
    now += 300_000 * 4;
  }
  expect(entry?.refusals?.widening).toBeLessThanOrEqual(4);
});

test('pace rule: the wait after 12002 has a jitter of a fifth', () => {
  const claim = claimCall(undefined, at(0), RULE);
  const call = {
    claimedAt: at(0),
    startedAt: at(0),
    rule: RULE,
    settlement: { kind: 'refused', leastMs: undefined },
  } as const;
  const hold = (random: number) => settleCall(claim.next, at(0), call, () => random).result?.holdMs ?? 0;
  expect(hold(0.999) / hold(0)).toBeCloseTo(1.2, 2);
});
