/** What a replica takes from the log, the snapshot and the news of sessions in a store, and what it writes there. */
import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import type { Reply, StoreClient } from '../../../src/fleet/redis/connection.ts';
import { InstanceLog } from '../../../src/fleet/redis/instance-log.ts';
import { Seal } from '../../../src/fleet/redis/seal.ts';
import { SessionStore } from '../../../src/fleet/redis/session-store.ts';
import type { Fact, LoggedFact, SharedSession } from '../../../src/fleet/schemas.ts';
import { until } from '../../support/until.ts';
import { sharedMember, siteBan } from '../shared-pool-contract.ts';
import { openAccess, type ScriptName, STORE_AT, scriptIn } from './scripted-access.ts';
import type { Answer } from './scripted-store.ts';
import { instance } from './store-stage.ts';

const CITY = instance('city');
const seal = new Seal('crawl', [CITY]);
const storeClock = { clock: { monotonic: () => STORE_AT } } as Parameters<typeof sharedMember>[0];
const member = (id: string, changes: object = {}) => ({ ...sharedMember(storeClock, id), ...changes });
const joined = (id: string, changes: object = {}): Fact => ({
  kind: 'member.joined',
  member: member(id, changes),
});

/** @param answers - to the scripts of these names, with their arguments from ARGV[5]. */
async function openLog(
  answers: Partial<Record<ScriptName, (args: readonly string[], keys: readonly string[]) => Answer>> = {},
) {
  const asked: (readonly [name: ScriptName, args: readonly string[]])[] = [];
  let client: StoreClient | undefined;
  const opened = await openAccess({
    join: async (joining) => {
      client = joining;
    },
    answer: ([command, text = '', count = '1', ...rest]) => {
      if (count === '1') return [];
      if (command === 'EVALSHA') return new Error('NOSCRIPT no');
      const name = scriptIn(text);
      const [keys, args] = [rest.slice(1, Number(count)), rest.slice(Number(count) + 4)];
      asked.push([name, args]);
      return answers[name]?.(args, keys) ?? [];
    },
  });
  const warned: string[] = [];
  const refuses = (host: string) => (host.startsWith('10.') ? 'private' : undefined);
  const onUnreadable = (where: string, why: string) => warned.push(`${where}: ${why}`);
  const log = new InstanceLog({ store: opened.access, replica: 'a', instance: CITY, refuses, onUnreadable });
  const of = (name: ScriptName) => asked.flatMap(([each, args]) => (each === name ? [args] : []));
  const clientOf = (): StoreClient => client ?? expect.unreachable();
  return { ...opened, log, asked, warned, of, client: clientOf };
}

const entry = (
  number: number,
  facts: readonly unknown[] | string,
  { by = 'b', mac }: { by?: string; mac?: string } = {},
) => {
  const text = typeof facts === 'string' ? facts : JSON.stringify(facts);
  const fields = [
    'at',
    String(STORE_AT - 5),
    'by',
    by,
    'mac',
    mac ?? seal.sign('log', by, text),
    'facts',
    text,
  ];
  return [`${number}-0`, fields];
};

test('instance log: entries are applied in their order, and a missing one is noticed', async () => {
  const { log, warned } = await openLog();
  expect(log.apply(entry(2, [joined('member01')])), 'the first one is missing').toBeUndefined();
  expect(log.applied).toBe(0);
  expect(log.apply(entry(1, [joined('member01'), joined('member02', { source: 'town' })]))).toEqual({
    at: STORE_AT - 5,
    facts: [{ by: 'b', fact: joined('member01') }],
  });
  expect([log.applied, log.state.drawnBy('member01'), log.state.drawnBy('member02')]).toEqual([
    1,
    'b',
    undefined,
  ]);
  expect(log.apply(entry(1, []))).toBeUndefined();
  expect(log.apply(entry(3, []))).toBeUndefined();
  expect(log.apply(entry(2, []))).toEqual({ at: STORE_AT - 5, facts: [] });
  expect(warned, 'another instance is no fault').toEqual([]);
});

