/** A replica's shared pool whose store answers late, or in parts: on a manual clock, without a real store. */
import { expect, onTestFinished, test } from 'vitest';
import { RedisSharedPool } from '../../../src/fleet/redis/redis-shared-pool.ts';
import { Seal } from '../../../src/fleet/redis/seal.ts';
import type { SharedSession } from '../../../src/fleet/schemas.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember, timekeeperOf } from '../shared-pool-contract.ts';
import { type ScriptName, STORE_AT, scriptIn } from './scripted-access.ts';
import { type Answer, openScriptedStore } from './scripted-store.ts';
import { instance } from './store-stage.ts';

const seal = new Seal('crawl', [instance('city')]);
/** What a new fleet answers, but for the epoch. */
const ANSWERS: Readonly<Partial<Record<ScriptName, readonly (string | readonly string[])[]>>> = {
  beat: ['0', '', '0', '1', [], []],
  begin: ['', '0', '0', '0', '0'],
  uses: ['0', []],
  news: ['5-0'],
  hold: [[]],
};

/** @param answer - undefined: as a new fleet. */
async function openShared(
  answer: (name: ScriptName, args: readonly string[]) => Answer | Promise<Answer> | 'usual' = () => 'usual',
) {
  const clock = ManualClock.dayOld();
  const asked: string[] = [];
  const store = await openScriptedStore(async ([command, text = '', count = '1', ...rest]) => {
    if (command === 'XREAD') return undefined; // there is nothing new
    if (command === 'INFO') return '# Memory\r\n';
    if (command === 'EVALSHA') return new Error('NOSCRIPT no');
    const isHello = count === '1' && /\nreturn answer\(\)$/.test(text);
    const name = isHello ? undefined : scriptIn(text);
    asked.push(name ?? 'hello');
    const own = name === undefined ? [] : await answer(name, rest.slice(Number(count) + 4));
    if (own instanceof Error || own === undefined) return own;
    const values = own === 'usual' ? (ANSWERS[name ?? 'leave'] ?? []) : own;
    return [String(STORE_AT), 'e1', '0', '0', ...(values as readonly string[])];
  });
  const counts = { unagreed: 0 };
  const warned: string[] = [];
  const pool = new RedisSharedPool({
    ...{ address: store.address, name: 'crawl', clock, random: () => 0, timekeeper: timekeeperOf(clock) },
    ...{ replica: 'a', version: '1', instances: () => [instance('city')], refuses: () => undefined },
    ...{ clients: () => 0, refusals: () => [], callTimeoutMs: () => 1_000 },
    observer: {
      ...{ connected() {}, lost() {}, claimed() {}, lagged() {}, nameTaken() {} },
      warned: (message) => void warned.push(message),
      unagreed: () => {
        counts.unagreed += 1;
      },
    },
  });
  const seen = new Recorder();
  onTestFinished(() => pool.close());
  /** Resolves when the first beat is answered. */
  const follow = async () => {
    const following = pool.follow(seen);
    await until('it is open', () => pool.fault === undefined);
    clock.advance(0);
    await following;
  };
  return { follow, clock, store, pool, seen, asked, counts, warned };
}

test('shared pool: the first write decides whether a store is open, before anything is loaded', async () => {
  const { follow, asked } = await openShared();
  await follow();
  expect(asked.slice(0, 6)).toEqual(['hello', 'hello', 'hello', 'beat', 'begin', 'uses']);
  const refusing = await openShared((name) => (name === 'beat' ? new Error('ERR no writes') : 'usual'));
  await expect(refusing.pool.follow(refusing.seen)).rejects.toMatchObject({ code: 'fleet-store-unusable' });
  expect(refusing.asked).not.toContain('begin');
  expect(refusing.seen.loads).toEqual([]);
});

test('shared pool: one that starts has the living members of a page before the next page has come', async () => {
  const clock = { clock: { monotonic: () => STORE_AT } } as Parameters<typeof sharedMember>[0];
  const record = (id: string, changes: object = {}) => ({
    ...{ member: sharedMember(clock, id), drawnBy: 'b', uses: 1, votes: [] as string[], ...changes },
  });
  const quarantine = { untilAt: STORE_AT + 5_000, fault: 'member-silent', health: { inRow: 1, rests: 1 } };
  const pages = [
    JSON.stringify({ paused: [], resumed: [], reports: [] }),
    JSON.stringify([
      ...[record('member01'), record('member02', { quarantine }), record('member03', { votes: ['b'] })],
      ...[record('member04', { left: { reason: 'evicted' } })],
      record('member05', { member: { ...sharedMember(clock, 'member05', 0) } }),
    ]),
  ];
  const last = Promise.withResolvers<Answer>();
  const {
    pool,
    seen,
    clock: own,
  } = await openShared((name, [place = '']) => {
    if (name === 'begin') return ['7.x', '3', '0', '0', '0'];
    if (name !== 'page') return 'usual';
    const text = pages[Number(place.split(' ')[1])];
    return text === undefined ? last.promise : [text, seal.sign('snapshot', place, text)];
  });
  await pool.follow(seen);
  const about = { source: 'city', member: 'member02' };
  const local = (laterMs: number) => own.monotonic() - 1 + laterMs;
  const member = (id: string) => {
    return { ...sharedMember(clock, id), joinedAt: local(0), endsAt: local(60_000), drawnBy: 'b' };
  };
  expect(seen.facts).toEqual([
    { by: '', fact: { kind: 'member.joined', member: member('member01') } },
    { by: '', fact: { kind: 'member.joined', member: member('member02') } },
    {
      by: '',
      fact: { kind: 'member.quarantined', ...about, quarantine: { ...quarantine, untilAt: local(5_000) } },
    },
  ]);
  expect([seen.loads.length, pool.fault?.message]).toEqual([
    0,
    expect.stringContaining('noria is connecting'),
  ]);
  last.resolve(['[]', '']);
  await until('the state is loaded', () => seen.loads.length === 1);
  expect(seen.loads[0]?.members.map(({ member: { id } }) => id)).toEqual([
    'member01',
    'member02',
    'member03',
    'member04',
  ]);
});

