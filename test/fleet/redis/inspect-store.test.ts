import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { Secret } from '../../../src/core/secret.ts';
import type { StoreAddress } from '../../../src/fleet/redis/connection.ts';
import { aclLine, inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import { listen, openFarProxy, portOf } from '../../chaos/delaying-proxy.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, openStore, type TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

const NAME = 'crawl';
const inspect = (address: StoreAddress) => inspectStore(address, NAME, systemClock);

function as(store: TestStore, username: string, password: string): StoreAddress {
  const { label, server } = store.address();
  return { label, server: { ...server, login: { username, password: new Secret(password) } } };
}

/** Runs the command as an operator would. */
async function setUser(store: TestStore, line: string): Promise<void> {
  await store.command(...line.replace('>PASSWORD', '>pass').split(' '));
}

/** A server that answers every command with this text. */
async function openInfoServer(text: string): Promise<StoreAddress> {
  const server = createServer((socket) => {
    socket.on('error', () => {}); // ignored: the client ends it
    socket.on('data', () => socket.write(`$${text.length}\r\n${text}\r\n`));
  });
  await listen(server);
  onTestFinished(() => void server.close());
  return {
    label: 'info',
    server: { host: '127.0.0.1', port: portOf(server), login: {}, tls: undefined, database: 0 },
  };
}

describe.skipIf(NO_STORE)('with a store', () => {
  test('store check: a good store has no errors, and its persistence decides about the warning', async () => {
    const plain = await openStore();
    const report = await inspect(plain.address());
    expect(report.errors).toEqual([]);
    expect(report.version).toMatch(/^(?:Redis|Valkey) \d+\.\d+/);
    expect(report.warnings).toEqual([expect.stringContaining('no append-only file')]);
    const safe = await openStore({ args: ['--appendonly', 'yes'] });
    expect((await inspect(safe.address())).warnings).toEqual([]);
    expect(await safe.command('DBSIZE')).toBe(0);
  });

  test('store check: reports a store that is unreachable or silent', async () => {
    const gone = await openStore();
    await gone.kill();
    expect((await inspect(gone.address())).errors).toEqual([
      expect.stringMatching(/ECONNREFUSED.*; check host and port in the URL, that the store runs/),
    ]);
    const silent = createServer((socket) => socket.on('error', () => {})); // ignored: the client ends it
    await listen(silent);
    onTestFinished(() => void silent.close());
    const { server } = as(gone, 'me', 'pass');
    const address = { label: 'silent', server: { ...server, port: portOf(silent) } };
    expect((await inspect(address)).errors).toEqual([
      expect.stringMatching(
        /no connection within 5000 ms; check host and port .*; if the store requires TLS, begin the URL with rediss:/,
      ),
    ]);
  });

  test('store check: reports an old version', async () => {
    const address = await openInfoServer('redis_version:6.2.7\r\nrole:master\r\n');
    expect(await inspect(address)).toEqual({
      version: 'Redis 6.2.7',
      isReachable: true,
      errors: ['the store is Redis 6.2.7, and noria needs Valkey, or Redis 7.0 or later'],
      warnings: [],
    });
  });

  test('store check: a store that does not name its run and its data', async () => {
    const address = await openInfoServer('redis_version:7.4.0\r\nrole:master\r\naof_enabled:1\r\n');
    expect(await inspect(address)).toEqual({
      version: 'Redis 7.4.0',
      isReachable: true,
      errors: [expect.stringMatching(/does not report run_id and master_replid .*; use Valkey or Redis/)],
      warnings: [],
    });
  });

  test('store check: reports another kind of server, and a database that does not exist', async () => {
    const web = createHttpServer((_, response) => response.end('hello'));
    await listen(web);
    onTestFinished(() => void web.close());
    const store = await openStore();
    const { label, server } = store.address();
    const at = (change: Partial<StoreAddress['server']>) =>
      inspect({ label, server: { ...server, ...change } });
    expect((await at({ port: portOf(web) })).errors).toEqual([
      expect.stringMatching(/another kind of server listens there: check host and port in the URL/),
    ]);
    expect((await at({ database: 99 })).errors).toEqual([
      expect.stringMatching(/DB index is out of range; check the database number in the URL/),
    ]);
    const password = new Secret('pass');
    expect((await at({ login: { password } })).errors).toEqual([
      expect.stringMatching(/; the store has no password: remove the password from the URL$/),
    ]);
  });

  test('store check: reports a wrong password, and a missing one', async () => {
    const store = await openStore({ password: 'hunter2hunter2' });
    expect((await inspect(store.address())).errors).toEqual([]);
    const [wrong = ''] = (await inspect(as(store, 'default', 'hunter3hunter3'))).errors;
    expect(wrong).toMatch(/refused the login: WRONGPASS.*check user name and password/);
    expect(wrong).not.toContain('hunter3');
    const { label, server } = store.address();
    const [missing] = (await inspect({ label, server: { ...server, login: {} } })).errors;
    expect(missing).toBe('the store needs a password; add the password to the URL');
  });

  test('store check: names the missing permissions, and the line that grants them', async () => {
    const store = await openStore();
    const line = aclLine(NAME, 'noria');
    await setUser(store, `${line} -xadd -xread -hset`);
    const { errors } = await inspect(as(store, 'noria', 'pass'));
    expect(errors).toEqual([
      `the user of the store may not run HSET, XADD, XREAD; give it the permissions that noria needs: ${line}`,
    ]);
    await setUser(store, `${line} resetkeys ~other:*`);
    expect((await inspect(as(store, 'noria', 'pass'))).errors).toEqual([
      `the user of the store may not use the keys of this fleet; give it the permissions that noria needs: ${line}`,
    ]);
    await setUser(store, `${line} -info`);
    expect((await inspect(as(store, 'noria', 'pass'))).errors).toEqual([expect.stringContaining(line)]);
    await setUser(store, line);
    expect((await inspect(as(store, 'noria', 'pass'))).errors).toEqual([]);
  });

  test('store check: the permissions of that line are enough for a fleet', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    await setUser(store, aclLine(stage.name, 'noria'));
    const pool = stage.connect('a', { address: as(store, 'noria', 'pass'), minEntries: 1, beatEveryMs: 5 });
    const seen = new Recorder();
    await pool.follow(seen);
    pool.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01') }]);
    const session = { name: 's', owner: { user: '', address: '' }, ttlMs: 60_000, usedAt: 0, uses: 0 };
    pool.publish([{ kind: 'session.moved', session, reason: 'new' }]);
    await pool.bindSession({ ...session, name: 'other' }, undefined);
    await pool.pace.change('city', () => ({ newEntry: { queue: [] }, result: undefined }));
    const beat = { waiting: 0, demand: {} };
    const members = [{ member: 'member01', uses: 1, openLeases: 0, endsAt: 1 }];
    pool.beat({
      ...beat,
      members,
      sessions: [{ session: 's', uses: 1, openLeases: 0, usedAt: 1, ttlMs: 1 }],
    });
    for (const before = seen.views.length; seen.views.length < before + 3; ) await new Promise(setImmediate);
    expect(pool.fault).toBeUndefined();
    await pool.close();
    expect(seen.facts.map(({ fact }) => fact.kind).sort()).toEqual(['member.joined', 'session.moved']);
  });

  test('store check: reports a read-only replica, and evictions when the memory is full', async () => {
    const primary = await openStore();
    const port = await freePort();
    const replica = await openStore({ port, args: ['--replicaof', '127.0.0.1', String(primary.port)] });
    expect((await inspect(replica.address())).errors).toEqual([
      `the store is a read-only replica of 127.0.0.1:${primary.port}; use the address of the primary, or Sentinels`,
    ]);
    await primary.command('CONFIG', 'SET', 'maxmemory', '100mb', 'maxmemory-policy', 'allkeys-lru');
    expect((await inspect(primary.address())).errors).toEqual([
      expect.stringContaining('has maxmemory-policy allkeys-lru'),
    ]);
    await primary.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    expect((await inspect(primary.address())).errors).toEqual([]);
  });

  test('store check: reports data of a later version', async () => {
    const store = await openStore();
    await store.command('HSET', `{noria:${NAME}}:epoch`, 'format', '99', 'id', 'x');
    expect((await inspect(store.address())).errors).toEqual([expect.stringContaining('has format 99')]);
  });

  test('store check: warns when the memory of the store is more than 80 % full', async () => {
    const store = await openStore({ args: ['--appendonly', 'yes'] });
    await store.command('SETRANGE', 'filler', '40000000', 'x');
    const used = Number(/used_memory:(\d+)/.exec(String(await store.command('INFO', 'memory')))?.[1]);
    const warningsAt = async (share: number) => {
      await store.command('CONFIG', 'SET', 'maxmemory', String(Math.round(used / share)));
      const { errors, warnings } = await inspect(store.address());
      expect(errors).toEqual([]);
      return warnings;
    };
    expect(await warningsAt(0.77)).toEqual([]);
    expect(await warningsAt(0.85)).toEqual([
      expect.stringMatching(/^the memory of the store is 8[3-7] % full; .*; raise maxmemory$/),
    ]);
  });

  test('store check: refuses a node of a cluster, also with a database number', async () => {
    const node = await openStore({ args: ['--cluster-enabled', 'yes'] });
    const { label, server } = node.address();
    for (const database of [0, 3]) {
      const report = await inspect({ label, server: { ...server, database } });
      expect(report).toMatchObject({ isReachable: true });
      expect(report.errors, `database ${database}`).toEqual([
        expect.stringMatching(/cluster.*; use a store without cluster mode \(cluster-enabled no\)$/),
      ]);
    }
  });

  test('store check: says to wait for a store that still loads its data', async () => {
    const store = await openStore({
      args: ['--key-load-delay', '50000', '--loading-process-events-interval-bytes', '1024'],
    });
    const fill =
      "for i = 1, 1200 do redis.call('SET', 'key' .. i, string.rep(tostring(math.random()), 100)) end";
    await store.command('EVAL', fill, '0');
    await store.command('CONFIG', 'SET', 'rdbcompression', 'no');
    await store.command('SAVE');
    await store.kill();
    const started = store.start(); // would last a minute
    const info = () => store.command('INFO', 'persistence').then(String, () => ''); // no connection yet
    await until('the store loads', async () => /\nloading:1/.test(await info()));
    expect(await inspect(store.address())).toMatchObject({
      errors: [
        expect.stringMatching(
          /LOADING.*; the store still loads its data: wait until it has started, and run/,
        ),
      ],
      warnings: [],
    });
    await store.command('CONFIG', 'SET', 'key-load-delay', '0');
    await started;
    expect((await inspect(store.address())).errors).toEqual([]);
  });

  test('store check: says that a store is slow', async () => {
    const store = await openStore({ args: ['--appendonly', 'yes'] });
    const report = await inspect(store.address(await openFarProxy(store.port, 30)));
    expect(report.errors).toEqual([]);
    expect(report.warnings).toEqual([
      expect.stringMatching(/^the store answered after [6-9]\d ms; .*use a store within 10 ms$/),
    ]);
  });
});
