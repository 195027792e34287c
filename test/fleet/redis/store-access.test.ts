/** A replica's access to its store: what each script is sent with, the store's time, and the answers that are refused. */
import { expect, test } from 'vitest';
import { FleetScript, fieldsOf, fleetKeys, StoreClock } from '../../../src/fleet/redis/store.ts';
import { until } from '../../support/until.ts';
import { openAccess, STORE_AT } from './scripted-access.ts';

function openClock() {
  let now = 0;
  const clock = new StoreClock(() => now);
  return {
    clock,
    bounds: () => [clock.atLeast(), clock.atMost()],
    /** Records an answer that took `tripMs` and is read now. */
    record: (storeAt: number, tripMs: number) => clock.record(storeAt, now - tripMs),
    pass: (ms: number) => (now += ms),
  };
}

test('store clock: an answer bounds the time of the store, and the bounds move with time', () => {
  const { record, bounds, pass } = openClock();
  expect(bounds(), 'before the first answer').toEqual([0, 0]);
  pass(100);
  expect(record(STORE_AT, 30)).toBe(false);
  expect(bounds(), 'the store gives whole ms').toEqual([STORE_AT, STORE_AT + 31]);
  pass(1_000);
  expect(bounds()).toEqual([STORE_AT + 1_000, STORE_AT + 1_031]);
});

test('store clock: the fastest of the last sixteen answers within a minute counts', () => {
  const slow = 50;
  const bestTrip = (answers: number, lastsMs: number) => {
    const { clock, record, pass } = openClock();
    pass(1_000);
    record(STORE_AT, 2);
    for (let answer = 1; answer <= answers; answer += 1) {
      pass(lastsMs / answers);
      record(STORE_AT + (answer * lastsMs) / answers, slow);
    }
    return clock.atMost() - clock.atLeast() - 1;
  };
  expect([bestTrip(15, 1_500), bestTrip(16, 1_600)]).toEqual([2, slow]);
  expect([bestTrip(1, 59_999), bestTrip(1, 60_000)]).toEqual([2, slow]);
});

test.each([
  [-111, true],
  [-110, false],
  [111, false],
  [112, true],
])(
  'store clock: a difference of %d ms after 10 s means that somebody set the clock: %s',
  (differenceMs, wasSet) => {
    const { record, bounds, pass } = openClock();
    pass(1_000);
    record(STORE_AT, 0);
    pass(10_000);
    expect(record(STORE_AT + 10_000 + differenceMs, 0)).toBe(wasSet);
    const newest = STORE_AT + 10_000 + (wasSet ? differenceMs : 0);
    expect(bounds(), 'the earlier answers say nothing then').toEqual([newest, newest + 1]);
  },
);

test('store clock: the time that the answers took widens what is possible', () => {
  const { record, pass } = openClock();
  pass(1_000);
  record(STORE_AT, 40); // read at the store up to 40 ms ago
  pass(1_000);
  expect(record(STORE_AT + 1_000 + 40 + 101, 20)).toBe(false);
  const early = openClock();
  early.pass(1_000);
  early.record(STORE_AT, 0);
  early.pass(1_000);
  expect(early.record(STORE_AT + 1_000 - 20 - 101, 20)).toBe(false);
  expect(early.record(STORE_AT + 1_000 - 20 - 110 - 30, 20)).toBe(true);
});

const SCRIPT = new FleetScript('try', 'return answer(unpack(ARGV, 5))');
/** The arguments of a script after its hash: the keys, the epoch, the ms since the last answer, an id, a set clock. */
const inputOf = (command: readonly string[] = []) =>
  command.slice(2).map((each) => (/^[0-9a-f]{16}$/.test(each) ? 'ID' : each));
const KEY = fleetKeys('crawl').epoch;

test('store access: it greets a new connection three times, then joins over it', async () => {
  const joined: unknown[] = [];
  const { store, access, timings } = await openAccess({
    join: async (client) => void joined.push(await client.call(['JOIN'])),
  });
  expect(store.commands.map(([name]) => name)).toEqual(['EVALSHA', 'EVALSHA', 'EVALSHA', 'JOIN']);
  expect(store.commands.slice(0, 3).map(inputOf)).toEqual([
    ['1', KEY, '', '0', 'ID', '0'],
    ['1', KEY, 'e1', '0', 'ID', '0'],
    ['1', KEY, 'e1', '0', 'ID', '0'],
  ]);
  expect(new Set(store.commands.slice(0, 3).map((command) => command[6])).size, 'new ids').toBe(3);
  expect([joined.length, access.epochId, access.connection.fault]).toEqual([1, 'e1', undefined]);
  expect(timings).toEqual(Array(3).fill(['hello', 0]));
});

test('store access: each script has its keys and arguments, and the age of the last contact', async () => {
  const { clock, state, store, access, timings } = await openAccess({
    answer: ([, , keys]) => ['x', keys ?? ''],
  });
  clock.advance(2.5);
  state.tripMs = 7;
  const { epoch, values } = await access.run(SCRIPT, { keys: ['k1', 'k2'], args: ['a', 1] });
  expect(inputOf(store.commands.at(-1))).toEqual(['3', KEY, 'k1', 'k2', 'e1', '3', 'ID', '0', 'a', '1']);
  expect([epoch, values]).toEqual([{ now: STORE_AT, id: 'e1', floorAt: 0, openAt: 0 }, ['x', '3']]);
  expect(timings.at(-1)).toEqual(['try', 7]);
  await access.run(SCRIPT);
  expect(inputOf(store.commands.at(-1))[3], 'since the last one was sent').toBe('7');
});

