/**
 * Serves the clients of members: with proxy-chain (HTTP), with its own SOCKS server, or, if the member misbehaves, with a
 * bad answer. Reads SOCKS5 (RFC 1928, 1929), SOCKS4, SOCKS4a and, for members that misbehave, HTTP.
 */
import { once } from 'node:events';
import { Agent, createServer, type Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { type Duplex, Transform } from 'node:stream';
import { type PrepareRequestFunctionOpts, RequestError, Server } from 'proxy-chain';
import { type Clock, pause } from '../core/clock.ts';
import type { Exits } from './exits.ts';
import type { RunningMember } from './members.ts';
import type { ProxyProtocol } from './operations.ts';
import type { Behaviour } from './scenario.ts';
import type { ClientLogin } from './settings.ts';
import { htmlPage, statusLine } from './web-server.ts';

export class MemberServer {
  readonly #exits: Pick<Exits, 'dial'>;
  readonly #clock: Clock;
  readonly #httpProxy: HttpProxy;

  constructor(exits: Pick<Exits, 'dial'>, clock: Clock) {
    this.#exits = exits;
    this.#clock = clock;
    this.#httpProxy = new HttpProxy(exits);
  }

  serve(socket: Socket, member: RunningMember): void {
    this.#serve(socket, member, member.behaviour).catch((error: unknown) => {
      socket.destroy();
      if (!isOfConnection(error)) throw error;
    });
  }

  async #serve(socket: Socket, member: RunningMember, behaviour: Behaviour): Promise<void> {
    switch (behaviour.how) {
      case 'good':
      case 'no-connect': // HttpProxy refuses CONNECT for these members
        return this.#serveWell(socket, member);
      case 'slow':
        await this.#pause(behaviour.ms, socket);
        return this.#serveWell(socket, member);
      case 'dribble':
        return this.#relay(socket, member, (bytes) => this.#dribble(socket, bytes, behaviour.ms));
      case 'cut':
        return this.#relay(socket, member, sendTo(socket), cutAfter(behaviour.afterBytes, socket));
      default:
        return answerBadly(socket, member, behaviour);
    }
  }

  #serveWell(socket: Socket, member: RunningMember): Promise<void> | void {
    if (member.traits.protocol === 'http') return this.#httpProxy.serve(socket, member);
    return this.#relay(socket, member, sendTo(socket));
  }

  async #relay(socket: Socket, member: RunningMember, send: Send, back?: Transform): Promise<void> {
    const request = await readProxyRequest(socket, member.traits.protocol, member.login, send);
    if (request === undefined) return endWith(socket);
    let target: Socket;
    try {
      target = await this.#exits.dial(member.exit, request.host, request.port);
    } catch (error) {
      await send(request.refusal(refusalCauseOf(error)));
      return endWith(socket);
    }
    if (socket.destroyed) {
      target.destroy(); // the client disconnected, or the member closed, while the target was dialled
      return;
    }
    if (request.first.length > 0) target.write(request.first);
    await send(request.accepted);
    joinStreams(socket, target, back);
  }

  async #dribble(socket: Socket, bytes: Buffer, ms = 0): Promise<void> {
    const send = sendTo(socket);
    for (const byte of bytes) {
      await send(Buffer.from([byte]));
      if (ms > 0) await this.#pause(ms, socket);
      // without this wait, the kernel could merge two bytes into one packet
      else await new Promise((next) => setImmediate(next));
    }
  }

  async #pause(ms: number, socket: Socket): Promise<void> {
    const closing = new AbortController();
    const abort = () => closing.abort();
    socket.once('close', abort);
    await pause(this.#clock, ms, closing.signal);
    socket.off('close', abort);
    if (socket.destroyed) throw new HandshakeError('the client left');
  }
}

function isOfConnection(error: unknown): boolean {
  return error instanceof HandshakeError || (error instanceof Error && 'code' in error);
}

const STATUS_NOT_ALLOWED = 405;

type ProxyExit = Pick<RunningMember, 'exit' | 'behaviour'>;

