/** The connection to the store, against a server that answers what the test says, on a manual clock. */
import { expect, onTestFinished, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import { Secret } from '../../../src/core/secret.ts';
import {
  faultOf,
  type LogFollower,
  openPrimary,
  type StoreAddress,
  type StoreClient,
  StoreConnection,
} from '../../../src/fleet/redis/connection.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { type Answer, openScriptedStore, type ScriptedStore } from './scripted-store.ts';

const DEADLINE_MS = 2_000;
const lost = (why: string) => ({
  code: 'fleet-store-lost',
  message: `the fleet's store at ${why}`,
});

async function open(
  address: StoreAddress,
  clock = new ManualClock(),
  signal: AbortSignal = new AbortController().signal,
): Promise<StoreClient> {
  const client = await openPrimary(address, { clock, deadlineMs: DEADLINE_MS, signal });
  onTestFinished(() => client.close());
  return client;
}

const withServer = ({ address }: ScriptedStore, changes: Partial<StoreAddress['server']>): StoreAddress => ({
  ...address,
  server: { ...address.server, ...changes },
});

test.each([
  [['PING'], 1_000],
  [['ECHO', 'x'.repeat(16_380)], 1_000],
  [['ECHO', 'x'.repeat(16_381)], 1_001],
  [['ECHO', 'x'.repeat(8_190), 'y'.repeat(8_318)], 1_001],
  [['ECHO', 'x'.repeat(16_509)], 1_002],
  [['ECHO', 'x'.repeat(16_380 + 128_000)], 2_000],
])('store client: a command has a second, and more only if it is large (%#)', async (command, limitMs) => {
  const clock = new ManualClock();
  const store = await openScriptedStore(() => undefined);
  const client = await open(store.address, clock);
  const answer = client.call(command);
  expect(clock.armedMs).toEqual([limitMs]);
  clock.advance(limitMs);
  expect(clock.armedMs, 'for an answer that is there, but not read yet').toEqual([20]);
  clock.advance(20);
  const missed = `127.0.0.1:${store.port} cannot be used: no answer to ${command[0]} within ${limitMs} ms`;
  await expect(answer).rejects.toMatchObject(lost(missed));
  await expect(client.call(['PING']), 'later commands').rejects.toMatchObject(lost(missed));
  await expect(client.failed()).rejects.toMatchObject(lost(missed));
  expect(clock.armedCount).toBe(0);
  await until('the connection has ended', () => store.open === 0);
});

test('store client: an answer that comes just after the deadline counts', async () => {
  const clock = new ManualClock();
  const late = Promise.withResolvers<string>();
  const client = await open((await openScriptedStore(() => late.promise)).address, clock);
  const answer = client.call(['GET', 'a'], 300);
  expect(clock.armedMs).toEqual([300]);
  clock.advance(300);
  late.resolve('b');
  expect(await answer).toBe('b');
  expect(clock.armedCount).toBe(0);
});

test('store client: an error of the command leaves the connection open, and one of the server ends it', async () => {
  const unfit = [
    ...[
      'READONLY',
      'LOADING',
      'MASTERDOWN',
      'NOREPLICAS',
      'UNBLOCKED',
      'CLUSTERDOWN',
      'MOVED',
      'BUSY',
      'OOM',
    ],
    ...['MISCONF', 'TRYAGAIN'],
  ];
  const store = await openScriptedStore(([name, text]) => (name === 'PING' ? 'PONG' : new Error(text)));
  for (const message of ['WRONGTYPE no', 'ERR LOADING', 'BUSYGROUP exists']) {
    const client = await open(store.address);
    await expect(client.call(['FAIL', message])).rejects.toMatchObject({ name: 'Error', message });
    expect(await client.call(['PING']), message).toBe('PONG');
  }
  for (const code of unfit) {
    const client = await open(store.address);
    const fault = lost(`127.0.0.1:${store.port} cannot be used: ${code} now`);
    await expect(client.call(['FAIL', `${code} now`])).rejects.toMatchObject(fault);
    await expect(client.call(['PING']), code).rejects.toMatchObject(fault);
  }
});

test('store client: a pending command fails with what ended the connection, the first of several', async () => {
  const store = await openScriptedStore(() => undefined);
  const client = await open(store.address);
  const answers = [client.call(['ONE']), client.call(['TWO'])];
  await until('the commands have arrived', () => store.commands.length === 2);
  const reason = new NoriaError('fleet-store-lost', 'the test ends it');
  expect(client.end(reason)).toBe(reason);
  expect(client.end(new NoriaError('fleet-store-lost', 'another one'))).toBe(reason);
  client.close();
  for (const answer of answers) await expect(answer).rejects.toBe(reason);
  const other = await open(store.address);
  const waiting = other.call(['THREE']);
  await until('the command has arrived', () => store.commands.length === 3);
  store.cut();
  await expect(waiting).rejects.toMatchObject({ code: 'fleet-store-lost' });
});

test('store client: connecting has a deadline, and ends at once when it is aborted', async () => {
  const store = await openScriptedStore(() => undefined);
  const address = withServer(store, { database: 3 }); // SELECT is part of connecting
  const clock = new ManualClock();
  const name = `127.0.0.1:${store.port} cannot be used:`;
  const slow = open(address, clock);
  await until('it is connecting', () => store.commands.length === 1);
  expect(clock.armedMs).toEqual([DEADLINE_MS]);
  clock.advance(DEADLINE_MS);
  await expect(slow).rejects.toMatchObject(lost(`${name} no connection within 2000 ms`));
  const abort = new AbortController();
  const ended = open(address, clock, abort.signal);
  await until('it is connecting', () => store.commands.length === 2);
  abort.abort();
  await expect(ended).rejects.toMatchObject(lost(`${name} noria closed the connection`));
  await expect(open(address, clock, abort.signal)).rejects.toMatchObject(
    lost(`${name} noria closed the connection`),
  );
  expect([clock.armedCount, store.commands.length]).toEqual([0, 2]);
});

test('store client: once it is connected, neither the deadline nor the signal of connecting ends it', async () => {
  const store = await openScriptedStore(() => 'PONG');
  const [clock, abort] = [new ManualClock(), new AbortController()];
  const client = await open(store.address, clock, abort.signal);
  expect(clock.armedCount).toBe(0);
  abort.abort();
  expect(await client.call(['PING'])).toBe('PONG');
});

test.each([
  [{}, []],
  [{ database: 3 }, [['SELECT', '3']]],
  [{ login: { password: new Secret('pw') } }, [['AUTH', 'pw']]],
  [
    { login: { username: 'me', password: new Secret('pw') }, database: 1 },
    [
      ['AUTH', 'me', 'pw'],
      ['SELECT', '1'],
    ],
  ],
])('store client: the first commands are those of the address (%#)', async (changes, first) => {
  const store = await openScriptedStore(([name]) => (name === 'PING' ? 'PONG' : 'OK'));
  const client = await open(withServer(store, changes));
  expect(await client.call(['PING'])).toBe('PONG');
  expect(store.commands).toEqual([...first, ['PING']]);
});

test.each([
  ['WRONGPASS invalid', 'fleet-store-unusable', 'refused the login: WRONGPASS invalid'],
  ['LOADING data', 'fleet-store-lost', 'cannot be used: LOADING data'],
])('store client: only a refused login is for the operator (%s)', async (text, code, why) => {
  const store = await openScriptedStore(() => new Error(text));
  const address = withServer(store, { login: { password: new Secret('pw') } });
  await expect(open(address)).rejects.toMatchObject({
    code,
    message: `the fleet's store at 127.0.0.1:${store.port} ${why}`,
  });
});

test('store client: any other error is a loss of the store', () => {
  const own = new NoriaError('internal', 'own');
  expect(faultOf(own)).toBe(own);
  const cause = new Error('strange');
  expect(faultOf(cause)).toMatchObject({ code: 'fleet-store-lost', message: 'strange', cause });
});

/** A Sentinel that answers so, and a store with this role, which the answer `the store` names. */
async function openWatched(
  answer: (command: readonly string[], connection: number) => Answer,
  { role = 'master', login = {} as StoreAddress['server']['login'] } = {},
) {
  const store = await openScriptedStore(([name]) => (name === 'ROLE' ? [role, 0] : 'OK'));
  const sentinel = await openScriptedStore((command, connection) => {
    const reply = answer(command, connection);
    return reply === 'the store' ? ['127.0.0.1', String(store.port)] : reply;
  });
  const address = (...ports: readonly number[]): StoreAddress => ({
    ...withServer(store, { port: 1, database: 2, login }),
    sentinel: { primary: 'mymaster', addresses: ports.map((port) => ({ host: '127.0.0.1', port })) },
  });
  return { store, sentinel, address };
}

const QUESTION = ['SENTINEL', 'get-master-addr-by-name', 'mymaster'];

test('sentinels: the first one that knows the primary leads to it, and no connection to a Sentinel stays', async () => {
  const { store, sentinel, address } = await openWatched((_, connection) =>
    connection === 1 ? null : 'the store',
  );
  const client = await open(address(1, sentinel.port, sentinel.port));
  expect(client.address).toBe(`127.0.0.1:${store.port}`);
  expect(sentinel.commands, 'a Sentinel has no databases').toEqual([QUESTION, QUESTION]);
  expect(store.commands).toEqual([['SELECT', '2'], ['ROLE']]);
  await until('the connections to the Sentinels have ended', () => sentinel.open === 0);
  expect(await client.call(['PING'])).toBe('OK');
});

test('sentinels: without an answer, each problem is named', async () => {
  const { sentinel, address } = await openWatched(([, name]) => (name === undefined ? 'PONG' : null));
  const why = (await open(address(1, sentinel.port)).catch(String)).toString();
  expect(why).toMatch(
    /the fleet's store at the store cannot be used: no Sentinel knows the address of the primary mymaster \(127\.0\.0\.1:1: .*ECONNREFUSED.*; the Sentinel 127\.0\.0\.1:\d+ monitors no primary with this name\)$/,
  );
});

test('sentinels: a server that is not the primary any more is not used', async () => {
  const { store, sentinel, address } = await openWatched(() => 'the store', { role: 'slave' });
  await expect(open(address(sentinel.port))).rejects.toMatchObject(
    lost(
      `the store cannot be used: the Sentinels name 127.0.0.1:${store.port} as the primary, but its role is slave`,
    ),
  );
  await until('its connection has ended', () => store.open === 0);
});

test('sentinels: they get the password of the store only if they ask for one', async () => {
  const login = { password: new Secret('pw') };
  const free = await openWatched(([name]) => (name === 'PING' ? 'PONG' : 'the store'), { login });
  await open(free.address(free.sentinel.port));
  expect(free.sentinel.commands).toEqual([['PING'], QUESTION]);
  expect(free.store.commands).toEqual([['AUTH', 'pw'], ['SELECT', '2'], ['ROLE']]);
  const closed = await openWatched(
    ([name]) => (name === 'PING' ? new Error('NOAUTH no') : name === 'AUTH' ? 'OK' : 'the store'),
    { login },
  );
  await open(closed.address(closed.sentinel.port));
  expect(closed.sentinel.commands).toEqual([['PING'], ['AUTH', 'pw'], QUESTION]);
  await until('no connection to the Sentinel is left', () => closed.sentinel.open === 0);
  const silent = await openWatched(() => new Error('LOADING data'), { login });
  await expect(open(silent.address(silent.sentinel.port))).rejects.toThrow(/LOADING data\)$/);
  expect(silent.sentinel.commands, 'the error tells nothing about a password').toEqual([['PING']]);
});

