import { expect, test } from 'vitest';
import { HOUR_MS } from '../../src/core/duration.ts';
import {
  askTurn,
  claimCall,
  leaveQueue,
  releaseClaim,
  type Settlement,
  settleCall,
  type Turn,
  waitBefore,
} from '../../src/refill/pace-rule.ts';
import type { Moment } from '../../src/state/moment.ts';
import type { PaceEntry } from '../../src/state/pace-file.ts';

const turn = (id: string, intervalMs = 10_000): Turn => ({ id, rule: { intervalMs, callTimeoutMs: 15_000 } });

const A = turn('a');
const B = turn('b');
const C = turn('c');

/** A moment on a machine that started at epoch ms 1,000,000. */
const at = (elapsedMs: number, boot = 'a', wallAt = 1_000_000 + elapsedMs): Moment => ({
  wallAt,
  boot,
  elapsedMs,
});

function claimed(ms: number, before?: PaceEntry, of = A): PaceEntry {
  const { newEntry: next, result } = claimCall(before, at(ms), of);
  if (!result.granted || next === undefined) throw new Error('no permit');
  return next;
}

interface Called {
  readonly settlement?: Settlement;
  /** When the call was answered; `null` if it ended without an answer. */
  readonly answeredMs?: number | null;
  readonly endedMs?: number;
  readonly before?: PaceEntry | undefined;
}

/** The entry after a call that was claimed at `ms` and answered at once. */
function called(
  ms: number,
  { settlement = { kind: 'done' }, answeredMs = ms, endedMs = ms, before }: Called = {},
) {
  const answeredAt = answeredMs === null ? undefined : at(answeredMs);
  const ended = { turn: A, answeredAt, settlement };
  const settled = settleCall(claimed(ms, before), at(endedMs), { ...ended, random: () => 0 }).result;
  if (settled === undefined) throw new Error('not settled');
  return settled;
}

/** The entry after the turn has asked, and how long the turn must wait. */
function asked(
  entry: PaceEntry | undefined,
  ms: number,
  of: Turn,
): [entry: PaceEntry | undefined, waitMs: number] {
  const { newEntry: next = entry, result } = askTurn(entry, at(ms), of);
  return [next, result.waitMs];
}

const waitAt = (entry: PaceEntry, ms: number, boot?: string, wallAt?: number) =>
  waitBefore(entry, at(ms, boot, wallAt), A.rule);

test('pace rule: the first call of an instance may be sent at once, and its claim is recorded', () => {
  expect(askTurn(undefined, at(5), A).result).toEqual({ waitMs: 0, askInMs: 0 });
  const { newEntry: next, result } = claimCall(undefined, at(5), A);
  expect(result).toEqual({ granted: true, before: undefined, sinceArrivalMs: undefined });
  const call = { id: 'a', claimedAt: at(5), arrivedWithinMs: 17_000, holdMs: 0, fate: 'pending' };
  expect(next).toEqual({ call, queue: [], refusals: undefined });
});

test('pace rule: from an answer to the next call it is the interval plus 250 ms', () => {
  const entry = called(0, { answeredMs: 700, endedMs: 900 });
  expect(claimCall(entry, at(10_949), B).result).toEqual({ granted: false, waitMs: 1 });
  expect(claimCall(entry, at(10_950), B).result).toMatchObject({ granted: true, sinceArrivalMs: 10_250 });
});

test('pace rule: a call without an answer counts as arrived when it ended', () => {
  const entry = called(0, { answeredMs: null, endedMs: 15_000 });
  expect(waitAt(entry, 15_000)).toBe(10_250);
  const { result } = claimCall(entry, at(25_250), B);
  expect(result).toMatchObject({ granted: true, sinceArrivalMs: undefined });
});

test('pace rule: while a call is in flight the next one waits as if it arrived now', () => {
  const entry = claimed(0);
  for (const ms of [0, 1_000, 17_000]) expect(waitAt(entry, ms)).toBe(10_250);
});

test('pace rule: a call of unknown fate arrived when use-by time and timeout had passed, at the latest', () => {
  const entry = claimed(0);
  expect(waitAt(entry, 17_001)).toBe(10_249);
  expect(claimCall(entry, at(27_249), B).result.granted).toBe(false);
  expect(claimCall(entry, at(27_250), B).result.granted).toBe(true);
});

test('pace rule: a claim that is given back leaves the entry as it was', () => {
  const before = called(0);
  const { newEntry: next, result } = claimCall(before, at(10_250), B);
  if (!result.granted) throw new Error('no permit');
  expect(releaseClaim(next, B, result.before).newEntry).toEqual(before);
});

test('pace rule: neither a late end nor a claim given back touches the claim of another turn', () => {
  const second = claimed(27_250, claimed(0), B);
  const ended = { turn: A, answeredAt: at(28_000), settlement: { kind: 'done' } } as const;
  expect(settleCall(second, at(28_000), { ...ended, random: () => 0 })).toEqual({ result: second });
  expect(releaseClaim(second, A, undefined)).toEqual({ result: second });
});

