/**
 * Small proxies on loopback, good and bad. Each sends exactly the bytes that its test needs.
 *
 * A member that accepts a target does not connect to it: the member acts as the target and echoes. So a test can use a
 * target that must not be reached directly, or one that does not exist.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { onTestFinished } from 'vitest';
import { type Clock, pause, systemClock } from '../../src/core/clock.ts';
import type { MemberProtocol } from '../../src/core/protocol.ts';
import { freePort } from './free-port.ts';

export interface TestMember {
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  /** The number of connections accepted so far. */
  readonly accepted: number;
  /** The number of open connections. */
  readonly open: number;
  /** The request heads or SOCKS messages of all connections, in order. */
  readonly received: readonly Buffer[];
}

const LOOPBACK = '127.0.0.1';

/** An untrusted certificate for `localhost`, and its key. */
export const LOCALHOST_TLS = {
  cert: readFileSync('test/fixtures/service/tls/localhost.cert.pem'),
  key: readFileSync('test/fixtures/service/tls/localhost.key.pem'),
};

/** What a member does with one connection. */
export type Behavior = (socket: Socket, record: (message: Buffer) => void) => void | Promise<void>;

/** @param tls - whether the member speaks TLS. Default: as its protocol requires. */
export async function openMember(
  protocol: MemberProtocol,
  behavior: Behavior,
  tls = protocol === 'https',
): Promise<TestMember> {
  const sockets = new Set<Socket>();
  const received: Buffer[] = [];
  let accepted = 0;
  const serve = (socket: Socket) => {
    accepted += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {}); // ignored: the other side may close at any time
    // ignored: the connection closed during the conversation
    Promise.resolve(behavior(socket, (message) => received.push(message))).catch(() => {});
  };
  const server = tls ? createTlsServer(LOCALHOST_TLS, serve) : createServer(serve);
  const port = await listen(server);
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await closed(server);
  });
  return {
    protocol,
    host: LOOPBACK,
    port,
    received,
    get accepted() {
      return accepted;
    },
    get open() {
      return sockets.size;
    },
  };
}

/** Returns an address without a listener. */
export async function refusingMember(protocol: MemberProtocol = 'http'): Promise<TestMember> {
  return { protocol, host: LOOPBACK, port: await freePort(), accepted: 0, open: 0, received: [] };
}

/** Opens a server to which nothing may connect. The test asserts the count of connections. */
export async function openCanary(): Promise<{ readonly port: number; readonly reached: number }> {
  let reached = 0;
  const server = createServer((socket) => {
    reached += 1;
    socket.destroy();
  });
  const port = await listen(server);
  onTestFinished(() => closed(server));
  return {
    port,
    get reached() {
      return reached;
    },
  };
}

/** Reads the head, answers with `answer`, then echoes. */
export function httpBehavior(
  answer = 'HTTP/1.1 200 Connection established\r\n\r\n',
  delayMs = 0,
  clock: Clock = systemClock,
): Behavior {
  return async (socket, record) => {
    record(await readHead(socket));
    if (delayMs > 0) await pause(clock, delayMs);
    socket.write(answer, 'latin1');
    socket.pipe(socket);
  };
}

/** Answers 407 to a request without these credentials, and accepts a request with them. */
export function authBehavior(username: string, password: string): Behavior {
  const wanted = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  return async (socket, record) => {
    const head = await readHead(socket);
    record(head);
    const given = /^proxy-authorization: (.*)$/im.exec(head.toString('latin1'))?.[1];
    if (given !== wanted) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="m"\r\n\r\n');
      return;
    }
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    socket.pipe(socket);
  };
}

export interface Socks5Options {
  /** The required credentials. A client that offers no credentials is refused. */
  readonly login?: { readonly username: string; readonly password: string };
  readonly reply?: number;
  /** ATYP, BND.ADDR and BND.PORT of the reply. Default: an IPv4 address of zeros. */
  readonly bound?: Buffer;
  /** Text to send in the same packet as the reply. */
  readonly early?: string;
  /** Whether to send each byte of every answer in its own packet. */
  readonly trickle?: boolean;
}