test('instance log: an entry that is not signed, not readable or refused counts as empty, and is named once', async () => {
  const { log, warned } = await openLog();
  const LIFE = 400 * 86_400_000;
  const lives = (laterMs: number) => ({ joinedAt: STORE_AT + laterMs, endsAt: STORE_AT + laterMs + LIFE });
  const entries = [
    entry(1, [joined('member01')], { mac: seal.sign('log', 'c', JSON.stringify([joined('member01')])) }),
    entry(2, [joined('member01')], { by: 'x'.repeat(200), mac: '' }),
    entry(3, 'no JSON'),
    entry(4, [joined('member04'), { kind: 'unknown' }]),
    entry(5, [joined('member05', { host: '10.0.0.1' }), joined('member15', { host: '10.0.0.2' })]),
    entry(6, [joined('member06', lives(0)), joined('member16', lives(5_000))]),
  ];
  const ids = entries.flatMap((each) => log.apply(each)?.facts ?? []);
  expect(ids.map(({ fact }) => fact.kind === 'member.joined' && fact.member.id)).toEqual([
    'member04',
    'member06',
  ]);
  expect(warned).toEqual([
    'entry 1 of the log: noria b did not sign it with the secret of this instance',
    `entry 2 of the log: noria ${'x'.repeat(100)} did not sign it with the secret of this instance`,
    'entry 3 of the log: it is not readable',
    'entry 4 of the log: it is not readable',
    'entry 5 of the log: it has a member at a refused address (private)',
    'entry 6 of the log: it has a member without an end',
  ]);
  expect([log.applied, log.state.drawnBy('member15'), log.state.drawnBy('member16')]).toEqual([
    6,
    undefined,
    undefined,
  ]);
});

test('instance log: an instance with another secret is another one', async () => {
  const { log } = await openLog();
  expect([log.isOf(CITY), log.isOf(instance('city', 'other')), log.isOf(instance('town'))]).toEqual([
    true,
    false,
    false,
  ]);
});

test('instance log: facts leave in batches of at most 500 facts and 200,000 characters, signed, in order', async () => {
  const { log, of } = await openLog();
  const ban = (site: string): Fact => siteBan(storeClock, site);
  await log.append(Array.from({ length: 1_001 }, (_, number) => ban(`${number}.test`)));
  const sent = of('publish');
  expect(sent.map(([, , text = '']) => JSON.parse(text).length)).toEqual([500, 500, 1]);
  for (const [by = '', mac = '', text = ''] of sent)
    expect([by, seal.isValid(mac, 'log', by, text)]).toEqual(['a', true]);
  const size = JSON.stringify(ban('')).length;
  const large = (characters: number) => ban('x'.repeat(characters - size));
  await log.append([
    large(100_000),
    large(100_000),
    large(100_000),
    large(100_001),
    large(300_000),
    large(10_000),
  ]);
  expect(
    of('publish')
      .slice(3)
      .map(([, , text = '']) => JSON.parse(text).length),
  ).toEqual([2, 1, 1, 1, 1]);
  await log.append([]);
  expect(of('publish')).toHaveLength(8);
});

test('instance log: uses of members count from any beat on, also before their entry has come', async () => {
  const { log } = await openLog();
  log.apply(entry(1, [joined('member01'), joined('member02', { endIsAssumed: true })]));
  expect(log.addUses(['member01', '3 0', 'member02', `1 ${STORE_AT + 90_000}`, 'member03', '4 0'])).toEqual({
    uses: { member01: 3, member02: 1 },
    ends: { member02: STORE_AT + 90_000 },
  });
  expect(log.addUses([])).toEqual({ uses: {}, ends: {} });
  log.apply(entry(2, [joined('member03')]));
  expect(log.addUses(['member01', '5 0'])).toEqual({ uses: { member03: 4, member01: 5 }, ends: {} });
  expect(log.addUses(undefined), 'once').toEqual({ uses: {}, ends: {} });
  expect(log.addUses(['member01', '2 0', 'member02', '']), 'an older sum').toMatchObject({
    uses: { member01: 5, member02: 1 },
  });
});

/** A store with a snapshot of these pages, which covers the first `covers` of `number` entries. */
function snapshotOf(
  pages: readonly string[],
  { covers = 2, entries = [] as readonly unknown[], uses = [] as string[] } = {},
) {
  const number = covers + entries.length;
  return {
    begin: () => ['7.x', String(pages.length), String(covers), String(number), '9'],
    page: ([place = '', mac = '']: readonly string[]) => {
      const text = pages[Number(place.split(' ')[1])] ?? '';
      return mac === `${place} mac` ? [text, seal.sign('snapshot', place, text)] : ['', ''];
    },
    entries: ([after = '0']: readonly string[]) => [
      entries.slice(Number(after) - covers, Number(after) - covers + 1),
    ],
    uses: ([cursor = '0']: readonly string[]) =>
      cursor === '0' ? ['5', uses.slice(0, 2)] : ['0', uses.slice(2)],
  } as Record<'begin' | 'page' | 'entries' | 'uses', (args: readonly string[]) => Answer>;
}