/** Chooses the exit of a request by its credentials; undefined refuses them. */
type ExitFor = (username: string, password: string) => ProxyExit | undefined;

export class HttpProxy {
  readonly #exits: Pick<Exits, 'dial'>;
  readonly #exitFor: ExitFor;
  readonly #server: Server;
  readonly #members = new WeakMap<Socket, RunningMember>();
  readonly #dialed = new WeakMap<Socket, Socket>();
  readonly #joiner: HttpServer;

  constructor(exits: Pick<Exits, 'dial'>, exitFor: ExitFor = () => undefined) {
    this.#exits = exits;
    this.#exitFor = exitFor;
    this.#server = new Server({ prepareRequestFunction: (request) => this.#prepare(request) });
    // When proxy-chain has accepted a tunnel, it passes the client's socket to this server, as a `connection` event.
    // This server does not listen.
    this.#joiner = createServer().removeAllListeners('connection');
    this.#joiner.on('connection', (client: Socket) => this.#join(client));
  }

  /** Serves a connection that a member has accepted. The member owns the socket. */
  serve(socket: Socket, member?: RunningMember): void {
    if (member !== undefined) this.#members.set(socket, member);
    this.#server.server.emit('connection', socket);
  }

  async #prepare({ request, username, password, hostname, port, isHttp }: PrepareRequestFunctionOpts) {
    const client = request.socket;
    const known = this.#members.get(client);
    const login = known?.login;
    const isRefused = login !== undefined && (username !== login.username || password !== login.password);
    const member = known ?? this.#exitFor(username, password);
    if (member === undefined || isRefused) return { requestAuthentication: true };
    const { behaviour } = member;
    if (!isHttp && behaviour.how === 'no-connect' && behaviour.ports?.includes(port) !== true) {
      throw new RequestError('CONNECT is not allowed here', behaviour.status ?? STATUS_NOT_ALLOWED);
    }
    const target = await this.#dial(member, hostname.replace(/^\[|\]$/g, ''), port);
    const destroyTarget = () => target.destroy();
    client.once('close', destroyTarget);
    target.once('close', () => client.off('close', destroyTarget));
    if (client.destroyed) target.destroy(); // the client disconnected while the target was dialled
    if (isHttp) {
      const agent = new Agent({ keepAlive: false });
      return { httpAgent: Object.assign(agent, { createConnection: () => target }) };
    }
    this.#dialed.set(client, target);
    return { customConnectServer: this.#joiner };
  }

  async #dial(member: ProxyExit, host: string, port: number): Promise<Socket> {
    try {
      return await this.#exits.dial(member.exit, host, port);
    } catch (error) {
      const cause = refusalCauseOf(error);
      // proxy-chain sends the status and text of this error to the client
      throw new RequestError(`cannot reach the target: ${cause}`, httpStatusOf(cause));
    }
  }

  #join(client: Socket): void {
    const target = this.#dialed.get(client);
    if (target === undefined) throw new TypeError('an accepted tunnel has no target');
    joinStreams(client, target);
  }
}

/**
 * Relays bytes in both directions between a member's client and the target, and passes on half-closes. Owns both
 * streams: if one of them closes too early, the function destroys the other one.
 *
 * @param back - transforms the bytes from the target to the client.
 */
export function joinStreams(client: Duplex, target: Duplex, back?: Transform): void {
  destroyWith(client, target);
  destroyWith(target, client);
  client.pipe(target);
  (back === undefined ? target : target.pipe(back)).pipe(client);
}

function destroyWith(one: Duplex, other: Duplex): void {
  const onClose = () => {
    const hasEnded = one.readableEnded && one.writableFinished && !one.errored;
    if (!hasEnded) other.destroy();
  };
  if (one.destroyed) onClose();
  else one.once('close', onClose);
}

type BadBehaviour = Exclude<Behaviour, { how: 'good' | 'slow' | 'no-connect' | 'dribble' | 'cut' }>;

