/** What `noria check` makes of the answers of a store, and of those that it does not get. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { Secret } from '../../../src/core/secret.ts';
import type { StoreAddress } from '../../../src/fleet/redis/connection.ts';
import { aclLine, inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import { countSessions, differencesOf, peerWarnings } from '../../../src/fleet/redis/read-fleet.ts';
import { FleetStore } from '../../../src/fleet/redis/store.ts';
import { listen, portOf } from '../../chaos/delaying-proxy.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { type Answer, openScriptedStore } from './scripted-store.ts';
import { instance } from './store-stage.ts';

const CERT = 'test/fixtures/service/tls/localhost.cert.pem';
const ACL = aclLine('crawl', 'noria');
const INFO = {
  ...{
    redis_version: '7.2.4',
    run_id: 'one',
    executable: '/usr/bin/redis:7',
    role: 'master',
    master_replid: 'two',
  },
  ...{
    cluster_enabled: '0',
    aof_enabled: '1',
    maxmemory: '0',
    maxmemory_policy: 'allkeys-lru',
    used_memory: '100',
  },
} as const;
type Info = Partial<
  Record<keyof typeof INFO | 'valkey_version' | 'master_host' | 'master_port', string | undefined>
>;
/** The answers of a good store, by command. */
const ANSWERS: Readonly<Record<string, Answer>> = {
  ...{ AUTH: 'OK', EVAL: ['', []], EVALSHA: new Error('NOSCRIPT no'), XREAD: null, HGET: '2', PING: 'PONG' },
};

async function inspect(changes: Info = {}, answers: typeof ANSWERS = {}, pingMs: readonly number[] = []) {
  const info = Object.entries({ ...INFO, ...changes }).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}:${value}`,
  );
  const clock = new ManualClock();
  let pings = 0;
  const store = await openScriptedStore(([name = '']) => {
    if (name === 'PING') clock.advance(pingMs[pings++] ?? 0);
    if (name in answers) return answers[name];
    return name === 'INFO' ? `# Server\r\n${info.join('\r\n')}\r\n` : ANSWERS[name];
  });
  const report = await inspectStore(store.address, 'crawl', clock);
  expect(clock.armedCount).toBe(0);
  return { ...report, commands: store.commands.map(([name]) => name) };
}

test('store report: a good store gets the same questions each time, and nothing is said of it', async () => {
  expect(await inspect()).toEqual({
    ...{ version: 'Redis 7.2.4', isReachable: true, errors: [], warnings: [] },
    commands: ['INFO', 'EVAL', 'EVALSHA', 'XREAD', 'HGET', ...Array(5).fill('PING')],
  });
});

const old = (version: string) => [`the store is ${version}, and noria needs Valkey, or Redis 7.0 or later`];

test.each([
  [{ redis_version: '6.2.14' }, 'Redis 6.2.14', old('Redis 6.2.14')],
  [{ redis_version: '7.0.0' }, 'Redis 7.0.0', []],
  [{ redis_version: '10.1.0' }, 'Redis 10.1.0', []],
  [{ redis_version: undefined }, 'Redis of an unknown version', []],
  [{ redis_version: '6.2.14', valkey_version: '8.0.1' }, 'Valkey 8.0.1', []],
])('store report: the version decides (%j)', async (info, version, errors) => {
  const report = await inspect(info);
  expect(report).toMatchObject({ version, errors, warnings: [], isReachable: true });
  expect(report.commands.length, 'an old one is asked no more').toBe(errors.length === 0 ? 10 : 1);
});

const LRU =
  'the store has maxmemory-policy allkeys-lru, so it deletes data of the fleet when its memory is full, such as the pace, the members and the sessions; set maxmemory-policy to noeviction';