const record = (id: string, changes: object = {}) => ({
  member: member(id, changes),
  drawnBy: 'b',
  uses: 0,
  votes: [],
});
const sources = (paused: string[]) => ({
  ...{ paused, resumed: ['town', 'city'] },
  reports: ['city', 'town'].map((source) => ({ kind: 'source.reported', source, quota: {} })),
});

test('instance log: a snapshot is loaded page by page, then the entries after it, then the uses', async () => {
  const ban = siteBan(storeClock, 'shop.test');
  const pages = [
    JSON.stringify(sources(['town'])),
    JSON.stringify([
      record('member01'),
      record('member02', { source: 'town' }),
      ban,
      { ...ban, source: 'town' },
    ]),
    JSON.stringify([record('member03'), record('member04', { host: '10.0.0.1' })]),
  ];
  const uses = ['member01', '4 0', 'member03', '6 0'];
  const store = snapshotOf(pages, {
    entries: [entry(3, [joined('member05')]), entry(4, [joined('member06')])],
    uses,
  });
  const { log, asked, warned } = await openLog(store);
  const loaded: string[][] = [];
  await log.load(undefined, (records) => loaded.push(records.map(({ member: { id } }) => id)));
  expect(loaded).toEqual([['member01'], ['member03']]);
  const { members, bans, paused, resumed, reports } = log.state.read(STORE_AT);
  expect(members.map(({ member: { id }, uses: count }) => `${id} ${count}`)).toEqual([
    ...['member01 4', 'member03 6', 'member05 0', 'member06 0'],
  ]);
  expect([bans.map(({ source }) => source), paused, resumed, reports.map(({ source }) => source)]).toEqual([
    ...[['city'], [], ['city'], ['city']],
  ]);
  expect([log.applied, log.version]).toEqual([4, 9]);
  expect(asked.map(([name]) => name)).toEqual([
    ...['begin', 'page', 'page', 'page', 'entries', 'entries', 'uses', 'uses'],
  ]);
  expect(warned).toEqual(['page 7.x 2 of the snapshot: it has a member at a refused address (private)']);
  asked.length = 0;
  await log.load();
  expect(
    asked.map(([name]) => name),
    'it has all',
  ).toEqual(['begin']);
  expect(log.state.size).toBe(5);
});

test('instance log: pages that are not signed or not readable are named, and count as empty', async () => {
  const pages = ['7', JSON.stringify([record('member01'), 7]), 'no JSON'];
  const store = snapshotOf(pages);
  const { log, warned } = await openLog({
    ...store,
    page: (args) => (args[0] === '7.x 3' ? ['[]', 'forged'] : store.page(args)),
    begin: () => ['7.x', '4', '2', '2', '9'],
  });
  await log.load();
  expect(warned).toEqual([0, 1, 2, 3].map((page) => `page 7.x ${page} of the snapshot: it is not readable`));
  expect(log.state.read(STORE_AT).members.map(({ member: { id } }) => id)).toEqual(['member01']);
});

test.each<[string, Partial<ReturnType<typeof snapshotOf>>]>([
  ['a page', { page: () => ['', ''] }],
  ['an entry', { begin: () => ['7.x', '0', '2', '4', '9'], entries: () => [[entry(4, [])]] }],
  ['all entries', { begin: () => ['7.x', '0', '2', '4', '9'], entries: () => [[]] }],
])('instance log: if the store lacks %s, it is loaded again, five times at most', async (_, changes) => {
  const { log, of } = await openLog({ ...snapshotOf(['{}', '[]']), ...changes });
  await expect(log.load()).rejects.toMatchObject({
    code: 'fleet-store-lost',
    message: 'the snapshot in the store was replaced while noria loaded it',
  });
  expect(of('begin')).toHaveLength(5);
});

test('instance log: a lost connection costs the missed entries, another epoch or a shorter log all of it', async () => {
  let entries = [entry(3, [])];
  const store = () => snapshotOf(['{"paused":[],"resumed":[],"reports":[]}'], { entries });
  const { log, asked, state, access, clock } = await openLog({
    begin: () => store().begin([]),
    page: (args) => store().page(args),
    entries: (args) => store().entries(args),
    uses: () => ['0', []],
  });
  const load = async () => {
    asked.length = 0;
    await log.load();
    return asked.map(([name]) => name).join(' ');
  };
  expect(await load()).toBe('begin page entries uses');
  entries = [...entries, entry(4, [joined('member01')])];
  expect(await load()).toBe('begin entries');
  expect(log.state.drawnBy('member01')).toBe('b');
  state.epoch = 'e2';
  access.connection.reset(new NoriaError('fleet-store-lost', 'restarted'));
  await until('it waits to connect again', () => clock.armedCount === 1);
  clock.advance(100);
  await until('it is connected', () => access.connection.fault === undefined);
  expect(await load()).toBe('begin page entries entries uses');
  entries = [];
  expect(await load()).toBe('begin page uses');
  expect([log.applied, log.state.drawnBy('member01')]).toEqual([2, undefined]);
});

