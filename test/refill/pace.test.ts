import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { Pace, type Place, paceKey } from '../../src/refill/pace.ts';
import { claimCall, settleCall } from '../../src/refill/pace-rule.ts';
import { createPaceMemory, type PaceStore } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { manualTimekeeper, pass, settle } from './rig.ts';
import { type TestTurn, take } from './take.ts';

interface TurnOptions extends Partial<TestTurn<string>> {
  readonly intervalMs?: number;
  readonly tookMs?: number;
  readonly connectMs?: number;
  readonly send?: (permit: Place) => Promise<string>;
}

function open(changes: Partial<PaceStore> = {}) {
  const clock = new ManualClock();
  const store = { ...createPaceMemory(manualTimekeeper(clock)), ...changes };
  const openPace = () => new Pace('service 1', { store, clock, random: () => 0 });
  const starts: [string, number][] = [];
  const wait = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
  const sendAs =
    (name: string, tookMs = 100) =>
    async (permit: Place) => {
      permit.beforeWrite();
      starts.push([name, clock.monotonic()]);
      await wait(tookMs);
      permit.answered();
      return name;
    };
  const turn = (name: string, more: TurnOptions = {}): TestTurn<string> => {
    const { intervalMs = 1_000, connectMs = 0, tookMs, send = sendAs(name, tookMs), ...rest } = more;
    return {
      rule: { intervalMs, callTimeoutMs: 5_000 },
      open: async () => {
        if (connectMs > 0) await wait(connectMs);
        const settlement = { kind: 'done' } as const;
        return { send: async (permit) => ({ result: await send(permit), settlement }), close: () => {} };
      },
      ...rest,
    };
  };
  return { clock, pace: openPace(), openPace, store, starts, turn, sendAs };
}

const never = new AbortController().signal;

test('pace: simultaneous turns call one after the other, at the pace, in order', async () => {
  const { clock, pace, starts, turn } = open();
  const results = ['a', 'b', 'c'].map((name) => take(pace, turn(name), never));
  await pass(clock, 4_000, 50);
  expect(await Promise.all(results)).toEqual(['a', 'b', 'c']);
  expect(starts).toEqual([
    ['a', 0],
    ['b', 1_350], // includes 100 ms for the answer
    ['c', 2_700],
  ]);
  expect(clock.armedCount).toBe(0);
});

test('pace: the interval counts from the answer of a call that takes longer', async () => {
  const { clock, pace, starts, turn } = open();
  void take(pace, turn('slow', { tookMs: 3_000 }), never);
  void take(pace, turn('next'), never);
  await pass(clock, 6_000, 50);
  expect(starts).toEqual([
    ['slow', 0],
    ['next', 4_250],
  ]);
});

test('pace: an interval below a second stays usable, with one call in flight', async () => {
  const { clock, pace, starts, turn } = open();
  for (const name of ['a', 'b', 'c']) void take(pace, turn(name, { intervalMs: 100, tookMs: 300 }), never);
  await pass(clock, 2_000, 50);
  expect(starts.map(([, at]) => at)).toEqual([0, 650, 1_300]);
});

test('pace: of two callers that always want more, the one with the longer interval draws, too', async () => {
  const { clock, openPace, starts, turn } = open();
  const callAgain = async (name: string, intervalMs: number) => {
    const pace = openPace(); // each has its own pace, as in another process
    while (clock.monotonic() < 60_000) await take(pace, turn(name, { intervalMs }), never);
  };
  const callers = [callAgain('often', 1_000), callAgain('rare', 2_000)];
  await pass(clock, 70_000, 50);
  await Promise.all(callers);
  const count = (name: string) => starts.filter(([caller]) => caller === name).length;
  expect(Math.abs(count('often') - count('rare'))).toBeLessThanOrEqual(1);
  expect(count('rare')).toBeGreaterThanOrEqual(16);
});

test('pace: a slow connection keeps its place, and its call does not wait for the pace again', async () => {
  const { clock, openPace, starts, turn } = open();
  void take(openPace(), turn('slow', { connectMs: 8_000 }), never);
  await pass(clock, 50, 50);
  void take(openPace(), turn('next'), never);
  await pass(clock, 12_000, 50);
  expect(starts).toEqual([
    ['slow', 8_000],
    ['next', 9_350],
  ]);
});

test('pace: a permit that is 2 s old is given back, and the turn starts again', async () => {
  const { clock, pace, starts, turn, sendAs } = open();
  let stops = 1;
  const send = async (permit: Place) => {
    if (stops > 0) clock.advance(2_000); // simulates that the process was stopped
    stops -= 1;
    return sendAs('late')(permit);
  };
  const taken = take(pace, turn('late', { send }), never);
  void take(pace, turn('next'), never);
  await pass(clock, 4_000, 50);
  expect(await taken).toBe('late');
  expect(starts).toEqual([
    ['next', 3_250], // this turn computed its wait while the call seemed to be in flight
    ['late', 4_600],
  ]);
});

