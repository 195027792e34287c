import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { Pace, type PaceTurn, paceKey } from '../../src/refill/pace.ts';
import { createPaceMemory, type PaceStore } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { manualTimekeeper, pass, settle } from './rig.ts';

function open(changes: Partial<PaceStore> = {}) {
  const clock = new ManualClock();
  const store = { ...createPaceMemory(manualTimekeeper(clock)), ...changes };
  const pace = new Pace('service 1', { store, clock, random: () => 0 });
  const starts: [string, number][] = [];
  const turn = (
    name: string,
    more: Partial<PaceTurn<string>> & { intervalMs?: number; tookMs?: number } = {},
  ): PaceTurn<string> => ({
    rule: { intervalMs: more.intervalMs ?? 1_000, callTimeoutMs: 5_000 },
    call: async () => {
      starts.push([name, clock.monotonic()]);
      await new Promise<void>((resolve) => clock.after(more.tookMs ?? 100, resolve));
      return { result: name, settlement: { kind: 'done' } };
    },
    ...more,
  });
  return { clock, pace, starts, turn };
}

const never = new AbortController().signal;

test('pace: simultaneous turns call one after the other, at the pace, in order', async () => {
  const { clock, pace, starts, turn } = open();
  const results = ['a', 'b', 'c'].map((name) => pace.take(turn(name), never));
  await pass(clock, 4_000, 50);
  expect(await Promise.all(results)).toEqual(['a', 'b', 'c']);
  expect(starts).toEqual([
    ['a', 0],
    ['b', 1_250],
    ['c', 2_500],
  ]);
  expect(clock.armedCount).toBe(0);
});

test('pace: a call that takes longer than the interval blocks the next one', async () => {
  const { clock, pace, starts, turn } = open();
  void pace.take(turn('slow', { tookMs: 3_000 }), never);
  void pace.take(turn('next'), never);
  await pass(clock, 4_000, 50);
  expect(starts).toEqual([
    ['slow', 0],
    ['next', 3_000],
  ]);
});

test('pace: a turn with a longer interval does not block one with a shorter interval', async () => {
  const { clock, pace, starts, turn } = open();
  await Promise.all([pace.take(turn('first'), never), pass(clock, 200, 50)]);
  void pace.take(turn('rare', { intervalMs: 30_000 }), never);
  void pace.take(turn('often'), never);
  await pass(clock, 2_000, 50);
  expect(starts).toEqual([
    ['first', 0],
    ['often', 1_250],
  ]);
});

test('pace: an aborted wait ends at once and leaves no timer', async () => {
  const { clock, pace, turn } = open();
  await Promise.all([pace.take(turn('first'), never), pass(clock, 200, 50)]);
  const abort = new AbortController();
  const waits: number[] = [];
  const waiting = pace.take(turn('second', { onWait: (ms) => waits.push(ms) }), abort.signal);
  await settle();
  expect(waits).toEqual([1_050]);
  expect(pace.nextInMs).toBe(1_050);
  abort.abort();
  expect(await waiting).toBeUndefined();
  expect(clock.armedCount).toBe(0);
});

test('pace: a turn that is no longer wanted after its wait uses no permit', async () => {
  const { clock, pace, starts, turn } = open();
  await Promise.all([pace.take(turn('first'), never), pass(clock, 200, 50)]);
  let wanted = true;
  const waiting = pace.take(turn('second', { isWanted: () => wanted }), never);
  await settle();
  wanted = false;
  await pass(clock, 2_000, 50);
  expect(await waiting).toBeUndefined();
  void pace.take(turn('third'), never);
  await settle();
  expect(starts).toEqual([
    ['first', 0],
    ['third', 2_200],
  ]);
});

test('pace: a turn that is aborted while its claim is being written makes no call', async () => {
  let written: () => void = () => {};
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  const slow: PaceStore = {
    now: memory.now,
    change: async (key, decide) => {
      const result = await memory.change(key, decide);
      await new Promise<void>((resolve) => {
        written = resolve;
      });
      return result;
    },
  };
  const { pace, starts, turn } = open(slow);
  const abort = new AbortController();
  const taken = pace.take(turn('aborted'), abort.signal);
  await settle();
  abort.abort();
  written();
  await settle();
  written();
  expect(await taken).toBeUndefined();
  expect(starts).toEqual([]);
});

test('pace: an exception of a call is rethrown, and the pace holds', async () => {
  const { clock, pace, starts, turn } = open();
  const failing = turn('failing', { call: () => Promise.reject(new RangeError('broken')) });
  await expect(pace.take(failing, never)).rejects.toThrow('broken');
  void pace.take(turn('next'), never);
  await pass(clock, 2_000, 50);
  expect(starts).toEqual([['next', 1_250]]);
});

test('pace: a call whose start cannot be written is not made', async () => {
  const full = new NoriaError('state-unwritable', 'the disk is full');
  const { pace, starts, turn } = open({ change: () => Promise.reject(full) });
  await expect(pace.take(turn('never'), never)).rejects.toBe(full);
  expect(starts).toEqual([]);
});

test('pace: the key of an instance ignores letter case and trailing slashes of the address', () => {
  const key = paceKey({ baseUrl: 'http://Extract.test/', instance: '1' });
  expect(paceKey({ baseUrl: 'http://extract.test', instance: '1' })).toBe(key);
  expect(paceKey({ baseUrl: 'http://extract.test', instance: '2' })).not.toBe(key);
  expect(paceKey({ extractHost: 'node7.test', instance: '1' })).not.toBe(key);
});
