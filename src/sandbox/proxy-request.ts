/**
 * Reads the requests of a member's clients: SOCKS5 (RFC 1928, 1929), SOCKS4, SOCKS4a and HTTP.
 *
 * Only members that misbehave use the HTTP part; proxy-chain serves the clients of the others.
 */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { ProxyProtocol } from './operations.ts';
import { htmlPage, statusLine } from './web-server.ts';

export interface ClientLogin {
  readonly username: string;
  readonly password: string;
}

export type RefusalCause =
  | 'general'
  | 'ruleset'
  | 'net-unreachable'
  | 'host-unreachable'
  | 'refused'
  | 'ttl'
  | 'command';

interface ProxyRequest {
  readonly host: string;
  readonly port: number;
  readonly accepted: Buffer;
  readonly first: Buffer;
  readonly refusal: (cause: RefusalCause) => Buffer;
}

export type Send = (bytes: Buffer) => Promise<void>;

export function sendTo(socket: Socket): Send {
  return (bytes) => {
    if (bytes.length === 0) return Promise.resolve();
    if (socket.destroyed) return Promise.reject(new HandshakeError('the client left'));
    return new Promise((resolve, reject) => {
      socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  };
}

const MAX_HEAD_BYTES = 65_536;

const SOCKS5_REPLIES: Readonly<Record<RefusalCause, number>> = {
  general: 0x01,
  ruleset: 0x02,
  'net-unreachable': 0x03,
  'host-unreachable': 0x04,
  refused: 0x05,
  ttl: 0x06,
  command: 0x07,
};

export function httpStatusOf(cause: RefusalCause): number {
  return cause === 'ttl' ? 504 : 502;
}

/** By the error of the operating system. */
const CAUSES: Readonly<Record<string, RefusalCause>> = {
  ECONNREFUSED: 'refused',
  ENETUNREACH: 'net-unreachable',
  EHOSTUNREACH: 'host-unreachable',
  ETIMEDOUT: 'ttl',
};

export const PROXY_CHALLENGE = 'Proxy-Authenticate: Basic realm="sandbox"\r\n';

export function readProxyRequest(
  socket: Socket,
  protocol: ProxyProtocol,
  login: ClientLogin | undefined,
  send: Send,
): Promise<ProxyRequest | undefined> {
  const reader = new SocketReader(socket);
  switch (protocol) {
    case 'socks5':
      return readSocks5(reader, login, send);
    case 'socks4':
      return readSocks4(reader);
    case 'http':
      return readHttp(reader, login, send);
  }
}

export function refusalCauseOf(error: unknown): RefusalCause {
  return (error instanceof Error && 'code' in error && CAUSES[String(error.code)]) || 'general';
}

async function readSocks5(
  reader: SocketReader,
  login: ClientLogin | undefined,
  send: Send,
): Promise<ProxyRequest | undefined> {
  await expectVersion(reader, 5);
  const methods = await reader.take(await reader.byte());
  const wanted = login === undefined ? 0x00 : 0x02;
  if (!methods.includes(wanted)) {
    await send(Buffer.from([0x05, 0xff])); // the code for "no acceptable methods"
    return undefined;
  }
  await send(Buffer.from([0x05, wanted]));
  if (login !== undefined && !(await readLogin(reader, login, send))) return undefined;

  await expectVersion(reader, 5);
  const [command, , addressType] = await reader.take(3);
  const host = await readSocks5Host(reader, addressType);
  const port = (await reader.take(2)).readUInt16BE(0);
  const reply = (code: number) => Buffer.from([0x05, code, 0x00, 0x01, 0, 0, 0, 0, 0, 0]);
  if (host === undefined || command !== 0x01) {
    await send(reply(host === undefined ? 0x08 : SOCKS5_REPLIES.command));
    return undefined;
  }
  const refusal = (cause: RefusalCause) => reply(SOCKS5_REPLIES[cause]);
  return { host, port, accepted: reply(0x00), first: Buffer.alloc(0), refusal };
}

/** Reads a user name and password (RFC 1929), and answers whether they are right. */
async function readLogin(reader: SocketReader, login: ClientLogin, send: Send): Promise<boolean> {
  await expectVersion(reader, 1);
  const username = (await reader.take(await reader.byte())).toString('utf8');
  const password = (await reader.take(await reader.byte())).toString('utf8');
  const isCorrect = username === login.username && password === login.password;
  await send(Buffer.from([0x01, isCorrect ? 0x00 : 0x01]));
  return isCorrect;
}

async function readSocks5Host(
  reader: SocketReader,
  addressType: number | undefined,
): Promise<string | undefined> {
  if (addressType === 0x01) return [...(await reader.take(4))].join('.');
  if (addressType === 0x03) return (await reader.take(await reader.byte())).toString('utf8');
  if (addressType !== 0x04) return undefined;
  const bytes = await reader.take(16);
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(':');
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}

async function readSocks4(reader: SocketReader): Promise<ProxyRequest | undefined> {
  await expectVersion(reader, 4);
  const command = await reader.byte();
  const port = (await reader.take(2)).readUInt16BE(0);
  const address = await reader.take(4);
  await reader.takeThrough('\0', MAX_HEAD_BYTES);
  const isNamed = address[0] === 0 && address[1] === 0 && address[2] === 0 && address[3] !== 0;
  const host = isNamed
    ? (await reader.takeThrough('\0', MAX_HEAD_BYTES)).subarray(0, -1).toString('utf8')
    : [...address].join('.');
  const reply = (code: number) => Buffer.from([0x00, code, 0, 0, 0, 0, 0, 0]);
  if (command !== 0x01) throw new HandshakeError(`SOCKS4 command ${command}`);
  return { host, port, accepted: reply(0x5a), first: Buffer.alloc(0), refusal: () => reply(0x5b) };
}

async function readHttp(
  reader: SocketReader,
  login: ClientLogin | undefined,
  send: Send,
): Promise<ProxyRequest | undefined> {
  const head = (await reader.takeThrough('\r\n\r\n', MAX_HEAD_BYTES)).toString('latin1');
  const [requestLine = '', ...lines] = head.slice(0, -4).split('\r\n');
  const [method = '', target = ''] = requestLine.split(' ');
  const token = Buffer.from(`${login?.username}:${login?.password}`).toString('base64');
  const isAuthorized = lines.some(
    (line) => /^proxy-authorization:/i.test(line) && line.endsWith(` ${token}`),
  );
  if (login !== undefined && !isAuthorized) {
    await send(httpAnswer(407, PROXY_CHALLENGE));
    return undefined;
  }
  const isConnect = method === 'CONNECT';
  const url = URL.parse(isConnect ? `http://${target}` : target);
  if (url === null || url.protocol !== 'http:')
    throw new HandshakeError(`not a proxy request: ${requestLine}`);
  const kept = lines.filter((line) => !/^(?:proxy-|connection:)/i.test(line));
  const origin = [`${method} ${url.pathname}${url.search} HTTP/1.1`, ...kept, 'Connection: close', '', ''];
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 80 : Number(url.port),
    accepted: isConnect ? Buffer.from('HTTP/1.1 200 Connection established\r\n\r\n') : Buffer.alloc(0),
    first: isConnect ? Buffer.alloc(0) : Buffer.from(origin.join('\r\n'), 'latin1'),
    refusal: (cause) => httpAnswer(httpStatusOf(cause)),
  };
}

export function httpAnswer(status: number, headers = ''): Buffer {
  const page = htmlPage(status);
  const head = `HTTP/1.1 ${statusLine(status)}\r\nContent-Type: text/html\r\nContent-Length: ${page.length}\r\n${headers}Connection: close\r\n\r\n`;
  return Buffer.from(head + page, 'latin1');
}

async function expectVersion(reader: SocketReader, version: number): Promise<void> {
  const got = await reader.byte();
  if (got !== version) throw new HandshakeError(`the client sent version ${got} instead of ${version}`);
}

/** The client disconnected too early, or sent bytes that the protocol does not allow. */
export class HandshakeError extends Error {
  override readonly name = 'HandshakeError';
}

export class SocketReader {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  take(count: number): Promise<Buffer> {
    return this.#collect((seen) => (seen.length >= count ? count : undefined));
  }

  async byte(): Promise<number> {
    return (await this.take(1)).readUInt8(0);
  }

  /**
   * Takes all bytes up to and including `mark`.
   * @throws HandshakeError also if `mark` is not within the first `limit` bytes.
   */
  takeThrough(mark: string, limit: number): Promise<Buffer> {
    return this.#collect((seen) => {
      const at = seen.indexOf(mark);
      if (at < 0 && seen.length > limit) throw new HandshakeError(`no end within ${limit} bytes`);
      return at < 0 ? undefined : at + mark.length;
    });
  }

  async #collect(endOf: (seen: Buffer) => number | undefined): Promise<Buffer> {
    let seen = Buffer.alloc(0);
    for (;;) {
      const end = endOf(seen);
      if (end !== undefined) {
        if (end < seen.length) this.#socket.unshift(seen.subarray(end));
        return seen.subarray(0, end);
      }
      // Call `read` without a size: with a size, a socket with fewer bytes would emit `readable` again and again.
      const chunk: Buffer | null = this.#socket.read();
      if (chunk === null) await this.#waitForMore();
      else seen = Buffer.concat([seen, chunk]);
    }
  }

  async waitForBytes(): Promise<void> {
    if (this.#socket.readableLength === 0) await this.#waitForMore();
  }

  async #waitForMore(): Promise<void> {
    const socket = this.#socket;
    if (socket.destroyed || socket.readableEnded) throw new HandshakeError('the client left');
    const finished = new AbortController();
    const { signal } = finished;
    try {
      await Promise.race([
        once(socket, 'readable', { signal }),
        once(socket, 'end', { signal }),
        once(socket, 'close', { signal }),
      ]);
    } finally {
      finished.abort();
    }
  }
}