const session: SharedSession = {
  ...{ name: 's1', owner: { user: '', address: '' }, member: 'member01', ttlMs: 60_000, usedAt: 0, uses: 0 },
};

test('shared pool: an answer about a session counts when it comes, and a late one is counted and told', async () => {
  const bound = Promise.withResolvers<Answer>();
  let isLate = false;
  const { pool, follow, seen, counts, clock } = await openShared((name) => {
    if (name !== 'bind') return 'usual';
    return isLate ? bound.promise : ['', '', '1', '0', ''];
  });
  await follow();
  expect(await pool.bindSession(session, undefined)).toEqual(session);
  expect([counts.unagreed, seen.facts]).toEqual([0, []]);
  isLate = true;
  const armed = clock.armedMs.length;
  const binding = pool.bindSession(session, undefined);
  expect(clock.armedMs).toContain(30);
  clock.advance(30);
  expect(await binding).toBeUndefined();
  expect([counts.unagreed, seen.facts]).toEqual([1, []]);
  bound.resolve(['', '', '2', '0', '']);
  await until('it is told', () => seen.facts.length === 1);
  expect(seen.facts).toEqual([{ by: '', fact: { kind: 'session.moved', session, reason: 'bound' } }]);
  expect(clock.armedMs.length).toBe(armed);
  await pool.close();
  expect(await pool.bindSession(session, undefined)).toBeUndefined();
  expect(await pool.findSession('s1')).toBeUndefined();
});

test('shared pool: without news it beats once a second, and sooner for its own', async () => {
  const { pool, follow, asked, clock, seen } = await openShared();
  await follow();
  const beats = () => asked.filter((name) => name === 'beat').length;
  // the first one joins the fleet
  const isQuiet = () => until('its beat is answered', () => seen.views.length === beats() - 1);
  expect(beats()).toBe(2);
  await isQuiet();
  clock.advance(999);
  expect(beats()).toBe(2);
  clock.advance(1);
  await until('the next one is sent', () => beats() === 3);
  await isQuiet();
  pool.beat({ waiting: 1, demand: {}, members: [], sessions: [] });
  pool.beat({ waiting: 2, demand: {}, members: [], sessions: [] });
  clock.advance(99);
  expect(beats()).toBe(3);
  clock.advance(1);
  await until('both are sent at once', () => beats() === 4);
  expect(beats()).toBe(4);
});

test('shared pool: a beat has what has changed since the last one, and all of it if the store has forgotten the replica', async () => {
  const told: (readonly string[])[] = [];
  let missing = '0';
  const { pool, follow, clock, store, seen } = await openShared((name, args) => {
    if (name !== 'beat') return 'usual';
    told.push(args);
    return [missing, '', '0', '1', [], [['0', '0', '0', '3', ['member01', '5 0'], '0 0 0 0 0']]];
  });
  await follow();
  const [joining = [], first = []] = told;
  const [, id, record = ''] = joining;
  expect(joining).toEqual(['a', id, record, '0', '', '', '0']);
  expect(JSON.parse(record)).toMatchObject({
    process: id,
    version: '1',
    instances: [{ source: 'city', size: 10 }],
  });
  const nothing = '0 0 0 0 0';
  expect(first).toEqual(['a', id, '', '0', '1', '5-0', '0', '0', nothing, '0', '0']);
  const next = async (ms = 100) => {
    const before = told.length;
    await until('the last one is answered', () => seen.views.length === told.length - 1);
    clock.advance(ms);
    await until('a beat is sent', () => told.length > before);
    return told.at(-1);
  };
  const at = clock.monotonic();
  const used = { session: 's1', uses: 2, openLeases: 0, usedAt: at, ttlMs: 60_000 };
  const demand = { waiting: 2, stranded: 0, held: 1, usedUpPerSecond: 0.5, perSecond: 0, lastWantedAt: at };
  pool.beat({ waiting: 2, demand: { city: demand }, members: [], sessions: [used] });
  const usedAt = String(STORE_AT + clock.monotonic() - at);
  expect(await next()).toEqual([
    ...['a', id, '', '0', '1', '5-0', '1', '2', usedAt, '60000', '3', '2 0 1 500000 0', usedAt, '0'],
  ]);
  missing = '1';
  expect((await next(1_000))?.slice(2, 7), 'nothing new').toEqual(['', '0', '1', '5-0', '0']);
  missing = '0';
  expect((await next(1_000))?.[2], 'the store has no record').toBe(record);
  expect((await next(1_000))?.[2]).toBe('');
  pool.beat({ waiting: 0, demand: {}, members: [], sessions: [used] });
  store.cut();
  await until('it is lost', () => pool.fault !== undefined && clock.armedMs.includes(100));
  pool.beat({ waiting: 0, demand: {}, members: [], sessions: [used] });
  expect(clock.armedMs, 'only the next attempt to connect').toEqual([100]);
  const before = told.length;
  clock.advance(100);
  await until('it is open again', () => pool.fault === undefined);
  clock.advance(0);
  await until('it has beaten', () => told.length === before + 2);
  expect(told.slice(-2).map((args) => [args[2] === record, args[4], args[6]])).toEqual([
    [true, '', '0'],
    [false, '1', '0'],
  ]);
});