test.each<[string, Info, readonly unknown[]]>([
  ['no run', { run_id: undefined }, [expect.stringContaining('does not report run_id and master_replid')]],
  [
    'no data',
    { master_replid: undefined },
    [expect.stringContaining('does not report run_id and master_replid')],
  ],
  [
    'a node of a cluster',
    { cluster_enabled: '1' },
    [
      'the store is a node of a cluster, and noria needs one server with all keys; use a store without cluster mode (cluster-enabled no)',
    ],
  ],
  [
    'a replica',
    { role: 'slave', master_host: '192.0.2.1', master_port: '6379' },
    ['the store is a read-only replica of 192.0.2.1:6379; use the address of the primary, or Sentinels'],
  ],
  ['evictions', { maxmemory: '1000' }, [LRU]],
])('store report: a store that cannot serve: %s', async (_, info, errors) => {
  const report = await inspect(info);
  expect(report).toMatchObject({ version: 'Redis 7.2.4', errors, warnings: [], isReachable: true });
  expect(report.commands, 'its speed does not matter').not.toContain('PING');
});

test.each<[string, Info, readonly string[]]>([
  ['a limit without evictions', { maxmemory: '1000', maxmemory_policy: 'noeviction' }, []],
  ['a limit of unknown effect', { maxmemory: '1000', maxmemory_policy: undefined }, []],
  ['no limit is known', { maxmemory: undefined }, []],
  ['80 % full', { maxmemory: '1000', maxmemory_policy: 'noeviction', used_memory: '800' }, []],
  [
    '81 % full',
    { maxmemory: '1000', maxmemory_policy: 'noeviction', used_memory: '806' },
    [
      'the memory of the store is 81 % full; above 100 % it refuses writes, and no noria draws; raise maxmemory',
    ],
  ],
  ['full without a limit', { used_memory: '806' }, []],
  ['its use is unknown', { maxmemory: '1000', maxmemory_policy: 'noeviction', used_memory: undefined }, []],
  [
    'no append-only file',
    { aof_enabled: '0' },
    [
      'the store has no append-only file: after a restart of the store, no noria draws for one interval plus the duration of one call; set appendonly yes in the store',
    ],
  ],
  ['nothing about an append-only file', { aof_enabled: undefined }, []],
])('store report: a store that serves, with a risk or none: %s', async (_, info, warnings) => {
  expect(await inspect(info)).toMatchObject({ errors: [], warnings });
});

const noKeys = new Error('NOPERM No permissions to access a key');
const noCommand = new Error("NOPERM User has no permissions to run the 'x' command");
const mayNot = (what: string) =>
  `the user of the store may not ${what}; give it the permissions that noria needs: ${ACL}`;
const refuses = (failure: string) =>
  `the store does not accept what noria writes: ${failure}; no noria of the fleet draws until it does`;

test.each<[typeof ANSWERS, readonly string[]]>([
  [{ EVAL: ['', ['HSET', 'XADD']] }, [mayNot('run HSET, XADD')]],
  [{ EVAL: ['OOM full', []] }, [refuses('OOM full')]],
  [{ EVAL: ['OOM full', ['HSET']], XREAD: noCommand }, [refuses('OOM full'), mayNot('run HSET, XREAD')]],
  [{ EVAL: noKeys }, [mayNot('use the keys of this fleet')]],
  [{ EVAL: noCommand, XREAD: noKeys }, [mayNot('run EVAL or use the keys of this fleet')]],
  [{ EVALSHA: noCommand }, [mayNot('run EVALSHA')]],
  [{ EVALSHA: new Error('ERR strange') }, [refuses('ERR strange')]],
  [{ EVALSHA: null, XREAD: new Error('ERR strange') }, [refuses('ERR strange')]],
  [{ EVALSHA: new Error('ERR strange'), XREAD: new Error('ERR strange') }, [refuses('ERR strange')]],
])('store report: what the user may not do, and what the store refuses (%#)', async (answers, errors) => {
  const report = await inspect({}, answers);
  expect(report).toMatchObject({ isReachable: true, errors });
  expect(report.commands).toEqual(['INFO', 'EVAL', 'EVALSHA', 'XREAD']);
});

test.each<[Answer, readonly string[]]>([
  ['3', ['the data in the store has format 3, and this noria knows formats up to 2; update this noria']],
  ['1', []],
  [null, []],
])('store report: data of a later format, and not of an earlier one (%s)', async (HGET, errors) => {
  expect(await inspect({}, { HGET })).toMatchObject({ errors, isReachable: true });
});