interface Steps {
  readonly greet?: (client: StoreClient) => Promise<void>;
  readonly follow?: LogFollower;
  readonly random?: () => number;
}

function openConnection(
  address: StoreAddress,
  { greet = async () => {}, follow, random = () => 1 }: Steps = {},
) {
  const clock = new ManualClock();
  const [heard, faults] = [[] as string[], [] as string[]];
  const connection = new StoreConnection({
    ...{ address, clock, random, greet, follow },
    onConnected: () => heard.push('connected'),
    onLost: ({ message }) => {
      heard.push('lost');
      faults.push(message);
    },
  });
  onTestFinished(() => connection.close());
  return { clock, connection, heard, faults };
}

test('store connection: commands fail at once while it is not open, and a start is enough', async () => {
  const store = await openScriptedStore(() => 'OK');
  const { connection, heard, clock } = openConnection(store.address);
  const connecting = lost('the store cannot be used: noria is connecting');
  expect(connection.fault).toMatchObject(connecting);
  await expect(connection.call(['PING'])).rejects.toMatchObject(connecting);
  connection.start();
  connection.start();
  await connection.tried;
  expect([connection.fault, heard, store.open]).toEqual([undefined, ['connected'], 1]);
  expect(await connection.call(['PING'])).toBe('OK');
  connection.reset(new NoriaError('fleet-store-lost', 'again'));
  await until('it is lost', () => heard.length === 2);
  expect(connection.fault?.message).toBe('again');
  expect(clock.armedMs, 'the first attempt after a connection').toEqual([100]);
  clock.advance(100);
  await until('it is open again', () => heard.length === 3);
  expect(store.open).toBe(1);
  await connection.close();
  expect(heard, 'closing is no loss').toEqual(['connected', 'lost', 'connected']);
  expect(connection.fault?.message).toContain('noria closed the connection');
  await until('its connections have ended', () => store.open === 0);
});

