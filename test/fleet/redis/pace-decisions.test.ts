/** What a replica makes of the store's answers about the pace, and of the entry that a store without its last writes has. */
import { expect, test } from 'vitest';
import { DayCounts, RedisPaceStore } from '../../../src/fleet/redis/pace-store.ts';
import { fleetKeys } from '../../../src/fleet/redis/store.ts';
import type { LastCall, PaceEntry } from '../../../src/state/pace-file.ts';
import { until } from '../../support/until.ts';
import { openAccess, STORE_AT } from './scripted-access.ts';

const CALL_TIMEOUT_MS = 5_000;
/** The longest time from a claim until its call has arrived. */
const WITHIN_MS = 2_000 + CALL_TIMEOUT_MS;
const momentAt = (wallAt: number) => ({ wallAt, boot: 'e1', elapsedMs: wallAt });
const call = (changes: Partial<LastCall> = {}): LastCall => ({
  ...{ id: 'one', claimedAt: momentAt(STORE_AT), arrivedWithinMs: WITHIN_MS, holdMs: 0, fate: 'pending' },
  ...changes,
});

/** @param outcomes - the store's answers to writes, one after the other; then always `written`. */
async function openPace(stored: { entry?: string; version?: string } = {}, outcomes: string[][] = []) {
  const events: string[] = [];
  const written: (readonly string[])[] = [];
  const opened = await openAccess({
    answer: (command) => {
      if (command[2] === '1') return [];
      if (command[2] === '2') {
        events.push('read');
        return [stored.version ?? '0', stored.entry ?? ''];
      }
      written.push(command.slice(3));
      const outcome = outcomes.shift() ?? ['written'];
      events.push(outcome.join(' '));
      return outcome;
    },
  });
  const pace = new RedisPaceStore({
    ...{
      store: opened.access,
      clock: opened.clock,
      stopwatch: () => () => 7,
      callTimeoutMs: () => CALL_TIMEOUT_MS,
    },
    log: {
      position: (key) => (key === 'city' ? 42 : 0),
      flushed: async () => void events.push('flushed'),
      catchUp: async (key, number) => void events.push(`${key} caught up with ${number}`),
    },
    onClaim: (outcome) => events.push(outcome),
  });
  const change = (newEntry?: PaceEntry) =>
    pace.change('city', (entry, now) => ({ ...(newEntry && { newEntry }), result: { entry, now } }));
  return { ...opened, pace, events, written, change };
}

test('pace decisions: a claim is written with what its replica knows, after its own facts', async () => {
  const { change, events, written } = await openPace({ version: '5' });
  const claim = { queue: [], call: call() };
  expect(await change(claim)).toEqual({ entry: undefined, now: momentAt(STORE_AT) });
  expect(events).toEqual(['flushed', 'read', 'written', 'granted']);
  const { epoch, pace, instance } = fleetKeys('crawl');
  const [keys, [known, , , , ...args]] = [written[0]?.slice(0, 3), written[0]?.slice(3) ?? []];
  expect([keys, known, args]).toEqual([
    [epoch, pace('city'), instance('city')],
    'e1',
    ['e1', '5', JSON.stringify(claim), '42'],
  ]);
});

test('pace decisions: a claim that another replica outran, or that is behind the log, is decided again', async () => {
  const { change, events } = await openPace({}, [['outrun'], ['behind', '50'], ['strange']]);
  await change({ queue: [], call: call() });
  const again = ['flushed', 'read'];
  expect(events).toEqual([
    ...[...again, 'outrun', 'outrun', ...again, 'behind 50', 'behind', 'city caught up with 50'],
    ...[...again, 'strange', 'outrun', ...again, 'written', 'granted'],
  ]);
});

test.each<[string, PaceEntry | undefined, PaceEntry]>([
  ['a place in the queue', undefined, { queue: [] }],
  ['the end of a call', { queue: [], call: call() }, { queue: [], call: call({ fate: 'answered' }) }],
  ['the same claim', { queue: [], call: call() }, { queue: [], call: call() }],
])('pace decisions: %s is no claim', async (_, known, newEntry) => {
  const { change, events, written } = await openPace(
    { entry: known === undefined ? '' : JSON.stringify(known) },
    [['outrun']],
  );
  await change(newEntry);
  expect(events).toEqual(['flushed', 'read', 'outrun', 'flushed', 'read', 'written']);
  expect(written.map((args) => args.at(-1))).toEqual(['', '']);
});

test('pace decisions: without a change nothing is written', async () => {
  const { change, events } = await openPace({ entry: JSON.stringify({ queue: [], call: call() }) });
  expect((await change()).entry).toEqual({ queue: [], call: call() });
  expect(events).toEqual(['flushed', 'read']);
});

