/**
 * Opens and ends many connections in every possible way, then checks that nothing is left of them.
 *
 * NORIA_SOAK sets the number of connections; the default keeps the suite fast.
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
const ROUNDS = 4;
const MOST_GROWTH_BYTES = 1024 * 1024;

const connectHead = (port: number) => `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\n\r\n`;
const get = (port: number) => `GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
const socks5 = (port: number) =>
  `\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01${String.fromCharCode(port >> 8, port & 255)}`;

interface Targets {
  /** Echoes, and ends when the client does. */
  readonly echo: number;
  /** Responds to each request. */
  readonly site: number;
  /** Resets a connection at its first byte. */
  readonly resetting: number;
  /** A port without a listener. */
  readonly nowhere: number;
}

const whole = async (client: RawClient) => {
  await client.whole();
  client.socket.destroy();
};

/** Every possible course of a connection, by name. */
const COURSES: Readonly<Record<string, (client: RawClient, at: Targets) => Promise<void>>> = {
  async 'a tunnel that ends cleanly'(client, { echo }) {
    client.send(connectHead(echo));
    await client.until('the response', (text) => text.includes('\r\n\r\n'));
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
  async 'a client that leaves during the dial'(client, { echo }) {
    client.send(connectHead(echo));
    await new Promise((resolve) => setImmediate(resolve));
    client.socket.destroy();
  },
  async 'a client that leaves during its request head'(client) {
    client.send('CONNECT a.exam');
    await new Promise((resolve) => setImmediate(resolve));
    client.socket.resetAndDestroy();
  },
  async 'a silent client'(client) {
    client.socket.destroy();
  },
  'a target that does not listen': (client, { nowhere }) => whole(client.send(connectHead(nowhere))),
  'another protocol': (client) => whole(client.send('hello\r\n\r\n')),
  async 'pipelined requests'(client, { site }) {
    client.send(get(site) + get(site));
    await client.until('two responses', (text) => text.split('hi').length === 3);
    client.socket.destroy();
  },
  async 'a client that leaves during a response'(client, { site }) {
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
  async 'a SOCKS5 client that leaves during its handshake'(client) {
    client.send('\x05\x01\x00\x05\x01');
    await client.until('its method', (text) => text.length === 2);
    client.socket.destroy();
  },
};

test(`soak: ${TOTAL} connections that end in every possible way leave nothing behind`, async () => {
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
  const { port, listener, deadlines, emitted } = await listen(dialer);
  const courses = Object.values(COURSES);

  const clear = (): void => {
    for (const { sockets, seen } of [echo, site, resetting]) sockets.length = seen.length = 0;
    for (const list of [dialer.sockets, dialer.requests, dialer.ended, emitted]) list.length = 0;
  };
  const run = async (count: number): Promise<void> => {
    let next = 0;
    const runNext = async (): Promise<void> => {
      while (next < count) {
        const course = courses[next++ % courses.length];
        await course?.(await RawClient.openUntracked(port), targets);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, runNext));
    await until('all closes', () => listener.connectionCount === 0);
    await until('all leases have ended', () => dialer.ended.length === dialer.sockets.length);
    await until('all target connections to close', () =>
      [echo, site, resetting].every((origin) => origin.sockets.every((socket) => socket.destroyed)),
    );
  };

  await run(courses.length * 20); // warm-up: creates what is created only once
  clear();
  let before = await leftovers();
  // Other work of this process may allocate once. What connections leave behind grows in every round.
  for (let round = 1; round <= ROUNDS; round += 1) {
    await run(TOTAL);
    const count = (event: string): number => emitted.filter(({ name }) => name === event).length;
    // A client that leaves at once may be gone before noria accepts it.
    expect(count('connection.opened')).toBeGreaterThan(TOTAL * 0.8);
    expect(count('connection.closed')).toBe(count('connection.opened'));
    expect(deadlines.size).toBe(0);
    clear();
    await until('no socket is left', async () => (await leftovers()).handles <= before.handles);
    const after = await leftovers();
    const grownBytes = after.heapBytes - before.heapBytes;
    if (grownBytes < MOST_GROWTH_BYTES) return;
    if (round === ROUNDS)
      expect(grownBytes, 'growth of the heap in the last round').toBeLessThan(MOST_GROWTH_BYTES);
    before = after;
  }
}, 300_000);

/** The open sockets of this process, and its heap size after a full garbage collection. */
async function leftovers(): Promise<{ handles: number; heapBytes: number }> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  await new Promise((resolve) => setImmediate(resolve)); // sockets are closed
  collect();
  collect();
  const handles = process.getActiveResourcesInfo().filter((name) => name.startsWith('TCP')).length;
  return { handles, heapBytes: process.memoryUsage().heapUsed };
}