test('pace: a permit that another process has replaced in the meantime is not restored', async () => {
  const { clock, openPace, starts, turn, sendAs } = open();
  let stops = 1;
  const send = async (permit: Place) => {
    if (stops > 0) await new Promise<void>((resolve) => clock.after(8_250, resolve)); // 5 s + 2 s + interval
    stops -= 1;
    return sendAs('late')(permit);
  };
  void take(openPace(), turn('late', { send }), never);
  await settle();
  void take(openPace(), turn('other'), never);
  await pass(clock, 12_000, 50);
  expect(starts).toEqual([
    ['other', 8_250],
    ['late', 9_600],
  ]);
});

test('pace: a permit is for one call, and says how old it is', async () => {
  const { clock, pace, turn } = open();
  const send = async (permit: Place) => {
    expect(permit.permit).toBe('unused');
    clock.advance(1_999.4);
    permit.beforeWrite();
    expect(permit.permit).toBe('used');
    expect(() => permit.beforeWrite()).toThrow('was already 1999 ms old');
    return 'sent';
  };
  const taken = take(pace, turn('one', { send }), never).catch((error: unknown) => error);
  await pass(clock, 20_000, 50);
  expect(await taken, 'the second write makes each permit an expired one').toMatchObject({
    code: 'state-unwritable',
  });
});

test('pace: with an interval of 0, nothing waits and nothing is recorded', async () => {
  let changes = 0;
  const change = () => {
    changes += 1;
    return Promise.reject(new NoriaError('state-unwritable', 'ENOSPC'));
  };
  const { clock, pace, starts, turn } = open({ change });
  const free = (name: string) => take(pace, turn(name, { intervalMs: 0 }), never);
  const results = Promise.all([free('a'), free('b')]);
  await pass(clock, 100, 50);
  expect(await results).toEqual(['a', 'b']);
  expect(starts).toEqual([
    ['a', 0],
    ['b', 0],
  ]);
  expect([pace.nextInMs, clock.armedCount, changes]).toEqual([0, 0, 0]);
});

test('pace: it knows when the next call is free, as of its last access', async () => {
  const { clock, pace, turn } = open();
  expect(pace.nextInMs).toBe(0);
  const taken = take(pace, turn('a', { tookMs: 500 }), never);
  await pass(clock, 400, 100);
  expect(pace.nextInMs, 'while the call is in flight').toBe(1_250 - 400);
  await pass(clock, 100, 100);
  await taken;
  expect(pace.nextInMs, 'from the answer').toBe(1_250);
  await pass(clock, 2_000);
  expect(pace.nextInMs).toBe(0);
});

test('pace: a call that takes long keeps no place in the queue', async () => {
  const { clock, openPace, starts, turn } = open();
  void take(openPace(), turn('slow', { tookMs: 3_000 }), never);
  await pass(clock, 2_500, 50);
  const other = openPace();
  void take(other, turn('next'), never);
  await settle();
  expect(other.nextInMs, 'as if the call arrived now').toBe(1_250);
  await pass(clock, 6_000, 50);
  expect(starts).toEqual([
    ['slow', 0],
    ['next', 4_250],
  ]);
});

test('pace: a turn that lost its place, because the process was stopped, waits again', async () => {
  const { clock, pace, store, starts, turn } = open();
  const other = { id: 'other', rule: { intervalMs: 1_000, callTimeoutMs: 5_000 } };
  let opened = 0;
  const opening = turn('stopped');
  const taken = take(
    pace,
    {
      ...opening,
      open: async () => {
        opened += 1;
        if (opened > 1) return opening.open();
        clock.advance(3_500);
        await store.change('service 1', (entry, now) => claimCall(entry, now, other));
        await store.change('service 1', (entry, now) =>
          settleCall(entry, now, {
            ...{ turn: other, answeredAt: now, settlement: { kind: 'done' }, random: () => 0 },
          }),
        );
        return opening.open();
      },
    },
    never,
  );
  await pass(clock, 3_000, 50);
  expect(await taken).toBe('stopped');
  expect([opened, starts]).toEqual([2, [['stopped', 4_750]]]);
});

test('pace: a place that cannot be given back is lost in silence', async () => {
  const memory = createPaceMemory(manualTimekeeper(new ManualClock()));
  let isFull = false;
  const full = new NoriaError('state-unwritable', 'ENOSPC');
  const change: PaceStore['change'] = (key, decide) =>
    isFull ? Promise.reject(full) : memory.change(key, decide);
  const { clock, pace, turn } = open({ change });
  const opens: (() => void)[] = [];
  const waiting = () => new Promise<undefined>((resolve) => opens.push(() => resolve(undefined)));
  const taken = take(pace, { ...turn('a'), open: waiting }, never);
  await settle();
  isFull = true;
  await pass(clock, 3_000, 500); // it cannot renew its place either
  for (const open of opens) open();
  expect(await taken).toBeUndefined();
  expect(clock.armedCount).toBe(0);
});

