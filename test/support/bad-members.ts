/**
 * Small proxies on loopback, well-behaved and not: each says exactly the bytes its test needs.
 *
 * A member that accepts a target never connects to it: it plays the target itself and echoes. So a test can name a
 * target that must not be reached directly, or one that does not exist.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { onTestFinished } from 'vitest';
import type { MemberProtocol } from '../../src/core/protocol.ts';

export interface TestMember {
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  /** Connections taken so far. */
  readonly taken: number;
  /** Connections open just now. */
  readonly open: number;
  /** What the connections sent before the member answered, in order: heads, or SOCKS messages. */
  readonly heard: readonly Buffer[];
}

const LOOPBACK = '127.0.0.1';

/** A certificate for `localhost` that nobody trusts, and its key. */
export const LOCALHOST_TLS = {
  cert: readFileSync('test/fixtures/service/tls/localhost.cert.pem'),
  key: readFileSync('test/fixtures/service/tls/localhost.key.pem'),
};

/** What a member does with one connection. */
export type Manner = (socket: Socket, hear: (message: Buffer) => void) => void | Promise<void>;

/** @param tls - whether it really speaks TLS; as its protocol says when absent. */
export async function openMember(
  protocol: MemberProtocol,
  manner: Manner,
  tls = protocol === 'https',
): Promise<TestMember> {
  const sockets = new Set<Socket>();
  const heard: Buffer[] = [];
  let taken = 0;
  const serve = (socket: Socket) => {
    taken += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {}); // ignored: the other side may leave as it likes
    // ignored: a connection that ended in the middle of a conversation ends the conversation
    Promise.resolve(manner(socket, (message) => heard.push(message))).catch(() => {});
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
    heard,
    get taken() {
      return taken;
    },
    get open() {
      return sockets.size;
    },
  };
}

/** An address at which nobody listens. */
export async function refusingMember(protocol: MemberProtocol = 'http'): Promise<TestMember> {
  const server = createServer();
  const port = await listen(server);
  await closed(server);
  return { protocol, host: LOOPBACK, port, taken: 0, open: 0, heard: [] };
}

/** A server that a test must never see reached; its count is asserted by whoever opens it. */
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
export function httpManner(answer = 'HTTP/1.1 200 Connection established\r\n\r\n', delayMs = 0): Manner {
  return async (socket, hear) => {
    hear(await readHead(socket));
    if (delayMs > 0) await delay(delayMs);
    socket.write(answer, 'latin1');
    socket.pipe(socket);
  };
}

/** Answers 407 until it is given exactly this, then behaves. */
export function askingManner(username: string, password: string): Manner {
  const wanted = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  return async (socket, hear) => {
    const head = await readHead(socket);
    hear(head);
    const given = /^proxy-authorization: (.*)$/im.exec(head.toString('latin1'))?.[1];
    if (given !== wanted) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="m"\r\n\r\n');
      return;
    }
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    socket.pipe(socket);
  };
}

export interface Socks5Manner {
  /** Asks for these, and refuses those who do not offer any. */
  readonly login?: { readonly username: string; readonly password: string };
  readonly reply?: number;
  /** BND.ADDR and BND.PORT with their ATYP; IPv4 zeros when absent. */
  readonly bound?: Buffer;
  /** Sent in one piece with the reply. */
  readonly early?: string;
  /** Each byte of every answer in a packet of its own. */
  readonly trickle?: boolean;
}

export function socks5Manner(manner: Socks5Manner = {}): Manner {
  const bound = manner.bound ?? Buffer.from([1, 0, 0, 0, 0, 0, 0]);
  return async (socket, hear) => {
    const say = (bytes: Buffer) => (manner.trickle === true ? trickle(socket, bytes) : write(socket, bytes));
    const offer = await read(socket, 2);
    const methods = await read(socket, offer[1] ?? 0);
    hear(Buffer.concat([offer, methods]));
    const wanted = manner.login === undefined ? 0 : 2;
    if (!methods.includes(wanted)) {
      socket.end(Buffer.from([5, 0xff]));
      return;
    }
    await say(Buffer.from([5, wanted]));
    if (manner.login !== undefined) {
      const given = await readLogin(socket);
      hear(given.bytes);
      const good = given.username === manner.login.username && given.password === manner.login.password;
      await say(Buffer.from([1, good ? 0 : 1]));
      if (!good) {
        socket.end();
        return;
      }
    }
    hear(await readSocks5Request(socket));
    await say(
      Buffer.concat([Buffer.from([5, manner.reply ?? 0, 0]), bound, Buffer.from(manner.early ?? '')]),
    );
    if (manner.reply === undefined) socket.pipe(socket);
    else socket.end();
  };
}

export function socks4Manner(code = 0x5a): Manner {
  return async (socket, hear) => {
    const start = await read(socket, 8);
    const userId = await readUntil(socket, '\0');
    const isNamed = start[4] === 0 && start[5] === 0 && start[6] === 0 && start[7] !== 0;
    const name = isNamed ? await readUntil(socket, '\0') : Buffer.alloc(0);
    hear(Buffer.concat([start, userId, name]));
    socket.write(Buffer.from([0, code, 0, 0, 0, 0, 0, 0]));
    if (code === 0x5a) socket.pipe(socket);
    else socket.end();
  };
}

/** Takes the connection and what it says, and never answers. */
export const silentManner: Manner = (socket) => {
  socket.resume();
};

/** Closes cleanly once it was asked. */
export const closingManner: Manner = (socket) => {
  socket.on('data', () => socket.end());
};

export const resettingManner: Manner = (socket) => {
  socket.once('data', () => socket.resetAndDestroy());
};

/** Says these bytes as soon as it was asked, and keeps the connection open. */
export function sayingManner(bytes: string | Buffer): Manner {
  return (socket) => {
    socket.once('data', () => socket.write(bytes));
    socket.resume();
  };
}

/** Sends a head that never ends. */
export const endlessManner: Manner = (socket) => {
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

/** Every byte of the answer in a packet of its own. */
export function tricklingManner(answer: string): Manner {
  return async (socket, hear) => {
    hear(await readHead(socket));
    await trickle(socket, Buffer.from(answer, 'latin1'));
    socket.pipe(socket);
  };
}

/** Reads exactly so many bytes and leaves the rest. */
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

function delay(ms: number): Promise<void> {
  return new Promise((next) => setTimeout(next, ms));
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