const GARBAGE = Buffer.from(
  'SSH-2.0-OpenSSH_9.6\r\n\x00\x00\x05\x14\x0c\xff\xfe\x80\x00\x00\r\n\r\n',
  'latin1',
);
const WRONG_HTTP = Buffer.from('HTTP/9.9 200 OK\r\n\r\n');
const WRONG_SOCKS = Buffer.from([0x09, 0x00]);
const ENDLESS_LINE = Buffer.from(`X-Filler: ${'a'.repeat(1000)}\r\n`);
const ENDLESS_BYTES = Buffer.alloc(1000, 0x05);
const LINGER_MS = 1000;

const STATUS_CAUSES: Readonly<Record<number, RefusalCause>> = {
  403: 'ruleset',
  502: 'host-unreachable',
  503: 'net-unreachable',
  504: 'ttl',
};

async function answerBadly(socket: Socket, member: RunningMember, behaviour: BadBehaviour): Promise<void> {
  const { protocol } = member.traits;
  const waits = ('when' in behaviour ? behaviour.when : undefined) !== 'accept';
  if (waits && socket.readableLength === 0) await waitForMore(socket);
  switch (behaviour.how) {
    case 'refuse': // the member no longer listens, but this connection was already in the kernel's queue
      socket.destroy();
      return;
    case 'silent':
      return discard(socket);
    case 'silent-after':
      return acceptAndDiscard(socket, member);
    case 'status':
      return answerStatus(socket, member, behaviour.status);
    case 'garbage':
      return endWith(socket, GARBAGE);
    case 'partial':
      return answerHalf(socket, member);
    case 'close':
      return endWith(socket);
    case 'reset':
      socket.resetAndDestroy();
      return;
    case 'wrong-version':
      return endWith(socket, protocol === 'http' ? WRONG_HTTP : WRONG_SOCKS);
    case 'endless-head':
      return answerEndlessly(socket, member);
    default:
      behaviour satisfies never;
  }
}

/**
 * Sends `bytes` and ends the connection. Continues to read: unread data would reset the connection, and the client
 * would lose the bytes.
 */
function endWith(socket: Socket, bytes: Buffer = Buffer.alloc(0)): void {
  socket.resume();
  socket.setTimeout(LINGER_MS, () => socket.destroy());
  socket.end(bytes);
}

function cutAfter(afterBytes: number, client: Socket): Transform {
  let left = afterBytes;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const passed = chunk.subarray(0, left);
      left -= passed.length;
      done(null, passed);
      // A reset discards the bytes in the socket's buffer. So wait until the kernel has taken them.
      if (left === 0) setImmediate(() => client.write('', () => client.resetAndDestroy()));
    },
  });
}

function discard(socket: Socket): void {
  socket.once('end', () => socket.destroy());
  socket.resume();
}

async function acceptAndDiscard(socket: Socket, member: RunningMember): Promise<void> {
  const send = sendTo(socket);
  const request = await readProxyRequest(socket, member.traits.protocol, member.login, send);
  if (request === undefined) return endWith(socket);
  await send(request.accepted);
  discard(socket);
}

async function answerStatus(socket: Socket, member: RunningMember, status: number): Promise<void> {
  const { protocol } = member.traits;
  if (protocol === 'socks5' && status === 407) return endWith(socket, Buffer.from([0x05, 0xff]));
  const isHttp = protocol === 'http';
  const login = isHttp ? undefined : member.login;
  const request = await readProxyRequest(socket, protocol, login, sendTo(socket));
  if (request === undefined) return endWith(socket);
  if (!isHttp) return endWith(socket, request.refusal(STATUS_CAUSES[status] ?? 'general'));
  endWith(socket, httpAnswer(status, status === 407 ? PROXY_CHALLENGE : ''));
}

async function answerHalf(socket: Socket, member: RunningMember): Promise<void> {
  const request = await readProxyRequest(socket, member.traits.protocol, member.login, sendTo(socket));
  const whole = request === undefined || request.accepted.length === 0 ? httpAnswer(200) : request.accepted;
  endWith(socket, whole.subarray(0, Math.floor(whole.length / 2)));
}