test.each([
  [1, [200, 400, 800, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000]],
  [0.5, [150, 250, 450, 550, 550, 550, 550, 550, 550, 550]],
  [0, [100, 100, 100, 100, 100, 100, 100, 100, 100, 100]],
])(
  'store connection: the delay between two attempts doubles up to a second (random %d)',
  async (share, delays) => {
    const { connection, clock, faults } = openConnection((await openScriptedStore(() => 'OK')).address, {
      greet: async () => {
        throw new NoriaError('fleet-store-lost', 'refused');
      },
      random: () => share,
    });
    connection.start();
    await connection.tried;
    for (const [index, delay] of delays.entries()) {
      await until('the attempt has failed', () => faults.length === index + 1 && clock.armedCount === 1);
      expect(clock.armedMs).toEqual([delay]);
      clock.advance(delay);
    }
    expect(new Set(faults)).toEqual(new Set(['refused']));
    expect(connection.fault?.message).toBe('refused');
    await until('it waits', () => clock.armedCount === 1);
    await connection.close();
    expect(clock.armedCount).toBe(0);
  },
);

test('store connection: it is open when its state is loaded, over a second connection that may end it', async () => {
  const store = await openScriptedStore(() => 'OK');
  const loaded = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<never>();
  const order: string[] = [];
  const { connection, heard, faults } = openConnection(store.address, {
    greet: async (client) => void order.push(`greet ${await client.call(['GREET'])}`),
    follow: {
      load: async (client) => {
        order.push(`load ${await client.call(['LOAD'])}`);
        await loaded.promise;
      },
      read: () => ended.promise,
    },
  });
  connection.start();
  await until('it loads', () => order.length === 2);
  expect([order, store.open, heard]).toEqual([['greet OK', 'load OK'], 2, []]);
  expect(connection.fault?.message).toContain('noria is connecting');
  loaded.resolve();
  await connection.tried;
  expect([connection.fault, heard]).toEqual([undefined, ['connected']]);
  ended.reject(new Error('an entry is missing'));
  await until('it is lost', () => heard.length === 2);
  expect(faults).toEqual(['an entry is missing']);
  await until('both connections have ended', () => store.open === 0);
});