test('pace rule: turns call in the order in which they asked', () => {
  const [first, waitMs] = asked(called(0), 1_000, B);
  const [second, longerMs] = asked(first, 2_000, C);
  expect([waitMs, longerMs]).toEqual([9_250, 8_250 + 10_250]);
  expect(claimCall(second, at(10_250), C).result).toEqual({ granted: false, waitMs: 10_250 });
  expect(claimCall(second, at(10_250), B).result.granted).toBe(true);
});

test('pace rule: a waiting turn asks again when the next one may have lost its place', () => {
  const [entry] = asked(called(0), 0, B);
  expect(askTurn(entry, at(0), C).result).toEqual({ waitMs: 20_500, askInMs: 13_250 });
});

test('pace rule: a shorter interval does not overtake a longer one', () => {
  const often = turn('often', 1_000);
  const rare = turn('rare', 2_000);
  const [first] = asked(called(0), 100, rare);
  const [second, waitMs] = asked(first, 200, often);
  expect(waitMs).toBe(2_050 + 1_250);
  expect(claimCall(second, at(1_250), often).result.granted).toBe(false);
  const third = claimed(2_250, second, rare);
  expect(third.queue.map(({ id }) => id)).toEqual(['often']);
});

test('pace rule: a waiting turn writes its place once, and keeps it until some time after its turn came', () => {
  const [entry] = asked(called(0), 0, B);
  for (const ms of [1, 5_000, 10_250]) expect(askTurn(entry, at(ms), B).newEntry, `${ms}`).toBeUndefined();
  const [kept] = asked(entry, 12_000, B);
  expect(kept?.queue[0]?.renewedAt).toEqual(at(12_000));
});

test('pace rule: a turn that does not return loses its place 3 s after its turn came', () => {
  const [entry] = asked(called(0), 0, B);
  expect(claimCall(entry, at(13_249), C).result.granted).toBe(false);
  expect(claimCall(entry, at(13_250), C).result.granted).toBe(true);
  const [late] = asked(asked(entry, 13_250, C)[0], 13_250, B);
  expect(late?.queue.map(({ id }) => id)).toEqual(['c', 'b']);
});

test('pace rule: a turn that ends without a claim leaves the queue', () => {
  const [entry] = asked(asked(called(0), 0, B)[0], 0, C);
  expect(leaveQueue(entry, B).newEntry?.queue.map(({ id }) => id)).toEqual(['c']);
  expect(leaveQueue(entry, A)).toEqual({ result: undefined });
});

test('pace rule: steps of the wall clock have no effect while the machine runs', () => {
  const entry = called(0);
  for (const wallAt of [0, 1_000_000 - HOUR_MS, 1_000_000 + 1_000 * HOUR_MS]) {
    expect(waitAt(entry, 4_000, 'a', wallAt)).toBe(6_250);
  }
});

test('pace rule: after a reboot the wall clock decides', () => {
  const entry = called(0);
  expect(waitAt(entry, 3, 'b', 1_000_000 + 9_000)).toBe(1_250);
  expect(waitAt(entry, 3, 'b', 1_000_000 + 11_000)).toBe(0);
});

test('pace rule: a stored call in the future costs one interval', () => {
  const { call } = called(0);
  if (call === undefined) throw new Error('no call');
  const future = { call: { ...call, claimedAt: at(0, 'b', 9e12) }, queue: [] };
  const [first, waitMs] = asked(future, 1_000, B);
  expect(waitMs).toBe(10_250);
  expect(first?.call?.claimedAt).toEqual(at(1_000));
  expect(claimCall(first, at(11_249), B).result.granted).toBe(false);
  expect(claimCall(first, at(11_250), B).result.granted).toBe(true);
});

test('pace rule: silence counts from the end of the call', () => {
  const entry = called(0, { settlement: { kind: 'silence', ms: 120_000 }, endedMs: 800 });
  expect(waitAt(entry, 800)).toBe(120_250);
});

test('pace rule: each 12002 in a row doubles the next wait, up to 16 times, from the interval the service names', () => {
  let before: PaceEntry | undefined;
  const waits: number[] = [];
  let now = 0;
  for (let times = 0; times < 6; times += 1) {
    before = called(now, { settlement: { kind: 'refused', minMs: undefined }, before });
    waits.push(waitAt(before, now) - 250);
    now += waitAt(before, now);
  }
  const interval = (times: number) => 10_000 * 1.1 ** times;
  expect(waits).toEqual(
    [2, 4, 8, 16, 16, 16].map((factor, index) => Math.ceil(interval(index + 1) * factor)),
  );
  const named = called(0, { settlement: { kind: 'refused', minMs: 30_000 } });
  expect(waitAt(named, 0)).toBe(60_250);
});