async function answerEndlessly(socket: Socket, member: RunningMember): Promise<void> {
  const send = sendTo(socket);
  const isHttp = member.traits.protocol === 'http';
  if (isHttp) await send(Buffer.from('HTTP/1.1 200 OK\r\n'));
  while (!socket.destroyed) await send(isHttp ? ENDLESS_LINE : ENDLESS_BYTES);
}

interface ProxyRequest {
  readonly host: string;
  readonly port: number;
  readonly accepted: Buffer;
  readonly first: Buffer;
  readonly refusal: (cause: RefusalCause) => Buffer;
}

type Send = (bytes: Buffer) => Promise<void>;

function sendTo(socket: Socket): Send {
  return (bytes) => {
    if (bytes.length === 0) return Promise.resolve();
    if (socket.destroyed) return Promise.reject(new HandshakeError('the client left'));
    return new Promise((resolve, reject) => {
      socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  };
}

const MAX_HEAD_BYTES = 65_536;

const SOCKS5_REPLIES = {
  general: 0x01,
  ruleset: 0x02,
  'net-unreachable': 0x03,
  'host-unreachable': 0x04,
  refused: 0x05,
  ttl: 0x06,
  command: 0x07,
};
type RefusalCause = keyof typeof SOCKS5_REPLIES;

function httpStatusOf(cause: RefusalCause): number {
  return cause === 'ttl' ? 504 : 502;
}

/** By the error of the operating system. */
const CAUSES: Readonly<Record<string, RefusalCause>> = {
  ECONNREFUSED: 'refused',
  ENETUNREACH: 'net-unreachable',
  EHOSTUNREACH: 'host-unreachable',
  ETIMEDOUT: 'ttl',
};

const PROXY_CHALLENGE = 'Proxy-Authenticate: Basic realm="sandbox"\r\n';

function readProxyRequest(
  socket: Socket,
  protocol: ProxyProtocol,
  login: ClientLogin | undefined,
  send: Send,
): Promise<ProxyRequest | undefined> {
  switch (protocol) {
    case 'socks5':
      return readSocks5(socket, login, send);
    case 'socks4':
      return readSocks4(socket);
    case 'http':
      return readHttp(socket, login, send);
  }
}

function refusalCauseOf(error: unknown): RefusalCause {
  return (error instanceof Error && 'code' in error && CAUSES[String(error.code)]) || 'general';
}

async function readSocks5(
  socket: Socket,
  login: ClientLogin | undefined,
  send: Send,
): Promise<ProxyRequest | undefined> {
  await expectVersion(socket, 5);
  const methods = await take(socket, await takeByte(socket));
  const wanted = login === undefined ? 0x00 : 0x02;
  if (!methods.includes(wanted)) {
    await send(Buffer.from([0x05, 0xff])); // the code for "no acceptable methods"
    return undefined;
  }
  await send(Buffer.from([0x05, wanted]));
  if (login !== undefined && !(await readLogin(socket, login, send))) return undefined;

  await expectVersion(socket, 5);
  const [command, , addressType] = await take(socket, 3);
  const host = await readSocks5Host(socket, addressType);
  const port = (await take(socket, 2)).readUInt16BE(0);
  const reply = (code: number) => Buffer.from([0x05, code, 0x00, 0x01, 0, 0, 0, 0, 0, 0]);
  if (host === undefined || command !== 0x01) {
    await send(reply(host === undefined ? 0x08 : SOCKS5_REPLIES.command));
    return undefined;
  }
  const refusal = (cause: RefusalCause) => reply(SOCKS5_REPLIES[cause]);
  return { host, port, accepted: reply(0x00), first: Buffer.alloc(0), refusal };
}

/** Reads a user name and password (RFC 1929), and answers whether they are right. */
async function readLogin(socket: Socket, login: ClientLogin, send: Send): Promise<boolean> {
  await expectVersion(socket, 1);
  const username = (await take(socket, await takeByte(socket))).toString('utf8');
  const password = (await take(socket, await takeByte(socket))).toString('utf8');
  const isCorrect = username === login.username && password === login.password;
  await send(Buffer.from([0x01, isCorrect ? 0x00 : 0x01]));
  return isCorrect;
}

async function readSocks5Host(socket: Socket, addressType: number | undefined) {
  if (addressType === 0x01) return [...(await take(socket, 4))].join('.');
  if (addressType === 0x03) return (await take(socket, await takeByte(socket))).toString('utf8');
  if (addressType !== 0x04) return undefined;
  const bytes = await take(socket, 16);
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(':');
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}

async function readSocks4(socket: Socket): Promise<ProxyRequest | undefined> {
  await expectVersion(socket, 4);
  const command = await takeByte(socket);
  const port = (await take(socket, 2)).readUInt16BE(0);
  const address = await take(socket, 4);
  await takeThrough(socket, '\0');
  const isNamed = address[0] === 0 && address[1] === 0 && address[2] === 0 && address[3] !== 0;
  const host = isNamed
    ? (await takeThrough(socket, '\0')).subarray(0, -1).toString('utf8')
    : [...address].join('.');
  const reply = (code: number) => Buffer.from([0x00, code, 0, 0, 0, 0, 0, 0]);
  if (command !== 0x01) throw new HandshakeError(`SOCKS4 command ${command}`);
  return { host, port, accepted: reply(0x5a), first: Buffer.alloc(0), refusal: () => reply(0x5b) };
}

async function readHttp(
  socket: Socket,
  login: ClientLogin | undefined,
  send: Send,
): Promise<ProxyRequest | undefined> {
  const head = (await takeThrough(socket, '\r\n\r\n')).toString('latin1');
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

function httpAnswer(status: number, headers = ''): Buffer {
  const page = htmlPage(status);
  const head = `HTTP/1.1 ${statusLine(status)}\r\nContent-Type: text/html\r\nContent-Length: ${page.length}\r\n${headers}Connection: close\r\n\r\n`;
  return Buffer.from(head + page, 'latin1');
}

async function expectVersion(socket: Socket, version: number): Promise<void> {
  const got = await takeByte(socket);
  if (got !== version) throw new HandshakeError(`the client sent version ${got} instead of ${version}`);
}

class HandshakeError extends Error {
  override readonly name = 'HandshakeError';
}

function take(socket: Socket, count: number): Promise<Buffer> {
  return collect(socket, (seen) => (seen.length >= count ? count : undefined));
}

async function takeByte(socket: Socket): Promise<number> {
  return (await take(socket, 1)).readUInt8(0);
}

/**
 * Takes all bytes up to and including `mark`.
 * @throws HandshakeError also if `mark` is not within the first `MAX_HEAD_BYTES` bytes.
 */
function takeThrough(socket: Socket, mark: string): Promise<Buffer> {
  return collect(socket, (seen) => {
    const at = seen.indexOf(mark);
    if (at < 0 && seen.length > MAX_HEAD_BYTES)
      throw new HandshakeError(`no end within ${MAX_HEAD_BYTES} bytes`);
    return at < 0 ? undefined : at + mark.length;
  });
}

async function collect(socket: Socket, endOf: (seen: Buffer) => number | undefined): Promise<Buffer> {
  let seen = Buffer.alloc(0);
  for (;;) {
    const end = endOf(seen);
    if (end !== undefined) {
      if (end < seen.length) socket.unshift(seen.subarray(end));
      return seen.subarray(0, end);
    }
    // Call `read` without a size: with a size, a socket with fewer bytes would emit `readable` again and again.
    const chunk: Buffer | null = socket.read();
    if (chunk === null) await waitForMore(socket);
    else seen = Buffer.concat([seen, chunk]);
  }
}

async function waitForMore(socket: Socket): Promise<void> {
  if (socket.destroyed || socket.readableEnded) throw new HandshakeError('the client left');
  const finished = new AbortController();
  const { signal } = finished;
  try {
    await Promise.race(['readable', 'end', 'close'].map((event) => once(socket, event, { signal })));
  } finally {
    finished.abort();
  }
}