test('pace: a state folder that takes longer than a permit lives ends the turn with an error', async () => {
  const { clock, pace, turn, sendAs, starts } = open();
  let tries = 0;
  const send = async (permit: Place) => {
    tries += 1;
    clock.advance(2_000);
    return sendAs('never')(permit);
  };
  await expect(take(pace, turn('never', { send }), never)).rejects.toMatchObject({
    code: 'state-unwritable',
  });
  expect([tries, starts]).toEqual([3, []]);
});

test('pace: a call that is not sent costs no permit', async () => {
  const { clock, pace, starts, turn } = open();
  expect(await take(pace, turn('not sent', { send: async () => 'not sent' }), never)).toBe('not sent');
  expect(await take(pace, { ...turn('no connection'), open: async () => undefined }, never)).toBeUndefined();
  void take(pace, turn('next'), never);
  await settle();
  expect(starts).toEqual([['next', clock.monotonic()]]);
});

test('pace: an aborted wait ends at once, leaves the queue and no timer', async () => {
  const { clock, pace, store, turn } = open();
  await Promise.all([take(pace, turn('first'), never), pass(clock, 200, 50)]);
  const abort = new AbortController();
  const waits: number[] = [];
  const waiting = take(pace, turn('second', { onWait: (ms) => waits.push(ms) }), abort.signal);
  await settle();
  expect(waits).toEqual([1_150]);
  expect(pace.nextInMs).toBe(1_150);
  abort.abort();
  expect(await waiting).toBeUndefined();
  expect(clock.armedCount).toBe(0);
  expect(await store.change('service 1', (entry) => ({ result: entry?.queue }))).toEqual([]);
});

test('pace: a turn that is no longer wanted after its wait uses no permit', async () => {
  const { clock, pace, starts, turn } = open();
  await Promise.all([take(pace, turn('first'), never), pass(clock, 200, 50)]);
  let wanted = true;
  const waiting = take(pace, turn('second', { isWanted: () => wanted }), never);
  await settle();
  wanted = false;
  await pass(clock, 2_000, 50);
  expect(await waiting).toBeUndefined();
  void take(pace, turn('third'), never);
  await settle();
  expect(starts).toEqual([
    ['first', 0],
    ['third', 2_200],
  ]);
});

test('pace: a turn that is aborted while its claim is being written makes no call', async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  const abort = new AbortController();
  const change: PaceStore['change'] = async (key, decide) => {
    let isClaim = false;
    const result = await memory.change(key, (entry, now) => {
      const decision = decide(entry, now);
      isClaim = decision.newEntry?.call?.fate === 'pending';
      return decision;
    });
    if (isClaim) abort.abort();
    return result;
  };
  const { pace, starts, turn } = open({ ...memory, change });
  expect(await take(pace, turn('aborted'), abort.signal)).toBeUndefined();
  expect(abort.signal.aborted).toBe(true);
  expect(starts).toEqual([]);
  expect(await memory.change('service 1', (entry) => ({ result: entry }))).toMatchObject({ queue: [] });
});

test('pace: an exception of a call is rethrown, and the pace counts from its end', async () => {
  const { clock, pace, starts, turn } = open();
  const send = async (permit: Place) => {
    permit.beforeWrite();
    clock.advance(300);
    throw new RangeError('broken');
  };
  await expect(take(pace, turn('failing', { send }), never)).rejects.toThrow('broken');
  void take(pace, turn('next'), never);
  await pass(clock, 2_000, 50);
  expect(starts).toEqual([['next', 1_550]]);
});

test('pace: a call whose claim cannot be written is not made', async () => {
  const full = new NoriaError('state-unwritable', 'the disk is full');
  const { pace, starts, turn } = open({ change: () => Promise.reject(full) });
  await expect(take(pace, turn('never'), never)).rejects.toBe(full);
  expect(starts).toEqual([]);
});

test('pace: the key of an instance ignores letter case and trailing slashes of the address', () => {
  const key = paceKey({ baseUrl: 'http://Extract.test/', instance: '1' });
  expect(paceKey({ baseUrl: 'http://extract.test', instance: '1' })).toBe(key);
  expect(paceKey({ baseUrl: 'http://extract.test', instance: '2' })).not.toBe(key);
  expect(paceKey({ extractHost: 'node7.test', instance: '1' })).not.toBe(key);
});

test('pace: an entry that its store has lost during the call allows the next one at once', async () => {
  const clock = new ManualClock();
  let isLost = false;
  const memory = createPaceMemory(manualTimekeeper(clock));
  const change: PaceStore['change'] = (key, decide) => memory.change(isLost ? 'emptied' : key, decide);
  const pace = new Pace('service 1', { store: { ...memory, change }, clock, random: () => 0 });
  const place = pace.enter({ intervalMs: 1_000, callTimeoutMs: 5_000 });
  for await (const _ of place.waits(never)) expect.unreachable();
  const sent = await place.send(async (permit) => {
    permit.beforeWrite();
    expect(pace.nextInMs).toBe(1_250);
    isLost = true;
    return 'done';
  });
  expect([sent, pace.nextInMs]).toEqual([{ result: 'done' }, 0]);
  await place.leave();
});