test('store access: a remembered epoch is told first, and its loss ends no connection that has loaded nothing', async () => {
  const { store, access } = await openAccess({ rememberedEpoch: 'e0' });
  expect(store.commands.map((command) => inputOf(command)[2])).toEqual(['e0', 'e1', 'e1']);
  expect([access.connection.fault, access.epochId]).toEqual([undefined, 'e1']);
});

test('store access: another epoch ends the connection, so that all is loaded again', async () => {
  const { state, access } = await openAccess();
  await access.run(SCRIPT);
  expect(access.connection.fault).toBeUndefined();
  state.epoch = 'e2';
  await access.run(SCRIPT);
  await until('it is lost', () => access.connection.fault !== undefined);
  expect([access.connection.fault?.code, access.epochId]).toEqual(['fleet-store-lost', 'e2']);
});

test('store access: the next script says that the clock of the store was set, and the one after does not', async () => {
  const { state, store, access } = await openAccess();
  state.now += 3_600_000;
  for (const wasSet of ['0', '1', '0']) {
    await access.run(SCRIPT);
    expect(inputOf(store.commands.at(-1))[5]).toBe(wasSet);
  }
});

test('store access: moments are converted so that nothing seems to end later than it does', async () => {
  const { clock, state, access } = await openAccess();
  state.now += 30_000;
  clock.advance(30_000);
  const base = STORE_AT + 30_000;
  const local = clock.monotonic();
  expect([access.now, access.toStoreTime(local), access.toLocalTime(base)]).toEqual([
    base + 1,
    base,
    local - 1,
  ]);
  expect(access.toStoreTime(local + 5_000.7)).toBe(base + 5_000);
  clock.advance(500);
  expect([access.toStoreTime(local), access.toLocalTime(base)]).toEqual([base, local - 1]);
});

test.each([
  [50, 0],
  [51, 51],
])(
  'store access: a suspension counts if the inexact clock shows it: %d ms as %d',
  async (suspendedMs, countedMs) => {
    const { state, access, clock } = await openAccess();
    clock.advance(1_000);
    state.suspendedMs = suspendedMs;
    expect(access.now).toBe(STORE_AT + 1 + 1_000 + countedMs);
  },
);

test('store access: a script that the store lacks is sent as text, after no other error', async () => {
  let lacks = 'NOSCRIPT No matching script.';
  const { store, access } = await openAccess({
    answer: ([name, , , , , , , , only]) => (name === 'EVALSHA' && only === 'x' ? new Error(lacks) : 'done'),
  });
  expect((await access.run(SCRIPT, { args: ['x'] })).values).toEqual(['done']);
  const [hashed, text] = store.commands.slice(-2);
  expect([hashed?.[0], text?.[0]]).toEqual(['EVALSHA', 'EVAL']);
  expect(text?.slice(2)).toEqual(hashed?.slice(2));
  expect(text?.[1]).toMatch(/\nreturn answer\(unpack\(ARGV, 5\)\)$/);
  lacks = 'ERR NOSCRIPT';
  const before = store.commands.length;
  await expect(access.run(SCRIPT, { args: ['x'] })).rejects.toMatchObject({ code: 'fleet-store-unusable' });
  expect(store.commands).toHaveLength(before + 1);
});

test.each([
  [
    'FORMAT 12',
    'the data in the store has format 12, and this noria knows formats up to 2; update this noria',
  ],
  ['IDENTITY', 'the store does not report run_id and master_replid in INFO'],
  ['ERR FORMAT 12', 'the store answered ERR FORMAT 12'],
])('store access: a script that the store refuses makes it unusable (%s)', async (message, why) => {
  let refusal: Error | undefined;
  const { access } = await openAccess({ answer: () => refusal ?? [] });
  refusal = new Error(message);
  const error = await access.run(SCRIPT).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: 'fleet-store-unusable', cause: { message } });
  expect(String(error)).toContain(`the fleet's store at the store cannot be used: ${why}`);
});

test.each([
  [['x', 'e1', '0', '0']],
  [['1', 'e1', 'x', '0']],
  [['1', 'e1', '0', 'x']],
  [['1', 'e1', '0']],
  ['OK'],
  [null],
])('store access: an answer that no script gives makes the store unusable (%j)', async (whole) => {
  let strange = false;
  const { access } = await openAccess({ answer: () => (strange ? { whole } : []) });
  strange = true;
  await expect(access.run(SCRIPT)).rejects.toMatchObject({
    code: 'fleet-store-unusable',
    message: 'the store answered a script of noria with something else',
  });
});

test('store access: fields are pairs of a name and a value', () => {
  expect(fieldsOf(['a', '1', 'b', null, 'c'])).toEqual({ a: '1', b: 'null', c: '' });
  expect([fieldsOf(undefined), fieldsOf('a')]).toEqual([{}, {}]);
});

test('store access: the keys of a fleet are its own, and name no instance, session or day of another', () => {
  const [one, two] = [fleetKeys('one'), fleetKeys('two')];
  const all = (keys: typeof one) => [
    ...[
      keys.prefix,
      keys.epoch,
      keys.check,
      keys.instance('a'),
      keys.instance('b'),
      keys.moved('a'),
      keys.pace('a'),
    ],
    ...[
      keys.session('a', 'b'),
      keys.session('ab', ''),
      keys.session('b', 'a'),
      keys.day('a', 1),
      keys.day('a', 2),
    ],
    ...[keys.day('b', 1), keys.pace('b'), keys.moved('b')],
  ];
  const names = [...all(one), ...all(two)];
  expect(new Set(names).size).toBe(names.length);
  expect(all(one).every((name) => name.startsWith('{noria:one}'))).toBe(true);
  expect(one.instance('secret')).not.toContain('secret');
});
