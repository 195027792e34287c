/**
 * Opens and ends many connections in every possible way, compares every byte of every tunnel, then checks that nothing is left: no
 * socket, no descriptor, no memory.
 *
 * NORIA_SOAK sets the number of connections in each round.
 */
import { existsSync, readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { runsOf } from '../support/properties.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, RawClient } from './harness.ts';
import { rawOrigin } from './origin.ts';

const TOTAL = Number(process.env['NORIA_SOAK'] ?? runsOf(2_000));
const AT_ONCE = 40;
const ROUNDS = 4;
const MOST_GROWTH_BYTES = 1024 * 1024;
/** Other work of this process may open some. */
const MOST_DESCRIPTORS = 16;
const DESCRIPTORS = '/proc/self/fd';

const connectHead = (port: number) => `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\n\r\n`;
const get = (port: number) => `GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
/** The chosen method, and the reply with an IPv4 address. */
const SOCKS5_REPLY_BYTES = 12;
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
  const received = await client.whole();
  client.socket.destroy();
  return received;
};

const splitHead = (text: string) => [
  text.slice(0, text.indexOf('\r\n\r\n') + 4),
  text.slice(text.indexOf('\r\n\r\n') + 4),
];

let messageCount = 0;

/** A text that no other tunnel sends, of up to 3 kB. */
function message(): string {
  messageCount += 1;
  return `${messageCount} `.repeat((messageCount * 7) % 500) + messageCount;
}

/** Sends a text through an open tunnel to the echo, ends it, and compares what comes back. */
async function echoToEnd(client: RawClient, head: string): Promise<void> {
  const text = message();
  expect(await whole(client.send(text).end())).toBe(head + text);
}

/** Sends a text through an open tunnel to the echo, and waits until the same has come back. */
async function echo(client: RawClient, head: string): Promise<void> {
  const text = message();
  const whole = head + text;
  expect(await client.send(text).until('the echo', ({ length }) => length >= whole.length)).toBe(whole);
}

/** Every possible course of a connection, by name. */
const COURSES: Readonly<Record<string, (client: RawClient, at: Targets) => Promise<unknown>>> = {
  async 'a tunnel that ends cleanly'(client, { echo: port }) {
    client.send(connectHead(port));
    await echoToEnd(client, await client.until('the response', (text) => text.includes('\r\n\r\n')));
  },
  async 'a tunnel that the client resets'(client, { echo: port }) {
    client.send(connectHead(port));
    await echo(client, await client.until('the response', (text) => text.includes('\r\n\r\n')));
    client.socket.resetAndDestroy();
  },
  'a tunnel that the target resets': (client, { resetting }) =>
    whole(client.send(`${connectHead(resetting)}hello`)),
  async 'a half-closed client'(client, { echo }) {
    const text = message();
    const [, echoed] = splitHead(await whole(client.send(connectHead(echo) + text).end()));
    expect(echoed).toBe(text);
  },
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
  async SOCKS5(client, { echo: port }) {
    client.send(socks5(port));
    await echoToEnd(client, await client.until('the reply', ({ length }) => length === SOCKS5_REPLY_BYTES));
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
    const grown = {
      heap: after.heapBytes - before.heapBytes,
      buffers: after.bufferBytes - before.bufferBytes,
      descriptors: after.descriptors - before.descriptors,
    };
    const isCalm =
      grown.heap < MOST_GROWTH_BYTES &&
      grown.buffers < MOST_GROWTH_BYTES &&
      grown.descriptors <= MOST_DESCRIPTORS;
    if (isCalm) return;
    if (round === ROUNDS)
      expect.unreachable(`what ${TOTAL} connections leave behind: ${JSON.stringify(grown)}`);
    before = after;
  }
}, 300_000);

/** The open sockets and descriptors of this process, and its memory after a full garbage collection. */
async function leftovers() {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  await new Promise((resolve) => setImmediate(resolve)); // sockets are closed
  collect();
  collect();
  const handles = process.getActiveResourcesInfo().filter((name) => name.startsWith('TCP')).length;
  const { heapUsed: heapBytes, external: bufferBytes } = process.memoryUsage(); // `external` includes `arrayBuffers`
  const descriptors = existsSync(DESCRIPTORS) ? readdirSync(DESCRIPTORS).length : 0;
  return { handles, heapBytes, bufferBytes, descriptors };
}