test('instance log: a snapshot has the state in signed pages without uses, and drops the uses of members that have gone', async () => {
  const { log, of, state, clock } = await openLog();
  log.apply(
    entry(1, [
      joined('member01'),
      joined('member02', { endsAt: STORE_AT + 1_000 }),
      siteBan(storeClock, 'shop.test'),
    ]),
  );
  log.apply(entry(2, [{ kind: 'source.commanded', source: 'city', command: 'pause' }]));
  log.addUses(['member01', '3 0', 'member02', '4 0', 'gone0001', '5 0']);
  state.now += 2_000;
  clock.advance(2_000);
  const both = [log.save(), log.save()];
  await Promise.all(both);
  const [first = [], second = []] = of('savePage');
  expect(of('savePage'), 'one at a time').toHaveLength(2);
  const [place = '', text = '', macField, mac = ''] = second;
  const id = place.replace(/ 1$/, '');
  expect(id).toMatch(/^2\.[0-9a-f]{12}$/);
  expect([first[0], place, macField]).toEqual([`${id} 0`, `${id} 1`, `${id} 1 mac`]);
  expect(seal.isValid(mac, 'snapshot', place, text)).toBe(true);
  expect(JSON.parse(first[1] ?? '')).toEqual({ paused: ['city'], resumed: [], reports: [] });
  expect(JSON.parse(text)).toMatchObject([{ member: { id: 'member01' }, uses: 0 }, { kind: 'site.banned' }]);
  expect(of('save')).toEqual([['e1', id, '2', '2', 'member02', 'gone0001']]);
  await log.save();
  expect(of('save')[1]?.slice(2), 'they are dropped once').toEqual(['2', '2']);
});

test('instance log: after a snapshot that failed, the next one can be written', async () => {
  let fails = true;
  const { log, of } = await openLog({ savePage: () => (fails ? new Error('ERR no') : []) });
  await expect(log.save()).rejects.toMatchObject({ code: 'fleet-store-unusable' });
  fails = false;
  await log.save();
  expect(of('save')).toHaveLength(1);
});

const session = (changes: Partial<SharedSession> = {}): SharedSession => ({
  ...{
    name: 's1',
    owner: { user: '', address: '' },
    member: 'member01',
    ttlMs: 60_000,
    usedAt: STORE_AT,
    uses: 2,
  },
  ...changes,
});

async function openSessions(answers: Parameters<typeof openLog>[0] = {}, instances = [CITY]) {
  const opened = await openLog(answers);
  const told: LoggedFact[] = [];
  const sessions = new SessionStore(opened.access, 'a', instances, (facts) => told.push(...facts));
  /** The local moment that is the store's time at its last answer, at the latest. */
  const local = opened.clock.monotonic() - 1;
  return { ...opened, sessions, told, local };
}

const news = (kind: 'session' | 'ended', content: object, version: string, mac?: string) => {
  const text = JSON.stringify(content);
  return ['8-1', ['text', text, 'mac', mac ?? seal.sign(kind, text), 'version', version]];
};

test('session news: only a newer change with a right signature counts', async () => {
  const { sessions, told, local } = await openSessions();
  const moved = (member: string, version: string) =>
    sessions.readNews(news('session', session({ member }), version));
  moved('member02', '5');
  expect(sessions.lastNews).toBe('8-1');
  expect(told).toEqual([
    {
      by: '',
      fact: {
        kind: 'session.moved',
        session: session({ member: 'member02', usedAt: local }),
        reason: 'moved',
      },
    },
  ]);
  moved('member03', '5');
  moved('member03', '4');
  moved('member03', 'x');
  sessions.readNews(news('session', session({ member: 'member03' }), '9', 'forged'));
  sessions.readNews(news('ended', session(), '9', seal.sign('session', JSON.stringify({ ended: 's1' }))));
  sessions.readNews(['8-2', ['begun', '1']]);
  expect([told.length, sessions.lastNews]).toEqual([1, '8-2']);
  sessions.readNews(news('ended', { ended: 's1' }, '6'));
  sessions.readNews(news('ended', { ended: 's2' }, '1'));
  expect(told.slice(1).map(({ fact }) => fact)).toEqual([
    { kind: 'session.ended', name: 's1' },
    { kind: 'session.ended', name: 's2' },
  ]);
});