export function socks5Behavior(behavior: Socks5Options = {}): Behavior {
  const bound = behavior.bound ?? Buffer.from([1, 0, 0, 0, 0, 0, 0]);
  return async (socket, record) => {
    const say = (bytes: Buffer) =>
      behavior.trickle === true ? trickle(socket, bytes) : write(socket, bytes);
    const offer = await read(socket, 2);
    const methods = await read(socket, offer[1] ?? 0);
    record(Buffer.concat([offer, methods]));
    const wanted = behavior.login === undefined ? 0 : 2;
    if (!methods.includes(wanted)) {
      socket.end(Buffer.from([5, 0xff]));
      return;
    }
    await say(Buffer.from([5, wanted]));
    if (behavior.login !== undefined) {
      const given = await readLogin(socket);
      record(given.bytes);
      const good = given.username === behavior.login.username && given.password === behavior.login.password;
      await say(Buffer.from([1, good ? 0 : 1]));
      if (!good) {
        socket.end();
        return;
      }
    }
    record(await readSocks5Request(socket));
    await say(
      Buffer.concat([Buffer.from([5, behavior.reply ?? 0, 0]), bound, Buffer.from(behavior.early ?? '')]),
    );
    if (behavior.reply === undefined) socket.pipe(socket);
    else socket.end();
  };
}

export function socks4Behavior(code = 0x5a): Behavior {
  return async (socket, record) => {
    const start = await read(socket, 8);
    const userId = await readUntil(socket, '\0');
    const isNamed = start[4] === 0 && start[5] === 0 && start[6] === 0 && start[7] !== 0;
    const name = isNamed ? await readUntil(socket, '\0') : Buffer.alloc(0);
    record(Buffer.concat([start, userId, name]));
    socket.write(Buffer.from([0, code, 0, 0, 0, 0, 0, 0]));
    if (code === 0x5a) socket.pipe(socket);
    else socket.end();
  };
}

/** Reads everything and never answers. */
export const silentBehavior: Behavior = (socket) => {
  socket.resume();
};

/** Ends the connection after the request. */
export const closingBehavior: Behavior = (socket) => {
  socket.on('data', () => socket.end());
};

export const resettingBehavior: Behavior = (socket) => {
  socket.once('data', () => socket.resetAndDestroy());
};

/** Sends these bytes after the request, and keeps the connection open. */
export function sendingBehavior(bytes: string | Buffer): Behavior {
  return (socket) => {
    socket.once('data', () => socket.write(bytes));
    socket.resume();
  };
}

/** Sends an endless head. */
export const endlessBehavior: Behavior = (socket) => {
  socket.once('data', () => {
    socket.write('HTTP/1.1 200 OK\r\n');
    const line = `X-Padding: ${'x'.repeat(1_000)}\r\n`;
    const pour = () => {
      while (!socket.destroyed && socket.write(line));
    };
    socket.on('drain', pour);
    pour();
  });
  socket.resume();
};

/** Sends each byte of the answer in its own packet. */
export function tricklingBehavior(answer: string): Behavior {
  return async (socket, record) => {
    record(await readHead(socket));
    await trickle(socket, Buffer.from(answer, 'latin1'));
    socket.pipe(socket);
  };
}

/** Reads exactly this many bytes and leaves the rest in the stream. */
export async function read(socket: Socket, count: number): Promise<Buffer> {
  if (count === 0) return Buffer.alloc(0);
  for (;;) {
    const bytes: Buffer | null = socket.read(count);
    if (bytes !== null) {
      if (bytes.length < count) throw new Error('ended early');
      return bytes;
    }
    if (socket.readableEnded || socket.destroyed) throw new Error('ended early');
    await Promise.race([once(socket, 'readable'), once(socket, 'close')]);
  }
}

export async function readUntil(socket: Socket, mark: string): Promise<Buffer> {
  let bytes = Buffer.alloc(0);
  while (!bytes.toString('latin1').endsWith(mark)) bytes = Buffer.concat([bytes, await read(socket, 1)]);
  return bytes;
}

function readHead(socket: Socket): Promise<Buffer> {
  return readUntil(socket, '\r\n\r\n');
}

async function readLogin(socket: Socket) {
  const start = await read(socket, 2);
  const username = await read(socket, start[1] ?? 0);
  const length = await read(socket, 1);
  const password = await read(socket, length[0] ?? 0);
  return {
    bytes: Buffer.concat([start, username, length, password]),
    username: username.toString(),
    password: password.toString(),
  };
}

async function readSocks5Request(socket: Socket): Promise<Buffer> {
  const start = await read(socket, 5);
  const addressLeft = { 1: 3, 3: start[4] ?? 0, 4: 15 }[start[3] ?? 0] ?? 0;
  return Buffer.concat([start, await read(socket, addressLeft + 2)]);
}

async function trickle(socket: Socket, bytes: Buffer): Promise<void> {
  socket.setNoDelay(true);
  for (const byte of bytes) {
    await write(socket, Buffer.from([byte]));
    await new Promise((next) => setImmediate(next));
  }
}

function write(socket: Socket, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

async function listen(server: Server): Promise<number> {
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}
