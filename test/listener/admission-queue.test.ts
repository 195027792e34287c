import { spawn } from 'node:child_process';
import { expect, onTestFinished, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import type { ConnectionLimit } from '../../src/listener/client-connection.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, RawClient } from './harness.ts';

/** A shared limit with answers from the test. */
class ManualLimit implements ConnectionLimit {
  readonly requests: ((allowed: boolean) => void)[] = [];
  releasedCount = 0;

  acquire(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.requests.push(resolve);
    return promise;
  }

  release(): void {
    this.releasedCount += 1;
  }
}

const REQUEST = 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n';

test('connection limit: a client waits for its permit, and no byte it sends is lost', async () => {
  const limit = new ManualLimit();
  const { port, listener } = await listen(directDialer(), { sharedLimit: limit });
  const client = (await RawClient.open(port)).send(REQUEST);
  await until('a request', () => limit.requests.length === 1);
  expect([listener.connectionCount, client.received]).toEqual([0, '']);
  limit.requests[0]?.(true);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 400 /);
  client.socket.destroy();
  await until('the release', () => limit.releasedCount === 1);
});

test('connection limit: a client without a permit gets a refusal, and nothing is released', async () => {
  const limit = new ManualLimit();
  const { port, listener } = await listen(directDialer(), { sharedLimit: limit });
  const client = (await RawClient.open(port)).send(REQUEST);
  await until('a request', () => limit.requests.length === 1);
  limit.requests[0]?.(false);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  client.socket.destroy();
  await until('the close', () => listener.connectionCount === 0);
  expect(limit.releasedCount).toBe(0);
});

test('connection limit: a permit that comes after the listener has closed is released', async () => {
  const limit = new ManualLimit();
  const { port, listener } = await listen(directDialer(), { sharedLimit: limit });
  const client = await RawClient.open(port);
  await until('a request', () => limit.requests.length === 1);
  await listener.close();
  await until('the client is closed', () => client.ended || client.closed);
  limit.requests[0]?.(true);
  await until('the release', () => limit.releasedCount === 1);
  expect(listener.connectionCount).toBe(0);
});

test('connection limit: a client that is not allowed takes no permit', async () => {
  const limit = new ManualLimit();
  const { port } = await listen(directDialer(), { sharedLimit: limit }, { allow: ['192.0.2.0/24'] });
  const client = (await RawClient.open(port)).send(REQUEST);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 403 /);
  expect(limit.requests).toEqual([]);
});

test('connection limit: a client that has left while it waited takes no permit', async () => {
  const limit = new ManualLimit();
  const { port, listener } = await listen(directDialer(), { sharedLimit: limit });
  const client = await RawClient.open(port);
  await until('a request', () => limit.requests.length === 1);
  client.socket.end();
  await RawClient.open(port);
  await until('the request of a later client', () => limit.requests.length === 2);
  limit.requests[0]?.(true);
  await until('the release', () => limit.releasedCount === 1);
  expect(listener.connectionCount).toBe(0);
  limit.requests[1]?.(false);
});

test('connection limit: a client waits 2 s at most, and a later permit is released', async () => {
  const clock = ManualClock.dayOld();
  const deadlines = new Deadlines(clock, 5);
  const limit = new ManualLimit();
  const { port } = await listen(directDialer(), { sharedLimit: limit, deadlines });
  const client = (await RawClient.open(port)).send(REQUEST);
  await until('a request', () => limit.requests.length === 1);
  clock.advance(1_995);
  expect(client.received).toBe('');
  clock.advance(15);
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  client.socket.destroy();
  limit.requests[0]?.(true);
  await until('the release', () => limit.releasedCount === 1);
  await until('no deadline', () => deadlines.size === 0);
});

test('connection limit: at most 512 clients wait, and the others are refused at once', async () => {
  const limit = new ManualLimit();
  const { port } = await listen(directDialer(), { sharedLimit: limit });
  openElsewhere(512, port);
  await until('512 requests', () => limit.requests.length === 512);
  const late = (await RawClient.open(port)).send(REQUEST);
  expect(await late.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  expect(limit.requests.length).toBe(512);
  for (const allow of limit.requests) allow(true);
  const next = (await RawClient.open(port)).send(REQUEST);
  await until('another request', () => limit.requests.length === 513);
  limit.requests[512]?.(true);
  expect(await next.whole()).toMatch(/^HTTP\/1\.1 400 /);
});

test('connection limit: an answer that is there at once needs no wait', async () => {
  let released = 0;
  const answers = [true, false, true];
  const release = () => {
    released += 1;
  };
  const sharedLimit = { acquire: () => answers.shift() ?? false, release };
  const { port, listener } = await listen(directDialer(), { sharedLimit });
  const [first, second] = [await RawClient.open(port), await RawClient.open(port)];
  expect(await first.send(REQUEST).whole()).toMatch(/^HTTP\/1\.1 400 /);
  expect(await second.send(REQUEST).whole()).toMatch(/^HTTP\/1\.1 503 /);
  for (const { socket } of [first, second]) socket.destroy();
  await until('both closes', () => listener.connectionCount === 0);
  expect(released, 'only the allowed one').toBe(1);
});

/** Opens connections from a process of their own: this one may have no more than 1,024 descriptors. They close with the test. */
function openElsewhere(count: number, port: number): void {
  const open = `for (let n = 0; n < ${count}; n += 1) require('node:net').connect(${port}, '127.0.0.1').on('error', () => {})`;
  const child = spawn(process.execPath, ['-e', open], { stdio: 'ignore' });
  onTestFinished(() => void child.kill());
}