const found = (content: SharedSession, { version = '7', uses = '0', used = '', mac = '' } = {}): Reply => {
  const text = JSON.stringify(content);
  return [text, mac === '' ? seal.sign('session', text) : mac, version, uses, used];
};

test('session store: sessions are read in steps, with what beats have added, and forged ones are left out', async () => {
  const answers = [
    found(session({ name: 's0' }), { uses: '3', used: `${STORE_AT + 9} 500` }),
    found(session({ name: 's1' }), { used: `${STORE_AT - 9} 70000` }),
    found(session({ name: 's2' }), { mac: 'forged' }),
    ['no JSON', seal.sign('session', 'no JSON'), '1', '0', ''],
    found(session({ name: 's4' })),
  ];
  const { sessions, of, asked } = await openSessions({
    hold: (_, keys) => [keys.length === 1 ? [] : answers],
  });
  const names = Array.from({ length: 501 }, (_, number) => `s${number}`);
  const held = await sessions.hold(names);
  expect(held).toEqual([
    session({ name: 's0', uses: 5, usedAt: STORE_AT + 9, ttlMs: 500 }),
    session({ name: 's1', ttlMs: 70_000 }),
    session({ name: 's4' }),
  ]);
  expect(of('hold')).toEqual([['a'], ['a']]);
  expect(await sessions.hold([])).toEqual([]);
  expect(asked).toHaveLength(2);
});

test('session store: loading begins with the news', async () => {
  const { sessions, asked, access, client } = await openSessions({
    news: () => ['5-0'],
    hold: () => [[found(session())]],
  });
  expect(sessions.lastNews).toBe('');
  expect(await sessions.load(['s1'], client())).toEqual([session()]);
  expect([sessions.lastNews, sessions.news]).toEqual(['5-0', access.keys.moved('a')]);
  expect(asked.map(([name]) => name)).toEqual(['news', 'hold']);
});

test('session store: a session is bound as the store says, and what another replica has moved since then counts', async () => {
  const moved = session({ member: 'member02' });
  let reply: Answer = ['', '', '5', '0', ''];
  const { sessions, of, local, told } = await openSessions({ bind: () => reply, end: () => ['9'] });
  const own = session({ usedAt: local });
  expect(await sessions.bind(own, 'member00')).toBe(own);
  const [replica, from, text = '', mac = '', to, leftMs] = of('bind')[0] ?? [];
  expect([replica, from, JSON.parse(text), to]).toEqual([
    'a',
    'member00',
    session({ usedAt: STORE_AT - 1 }),
    'member01',
  ]);
  expect([seal.isValid(mac, 'session', text), leftMs]).toEqual([true, '59999']);
  reply = found(moved, { version: '6' });
  const elsewhere = { ...moved, usedAt: local };
  expect(await sessions.bind(own, undefined)).toEqual(elsewhere);
  expect(of('bind')[1]?.[1]).toBe('');
  reply = found(session({ name: 's2', member: 'member03' }), { version: '7' });
  expect(await sessions.bind(own, undefined), 'an answer about another session').toBe(own);
  reply = found(moved, { mac: 'forged', version: '8' });
  expect(await sessions.bind(own, undefined)).toBe(own);
  reply = ['', '', '4', '0', ''];
  expect(await sessions.bind(own, undefined), 'a newer move has come meanwhile').toEqual(elsewhere);
  await sessions.end('s1');
  const [, ended = '', endMac = ''] = of('end')[0] ?? [];
  expect([ended, seal.isValid(endMac, 'ended', ended)]).toEqual(['{"ended":"s1"}', true]);
  expect(await sessions.bind(own, undefined), 'it has ended meanwhile').toBe(own);
  sessions.readNews(news('ended', { ended: 's1' }, '9'));
  expect(told, 'its own end').toEqual([]);
  const { member: _, ...unbound } = session({ usedAt: local - 90_000 });
  reply = ['', '', '10', '0', ''];
  expect(await sessions.bind(unbound, undefined)).toEqual(unbound);
  expect(of('bind').at(-1)?.slice(4), 'one that has ended lives a moment').toEqual(['', '1']);
});

test('session store: a session belongs to a set of instances, in any order', async () => {
  const [one, two] = [instance('city'), instance('town')];
  const keyOf = async (...instances: (typeof CITY)[]) =>
    (await openSessions({}, instances)).sessions.keyOf('s1');
  const keys = await Promise.all([keyOf(one, two), keyOf(two, one), keyOf(one), keyOf(two)]);
  expect(keys[0]).toBe(keys[1]);
  expect(new Set(keys).size).toBe(3);
});