test('pace rule: 12002 widens the interval by a tenth, an hour without one takes a tenth back', () => {
  const refused = called(0, { settlement: { kind: 'refused', minMs: undefined } });
  const done = called(60_000, { before: refused });
  expect(waitAt(done, 60_000)).toBe(11_250);
  const later = called(2 * HOUR_MS, { before: done });
  expect(waitAt(later, 2 * HOUR_MS)).toBe(10_250);
  expect(later.refusals).toBeUndefined();
});

test('pace rule: the interval is widened at most four times', () => {
  let before: PaceEntry | undefined;
  for (let times = 0; times < 40; times += 1) {
    before = called(times * 1_200_000, { settlement: { kind: 'refused', minMs: undefined }, before });
  }
  expect(before?.refusals?.widening).toBeLessThanOrEqual(4);
});

test('pace rule: the wait after 12002 has a jitter of a fifth', () => {
  const ended = { turn: A, answeredAt: at(0), settlement: { kind: 'refused', minMs: undefined } } as const;
  const hold = (random: number) =>
    settleCall(claimed(0), at(0), { ...ended, random: () => random }).result?.call?.holdMs ?? 0;
  expect(hold(0.999) / hold(0)).toBeCloseTo(1.2, 2);
});

test('pace rule: a waiting turn renews its place when less than 1.5 s of it are left after its wait', () => {
  const [entry] = asked(called(0), 0, B);
  expect(askTurn(entry, at(11_750), B).newEntry).toBeUndefined();
  expect(askTurn(entry, at(11_751), B).newEntry?.queue).toMatchObject([{ id: 'b', validMs: 3_000 }]);
});

test('pace rule: a turn that renews its place keeps it, with those before and behind, and names its process', () => {
  const process = { pid: 7, boot: 'a' };
  let entry: PaceEntry | undefined = called(0);
  for (const each of [B, C, turn('d')]) [entry] = asked(entry, 0, each);
  const { newEntry: kept } = askTurn(entry, at(23_000), { ...C, process });
  expect(
    kept?.queue.map(({ id }) => id),
    'the first one has lost its place',
  ).toEqual(['c', 'd']);
  expect(kept?.queue[0]).toEqual({
    ...{ id: 'c', intervalMs: 10_000, renewedAt: at(23_000), validMs: 3_000, process },
  });
  const [again] = asked(asked(entry, 5_000, B)[0], 12_000, B);
  expect(again?.queue.map(({ id, process: of }) => [id, of])).toEqual([
    ['b', undefined],
    ['c', undefined],
    ['d', undefined],
  ]);
  expect(again?.call, 'the rest of the entry stays').toEqual(entry?.call);
});

test('pace rule: what was recorded in the future, before a reboot that set the clock back, blocks nobody', () => {
  const future = at(5, 'b', 9e12);
  const queue = [{ id: 'lost', intervalMs: 10_000, renewedAt: future, validMs: 60_000 }];
  expect(askTurn({ queue }, at(0), A).result.waitMs, 'a place').toBe(0);
  const refusals = { inARow: 1, widening: 2, lastAt: future };
  const { call } = called(0);
  expect(waitAt({ queue: [], refusals, ...(call && { call }) }, 0), 'a refusal widens as before').toBe(
    20_250,
  );
  const early = { turn: A, answeredAt: at(0, 'b', 0), settlement: { kind: 'done' } } as const;
  const settled = settleCall(claimed(0), at(900), { ...early, random: () => 0 }).result;
  expect(settled?.call, 'an answer before its call').toMatchObject({ arrivedWithinMs: 0, fate: 'answered' });
});

test('pace rule: a claim that is given back, or the end of a call, keeps the queue and the refusals', () => {
  const refused = called(0, { settlement: { kind: 'refused', minMs: undefined } });
  const [queued] = asked(refused, 100, C);
  const entry = claimed(HOUR_MS, queued, B);
  expect(releaseClaim(entry, B, refused.call).newEntry).toEqual({ ...entry, call: refused.call });
  const waiting = { ...entry, queue: queued?.queue ?? [] };
  const ended = {
    turn: B,
    answeredAt: at(HOUR_MS),
    settlement: { kind: 'refused', minMs: 1 },
    random: () => 0,
  } as const;
  const { result } = settleCall(waiting, at(HOUR_MS), ended);
  expect(result?.queue.map(({ id }) => id)).toEqual(['c']);
  expect(result?.refusals).toEqual({ inARow: 2, widening: 1.1, lastAt: at(HOUR_MS) });
  expect(leaveQueue(waiting, C).newEntry).toEqual({ ...waiting, queue: [] });
  expect(leaveQueue(undefined, C)).toEqual({ result: undefined });
});

test('pace rule: silence also includes the time that the call took after its answer began', () => {
  const entry = called(0, { settlement: { kind: 'silence', ms: 60_000 }, answeredMs: 300, endedMs: 800 });
  expect(entry.call).toMatchObject({ arrivedWithinMs: 300, holdMs: 60_500 });
  expect(waitAt(entry, 800)).toBe(60_250);
});