test.each<[typeof ANSWERS, string]>([
  [
    { INFO: new Error('NOAUTH Authentication required.') },
    'the store needs a password; add the password to the URL',
  ],
  [{ INFO: noCommand }, `${noCommand.message}; give the user the permissions that noria needs: ${ACL}`],
  [{ HGET: noCommand }, noCommand.message],
])('store report: a question that the store refuses is its answer (%#)', async (answers, error) => {
  expect(await inspect({}, answers)).toMatchObject({
    ...{ version: undefined, isReachable: true, errors: [error], warnings: [] },
  });
});

const slow = (ms: number) => [
  `the store answered after ${ms} ms; a new session waits at most 30 ms for it, so use a store within 10 ms`,
];

test.each<[readonly number[], readonly string[]]>([
  [[10, 10, 10, 10, 10], []],
  [[11, 11, 11, 11, 11], slow(11)],
  [[90, 90, 90, 90, 10], []],
  [[90, 12, 90, 90, 90], slow(12)],
])(
  'store report: the fastest of five answers decides whether the store is slow (%j)',
  async (pingMs, warnings) => {
    expect(await inspect({}, {}, pingMs)).toMatchObject({ errors: [], warnings });
  },
);

const HOST = 'check host and port in the URL, that the store runs, and that this machine can reach it';
const LOGIN = 'check user name and password in the URL';

test.each<[string, string]>([
  [
    'ERR AUTH <password> called without any password configured.',
    'the store has no password: remove the password from the URL',
  ],
  ['WRONGPASS wrong', LOGIN],
  ['NOAUTH no', LOGIN],
  ['ERR invalid username-password pair', LOGIN],
  ['ERR not in cluster mode', 'use a store without cluster mode (cluster-enabled no)'],
  ['ERR DB index is out of range', 'check the database number in the URL'],
  ['LOADING data', 'the store still loads its data: wait until it has started, and run noria check again'],
  ['ERR strange', HOST],
])('store report: a refused login says what to do (%s)', async (message, advice) => {
  const { address } = await openScriptedStore(() => new Error(message));
  const server = { ...address.server, login: { password: new Secret('pw') } };
  const { errors, isReachable } = await inspectStore({ ...address, server }, 'crawl', systemClock);
  expect(errors).toHaveLength(1);
  expect(errors[0]?.endsWith(`${message.replace('.', '')}; ${advice}`), errors[0]).toBe(true);
  expect(isReachable).toBe(!message.startsWith('LOADING'));
});

test('store report: no answer may be a matter of TLS, and no Sentinel one of its address', async () => {
  const store = await openScriptedStore(() => undefined);
  const at = (changes: object) => ({ ...store.address, server: { ...store.address.server, ...changes } });
  const errorOf = async (address: typeof store.address) => {
    const { errors, warnings, isReachable } = await inspectStore(address, 'crawl', systemClock);
    expect([errors.length, warnings, isReachable]).toEqual([1, [], false]);
    return errors[0] ?? '';
  };
  const refused = await errorOf(at({ port: 1 }));
  expect(refused).toMatch(/ECONNREFUSED 127\.0\.0\.1:1; check host and port .* can reach it$/);
  const addresses = [{ host: '127.0.0.1', port: 1 }];
  expect(await errorOf({ ...store.address, sentinel: { primary: 'p', addresses } })).toMatch(
    /; check fleet\.sentinel, and that the Sentinels can be reached from this machine$/,
  );
  const ending = await openScriptedStore(() => {
    ending.cut();
    return undefined;
  });
  expect(await errorOf(ending.address)).toMatch(
    /closed.*; check host and port .*; if the store requires TLS, begin the URL with rediss:\/\/$/,
  );
});