test('pace decisions: a store that opens later is asked again then', async () => {
  const { change, events, state, clock } = await openPace();
  state.openAt = STORE_AT + 1_500;
  const changed = change();
  // not the limit of a command, which is armed before
  await until('it waits', () => clock.armedCount === 1 && clock.armedMs[0] === 1_500);
  state.now = STORE_AT + 1_500;
  clock.advance(1_500);
  expect((await changed).now).toEqual(momentAt(STORE_AT + 1_500));
  expect(events).toEqual(['flushed', 'read', 'flushed', 'read']);
});

test('pace decisions: after a thousand changes by others it gives up', async () => {
  const { change, events } = await openPace(
    {},
    Array.from({ length: 2_000 }, () => ['outrun']),
  );
  await expect(change({ queue: [], call: call() })).rejects.toMatchObject({
    code: 'fleet-store-lost',
    message: expect.stringContaining('1000 times in a row'),
  });
  expect(events.filter((event) => event === 'read')).toHaveLength(1_000);
});

const floor = (holdMs = 0) => ({
  ...{ id: '', claimedAt: momentAt(STORE_AT), arrivedWithinMs: WITHIN_MS, holdMs, fate: 'unanswered' },
});
const queue = [{ id: 'q', intervalMs: 1, renewedAt: momentAt(STORE_AT), validMs: 9 }];

test.each<[string, PaceEntry | undefined, object]>([
  ['no entry', undefined, { queue: [], call: floor() }],
  ['no call', { queue }, { queue, call: floor() }],
  ['an earlier call', { queue, call: call({ claimedAt: momentAt(STORE_AT - 1) }) }, { queue, call: floor() }],
  [
    'an earlier call whose pause lasts longer',
    { queue, call: call({ claimedAt: momentAt(STORE_AT - 1_000), holdMs: 60_000, arrivedWithinMs: 10 }) },
    { queue, call: floor(60_010 - 1_000 - WITHIN_MS) },
  ],
  ['a call at the floor', { queue, call: call() }, { queue, call: call() }],
  [
    'a later call',
    { queue, call: call({ claimedAt: momentAt(STORE_AT + 1) }) },
    { queue, call: call({ claimedAt: momentAt(STORE_AT + 1) }) },
  ],
])('pace decisions: what a floor of the epoch makes of %s', async (_, stored, entry) => {
  const { change, state } = await openPace({ entry: stored === undefined ? '' : JSON.stringify(stored) });
  state.floorAt = STORE_AT;
  expect((await change()).entry).toEqual(entry);
});

test.each(['no JSON', '7', '{"queue":[],"call":{"fate":"lost"}}'])(
  'pace decisions: an entry that is not one stops this replica (%s)',
  async (entry) => {
    await expect((await openPace({ entry })).change()).rejects.toMatchObject({
      code: 'fleet-store-unusable',
      message: expect.stringContaining('the store has an invalid pace entry'),
    });
  },
);

test('pace decisions: a moment of this replica is the latest possible one of the store', async () => {
  const { pace, state, access, clock } = await openPace();
  expect(pace.now()).toEqual({ wallAt: access.now, boot: 'e1', elapsedMs: access.now });
  clock.advance(500);
  expect([access.now, pace.now().wallAt - STORE_AT, pace.stopwatch()()]).toEqual([STORE_AT + 501, 501, 7]);
  expect(state.epoch).toBe('e1');
});

test('day counts: the store is asked for the days and instances in question, with hashes of the IPs', async () => {
  let count = '3';
  const asked: (readonly string[])[] = [];
  const { access, clock, state } = await openAccess({
    answer: (command) => {
      if (command[2] === '1') return [];
      asked.push(command);
      return count === '' ? new Error('OOM full') : [count];
    },
  });
  const counts = new DayCounts(access);
  counts.refresh();
  expect(counts.used('city'), 'before the first answer').toBe(0);
  counts.add('town', ['203.0.113.1', '203.0.113.2']);
  await until('it is counted', () => counts.used('town') === 3);
  const [added = []] = asked;
  expect([asked.length, added[2], added.length]).toEqual([1, '2', 3 + 2 + 4 + 2]);
  expect(new Set(added.slice(-2)).size).toBe(2);
  for (const hash of added.slice(-2)) expect(hash).toMatch(/^[\w-]{16}$/);
  expect(added[4]).toContain('{noria:crawl}:day:');
  count = '9';
  counts.refresh();
  await until('both are read', () => counts.used('town') === 9 && counts.used('city') === 9);
  expect(asked.slice(1).map((command) => [command[4], command.length])).toEqual([
    [expect.not.stringContaining(String(added[4])), 9],
    [added[4], 9],
  ]);
  state.now += 86_400_000;
  clock.advance(86_400_000);
  expect([counts.used('town'), counts.used('city')], 'another day').toEqual([0, 0]);
  count = '';
  counts.refresh();
  await until('they were asked for', () => asked.length === 5);
  expect(counts.used('town'), 'without an answer it stays').toBe(0);
  expect(asked[4]?.[4]).not.toBe(added[4]);
});
