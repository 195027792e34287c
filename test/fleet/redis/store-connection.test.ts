/** Connections to real stores: TLS, certificates of clients, users, databases and Sentinels. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { systemRandom } from '../../../src/core/random.ts';
import { Secret } from '../../../src/core/secret.ts';
import type { StoreAddress, StoreTls } from '../../../src/fleet/redis/connection.ts';
import { openPrimary, StoreConnection } from '../../../src/fleet/redis/connection.ts';
import { inspectStore } from '../../../src/fleet/redis/inspect-store.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, openStore, storeHasTls, type TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { openStoreStage } from './store-stage.ts';

/** An absolute path, because the store changes its working directory. */
const CERT = resolve('test/fixtures/service/tls/localhost.cert.pem');
const KEY = resolve('test/fixtures/service/tls/localhost.key.pem');
const LIMIT_MS = 60_000;
const signal = new AbortController().signal;

/** Returns the answer to PING at this address, or the error. */
async function ping(address: StoreAddress): Promise<unknown> {
  try {
    const client = await openPrimary(address, { clock: systemClock, deadlineMs: LIMIT_MS, signal });
    const pong = await client.call(['PING'], LIMIT_MS);
    client.close();
    return pong;
  } catch (error) {
    return error;
  }
}

async function openTlsStore(authClients: 'yes' | 'no') {
  const port = await freePort();
  const files = ['--tls-cert-file', CERT, '--tls-key-file', KEY, '--tls-ca-cert-file', CERT];
  await openStore({ args: ['--tls-port', String(port), '--tls-auth-clients', authClients, ...files] });
  return (tls: StoreTls | undefined): StoreAddress => ({
    label: 'TLS',
    server: { host: 'localhost', port, login: {}, tls, database: 0 },
  });
}

describe.skipIf(NO_STORE)('with a store', () => {
  test('store connection: closing also ends a connection that is not open for commands yet', async () => {
    const store = await openStore();
    const [greeting, greeted] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const connection = new StoreConnection({
      address: store.address(),
      clock: systemClock,
      random: systemRandom,
      greet() {
        greeting.resolve();
        return greeted.promise;
      },
      onConnected() {},
      onLost() {},
    });
    connection.start();
    await greeting.promise;
    const closed = connection.close();
    greeted.resolve();
    await closed;
  });

  test('store connection: TLS needs a trusted certificate', async ({ skip }) => {
    skip(!storeHasTls(), 'redis-server has no TLS');
    const address = await openTlsStore('no');
    const ca = readFileSync(CERT, 'utf8');
    expect(await ping(address({ ca }))).toBe('PONG');
    expect(await ping(address({}))).toMatchObject({
      code: 'fleet-store-lost',
      message: expect.stringMatching(/self.signed certificate/),
    });
  });

  test('store connection: noria identifies itself with its own certificate', async ({ skip }) => {
    skip(!storeHasTls(), 'redis-server has no TLS');
    const address = await openTlsStore('yes');
    const [ca, cert, key] = [
      readFileSync(CERT, 'utf8'),
      readFileSync(CERT, 'utf8'),
      readFileSync(KEY, 'utf8'),
    ];
    expect(await ping(address({ ca, cert, key: new Secret(key) }))).toBe('PONG');
    expect(await ping(address({ ca }))).toMatchObject({ code: 'fleet-store-lost' });
    const { errors } = await inspectStore(address({ ca }), 'crawl', systemClock);
    expect(errors).toEqual([
      expect.stringMatching(
        // the alert may be lost in a reset of the connection: the advice is then a condition
        /; (?:the store asks for a client certificate:|if the store asks for a client certificate,) set fleet\.tls\.cert and fleet\.tls\.key/,
      ),
    ]);
  });

  test('store connection: uses the user, the password and the database of the URL', async () => {
    const store = await openStore();
    await store.command('ACL', 'SETUSER', 'me', 'on', '>hunter2', '~*', '+@all');
    const login = { username: 'me', password: new Secret('hunter2') };
    const address = { label: 'x', server: { ...store.address().server, login, database: 3 } };
    const client = await openPrimary(address, { clock: systemClock, deadlineMs: LIMIT_MS, signal });
    expect(await client.call(['ACL', 'WHOAMI'], LIMIT_MS)).toBe('me');
    await client.call(['SET', 'a', '1'], LIMIT_MS);
    client.close();
    expect(await store.command('INFO', 'keyspace')).toContain('db3:keys=1');
    const wrong = {
      label: 'x',
      server: { ...address.server, login: { ...login, password: new Secret('no') } },
    };
    expect(await ping(wrong)).toMatchObject({ code: 'fleet-store-unusable' });
  });

  test('store connection: Sentinels lead to the new primary after a failover, and the fleet waits for a lost claim', async () => {
    const primary = await openStore();
    const port = await freePort();
    const replica = await openStore({ port, args: ['--replicaof', '127.0.0.1', String(primary.port)] });
    const sentinel = await openSentinel(primary);
    const address: StoreAddress = {
      label: 'the primary mymaster',
      server: { ...primary.address().server, port: 1 },
      sentinel: {
        primary: 'mymaster',
        addresses: [
          { host: '127.0.0.1', port: 1 },
          { host: '127.0.0.1', port: sentinel.port },
        ],
      },
    };
    const stage = openStoreStage(primary);
    const store = stage.store({ address });
    await until('it is connected', () => store.connection.fault === undefined);
    const before = store.epochId;
    await until('the Sentinel knows the replica', async () =>
      String(await sentinel.command('SENTINEL', 'replicas', 'mymaster')).includes(String(port)),
    );
    await until('the replica is in sync', async () =>
      String(await replica.command('INFO', 'replication')).includes('master_link_status:up'),
    );
    await primary.kill();
    // A server that changes its role closes its connections.
    const role = () => replica.command('ROLE').catch(() => '');
    await until('the replica is the primary', async () => String(await role()).startsWith('master'));
    await until('it is connected', () => store.connection.fault === undefined);
    expect(store.epochId).not.toBe(before);
    expect(Number(await replica.command('HGET', store.keys.epoch, 'floorAt'))).toBeGreaterThan(0);
  });
});

async function openSentinel(primary: TestStore): Promise<TestStore> {
  const sentinel = await openStore({ sentinel: true });
  const quick = ['down-after-milliseconds', '500', 'failover-timeout', '5000'];
  await sentinel.command('SENTINEL', 'MONITOR', 'mymaster', '127.0.0.1', String(primary.port), '1');
  await sentinel.command('SENTINEL', 'SET', 'mymaster', ...quick);
  return sentinel;
}