test('store connection: closing before its second connection is open ends that, too', async () => {
  const store = await openScriptedStore((_, connection) => (connection === 1 ? 'OK' : undefined));
  const follow: LogFollower = { load: async () => {}, read: () => new Promise(() => {}) };
  const { connection, heard } = openConnection(withServer(store, { database: 1 }), { follow });
  connection.start();
  await until('the second one is opening', () => store.commands.length === 2);
  await connection.close();
  expect(heard).toEqual([]);
  await until('both have ended', () => store.open === 0);
});

test("store connection: closing while a Sentinel's primary tells its role ends the connection to it", async () => {
  const role = Promise.withResolvers<Answer>();
  const store = await openScriptedStore(() => role.promise);
  const sentinel = await openScriptedStore(() => ['127.0.0.1', String(store.port)]);
  const addresses = [{ host: '127.0.0.1', port: sentinel.port }];
  const greeted: StoreClient[] = [];
  const { connection } = openConnection(
    { ...store.address, sentinel: { primary: 'mymaster', addresses } },
    { greet: async (client) => void greeted.push(client) },
  );
  connection.start();
  await until('it asks for the role', () => store.commands.length === 1);
  const closed = connection.close();
  role.resolve(['master']);
  await closed;
  await expect(greeted[0]?.call(['PING'])).rejects.toThrow('noria closed the connection');
  await until('it has ended', () => store.open === 0);
});
