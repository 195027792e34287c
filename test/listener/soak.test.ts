/**
 * Connections opened and ended in every way there is, many times over: nothing may be left of them.
 *
 * NORIA_SOAK sets how many; the usual number keeps the suite fast.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, RawClient } from './harness.ts';
import { rawOrigin } from './origin.ts';

const TOTAL = Number(process.env['NORIA_SOAK'] ?? 2_000);
const AT_ONCE = 40;

const connectHead = (port: number) => `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\n\r\n`;
const get = (port: number) => `GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
const socks5 = (port: number) =>
  `\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01${String.fromCharCode(port >> 8, port & 255)}`;

interface Targets {
  /** Gives back what it gets, and ends when the client does. */
  readonly echo: number;
  /** Answers each request. */
  readonly site: number;
  /** Resets whatever speaks to it. */
  readonly resetting: number;
  /** Where nothing listens. */
  readonly nowhere: number;
}

const whole = async (client: RawClient) => {
  await client.whole();
  client.socket.destroy();
};

/** Every way a connection can go, by name. */
const LIVES: Readonly<Record<string, (client: RawClient, at: Targets) => Promise<void>>> = {
  async 'a tunnel that ends in order'(client, { echo }) {
    client.send(connectHead(echo));
    await client.until('the way', (text) => text.includes('\r\n\r\n'));
    await whole(client.send('hello').end());
  },
  async 'a tunnel that the client resets'(client, { echo }) {
    client.send(`${connectHead(echo)}hello`);
    await client.until('the echo', (text) => text.endsWith('hello'));
    client.socket.resetAndDestroy();
  },
  'a tunnel that the target resets': (client, { resetting }) =>
    whole(client.send(`${connectHead(resetting)}hello`)),
  'a half-closed client': (client, { echo }) => whole(client.send(`${connectHead(echo)}hello`).end()),
  async 'a client that leaves in mid-dial'(client, { echo }) {
    client.send(connectHead(echo));
    await new Promise((resolve) => setImmediate(resolve));
    client.socket.destroy();
  },
  async 'a client that leaves in the middle of a head'(client) {
    client.send('CONNECT a.exam');
    await new Promise((resolve) => setImmediate(resolve));
    client.socket.resetAndDestroy();
  },
  async 'a client that says nothing'(client) {
    client.socket.destroy();
  },
  'a target that is not there': (client, { nowhere }) => whole(client.send(connectHead(nowhere))),
  'no HTTP': (client) => whole(client.send('hello\r\n\r\n')),
  async 'requests on one connection'(client, { site }) {
    client.send(get(site) + get(site));
    await client.until('two answers', (text) => text.split('hi').length === 3);
    client.socket.destroy();
  },
  async 'a client that leaves in the middle of an answer'(client, { site }) {
    client.send(get(site));
    await new Promise((resolve) => setImmediate(resolve));
    client.socket.destroy();
  },
  'a request whose members all fail': async (client, { resetting }) => {
    client.send(get(resetting));
    await client.until('the refusal', (text) => text.startsWith('HTTP/1.1 502') && text.endsWith('\n'));
    client.socket.destroy();
  },
  async SOCKS5(client, { echo }) {
    client.send(`${socks5(echo)}hello`);
    await client.until('the echo', (text) => text.endsWith('hello'));
    await whole(client.end());
  },
  async 'a SOCKS5 client that leaves in its handshake'(client) {
    client.send('\x05\x01\x00\x05\x01');
    await client.until('its method', (text) => text.length === 2);
    client.socket.destroy();
  },
};

test(`soak: ${TOTAL} connections that end in every way leave nothing behind`, async () => {
  const echo = await rawOrigin((socket) => socket.pipe(socket));
  const site = await rawOrigin((socket) =>
    socket
      .on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'))
      .on('end', () => socket.end()),
  );
  const resetting = await rawOrigin((socket) =>
    socket.on('data', () => socket.resetAndDestroy()).on('end', () => socket.end()),
  );
  const targets = { echo: echo.port, site: site.port, resetting: resetting.port, nowhere: 1 };
  const dialer = directDialer();
  const { port, listener, deadlines, told } = await listen(dialer);
  const lives = Object.values(LIVES);

  const forget = (): void => {
    for (const { sockets, seen } of [echo, site, resetting]) sockets.length = seen.length = 0;
    for (const list of [dialer.sockets, dialer.requests, dialer.ended, told]) list.length = 0;
  };
  const live = async (count: number): Promise<void> => {
    let next = 0;
    const liveOn = async (): Promise<void> => {
      while (next < count) {
        const life = lives[next++ % lives.length];
        await life?.(await RawClient.openUntracked(port), targets);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, liveOn));
    await until('all connections are gone', () => listener.connectionCount === 0);
    await until('all leases have ended', () => dialer.ended.length === dialer.sockets.length);
    await until('all targets are left', () =>
      [echo, site, resetting].every((origin) => origin.sockets.every((socket) => socket.destroyed)),
    );
  };

  await live(lives.length * 20); // what is made once is made here
  forget();
  const before = await leftovers();
  await live(TOTAL);
  const count = (event: string): number => told.filter(({ name }) => name === event).length;
  // Who connects and leaves at once may be gone before noria has seen it.
  expect(count('connection.opened')).toBeGreaterThan(TOTAL * 0.8);
  expect(count('connection.closed')).toBe(count('connection.opened'));
  expect(deadlines.size).toBe(0);
  forget();
  const after = await leftovers();
  expect(after.handles).toBe(before.handles);
  expect(after.heapBytes - before.heapBytes).toBeLessThan(1024 * 1024);
}, 300_000);

/** Open sockets of this process, and what its heap holds after a full collection. */
async function leftovers(): Promise<{ handles: number; heapBytes: number }> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  await until('sockets are closed', async () => {
    await new Promise((resolve) => setImmediate(resolve));
    return true;
  });
  collect();
  collect();
  const handles = process.getActiveResourcesInfo().filter((name) => name.startsWith('TCP')).length;
  return { handles, heapBytes: process.memoryUsage().heapUsed };
}