test('store report: a connection that is reset under TLS may lack a client certificate', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => {}); // ignored: the test resets it
    socket.on('data', () => socket.resetAndDestroy());
  });
  await listen(server);
  onTestFinished(() => void server.close());
  const inspectWith = (tls: StoreAddress['server']['tls']) =>
    inspectStore(
      {
        label: 'resets',
        server: { host: '127.0.0.1', port: portOf(server), login: {}, tls, database: 0 },
      },
      'crawl',
      systemClock,
    );
  const setCertificate =
    /ECONNRESET; check host and port .*; if the store asks for a client certificate, set fleet\.tls\.cert and fleet\.tls\.key$/;
  expect((await inspectWith({})).errors).toEqual([expect.stringMatching(setCertificate)]);
  for (const tls of [{ cert: readFileSync(CERT, 'utf8') }, undefined])
    expect((await inspectWith(tls)).errors).toEqual([
      expect.stringMatching(
        tls === undefined ? /begin the URL with rediss:\/\/$/ : /begin the URL with redis:\/\/$/,
      ),
    ]);
});

const others = (...lists: readonly (readonly ReturnType<typeof settingsOf>[])[]) =>
  lists.map((instances, index) => ({ name: `n${index}`, instances: [...instances] }));
const settingsOf = (source: string, changes: object = {}) => ({
  ...{ source, intervalMs: 1_000, size: 10, params: '', ...changes },
});

test('peers: each difference of an instance is named, alone and together', () => {
  const own = [settingsOf('city'), settingsOf('town')];
  const found = (changes: object) =>
    differencesOf(own, [settingsOf('other', { size: 1 }), settingsOf('town', changes)]);
  expect(found({})).toEqual([]);
  expect(found({ intervalMs: 5 })).toEqual(['interval 5 ms instead of 1000 ms for the instance town']);
  expect(found({ size: 5 })).toEqual(['size 5 instead of 10 for the instance town']);
  expect(found({ params: 'x' })).toEqual(['other params for the instance town']);
  expect(found({ size: 5, params: 'x' })).toEqual([
    'size 5 instead of 10 and other params for the instance town',
  ]);
  expect(differencesOf(own, [settingsOf('city', { size: 2 }), settingsOf('town', { size: 3 })])).toHaveLength(
    2,
  );
});

test('peers: a noria that shares no instance with any other is told so, with three of the others', () => {
  const own = [instance('city')];
  const alone = (names: string) =>
    `this noria shares no instance with another noria of the fleet (${names}), so they share no members and no sessions; set another fleet.name`;
  const harbor = [settingsOf('harbor')];
  expect(peerWarnings(own, [])).toEqual([]);
  expect(peerWarnings(own, others(harbor))).toEqual([alone('n0')]);
  expect(peerWarnings(own, others(harbor, harbor, harbor, harbor))).toEqual([alone('n0, n1, n2')]);
  expect(peerWarnings(own, others(harbor, [...harbor, settingsOf('city')]))).toEqual([]);
  expect(peerWarnings(own, others(harbor, [])), 'it has told nothing yet').toEqual([]);
  expect(peerWarnings(own, [{ name: 'old' }]), 'it is of an earlier version').toEqual([]);
  expect(peerWarnings([], others(harbor)), 'without sources').toEqual([]);
  expect(peerWarnings(own, others([settingsOf('city', { size: 5 })]))).toEqual([
    'noria n0 has size 5 instead of 10 for the instance city; give all norias of the fleet the same configuration',
  ]);
});

test('fleet: its sessions are counted in as many steps as the store needs', async () => {
  const steps: Readonly<Record<string, Answer>> = { 0: ['7', ['a', 'b']], 7: ['9', []], 9: ['0', ['c']] };
  const scripted = await openScriptedStore(([name, at = '']) =>
    name === 'SCAN' ? steps[at] : ['1000', 'epoch', '0', '0'],
  );
  const clock = new ManualClock();
  const timekeeper = { now: () => ({ wallAt: 0, boot: '', elapsedMs: 0 }), stopwatch: () => () => 0 };
  const store = new FleetStore({
    address: scripted.address,
    name: 'crawl',
    clock,
    random: () => 0,
    timekeeper,
  });
  store.connection.start();
  await store.connection.tried;
  expect(await countSessions(store)).toBe(3);
  const match = ['MATCH', '{noria:crawl}:s:*', 'COUNT', '1000'];
  expect(scripted.commands.filter(([name]) => name === 'SCAN')).toEqual(
    ['0', '7', '9'].map((cursor) => ['SCAN', cursor, ...match]),
  );
  await store.close();
});
