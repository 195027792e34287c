/**
 * What members do with the connections they accept: serve them well, by proxy-chain or as SOCKS servers, or badly in
 * the way their temper says.
 */
import type { Socket } from 'node:net';
import { Transform } from 'node:stream';
import { type Clock, pause } from '../core/clock.ts';
import type { Exits } from './exits.ts';
import { type Ask, httpAnswer, type Refusal, readAsk, refusalOf, type Say } from './handshakes.ts';
import { HttpProxy } from './http-proxy.ts';
import { joinStreams } from './join.ts';
import type { Member } from './member.ts';
import { HandshakeEnded, SocketReader } from './socket-reader.ts';
import type { Temper } from './temper.ts';

/** What proxies answer that are none: the greeting of another protocol, then bytes that are no text. */
const GARBAGE = Buffer.from(
  'SSH-2.0-OpenSSH_9.6\r\n\x00\x00\x05\x14\x0c\xff\xfe\x80\x00\x00\r\n\r\n',
  'latin1',
);
/** How long an ended connection waits for the client's own end. */
const LINGER_MS = 1000;
const ENDLESS_LINE = Buffer.from(`X-Filler: ${'a'.repeat(1000)}\r\n`);

const STATUS_TEXTS: Readonly<Record<number, string>> = {
  403: 'Forbidden',
  407: 'Proxy Authentication Required',
  500: 'Internal Server Error',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};
/** The SOCKS reply nearest to a status. */
const STATUS_REFUSALS: Readonly<Record<number, Refusal>> = {
  403: 'ruleset',
  502: 'host-unreachable',
  503: 'net-unreachable',
  504: 'ttl',
};

export class Crew {
  readonly #exits: Exits;
  readonly #clock: Clock;
  readonly #proxy: HttpProxy;

  constructor(exits: Exits, clock: Clock) {
    this.#exits = exits;
    this.#clock = clock;
    this.#proxy = new HttpProxy(exits);
  }

  /** Takes over a connection that `member` accepted. */
  serve(socket: Socket, member: Member): void {
    this.#serve(socket, member, member.temper).catch((error: unknown) => {
      socket.destroy();
      if (!isExpected(error)) throw error;
    });
  }

  async #serve(socket: Socket, member: Member, temper: Temper): Promise<void> {
    const say: Say = (bytes) => write(socket, bytes);
    switch (temper.how) {
      case 'good':
        return this.#serveWell(socket, member);
      case 'refuse': // it does not listen
      case 'silent':
        socket.resume();
        return;
      case 'slow':
        await this.#pause(temper.ms, socket);
        return this.#serveWell(socket, member);
      case 'silent-after': {
        const ask = await readAsk(socket, member.traits.protocol, member.login, say);
        if (ask === undefined) return end(socket);
        await say(ask.accepted);
        socket.resume();
        return;
      }
      case 'status':
        return answerStatus(socket, member, temper.status);
      case 'garbage':
        await new SocketReader(socket).some();
        return end(socket, GARBAGE);
      case 'dribble':
        return this.#serveAsk(socket, member, (bytes) => this.#dribble(socket, bytes, temper.ms));
      case 'partial':
        return answerHalf(socket, member);
      case 'close':
        if (temper.when !== 'accept') await new SocketReader(socket).some();
        return end(socket);
      case 'reset':
        if (temper.when !== 'accept') await new SocketReader(socket).some();
        socket.resetAndDestroy();
        return;
      case 'wrong-version':
        await new SocketReader(socket).some();
        return end(socket, member.traits.protocol === 'http' ? WRONG_HTTP : WRONG_SOCKS);
      case 'endless-head':
        await new SocketReader(socket).some();
        return this.#answerEndlessly(socket, member);
      case 'cut':
        return this.#serveAsk(socket, member, say, cutter(temper.afterBytes, socket));
    }
  }

  #serveWell(socket: Socket, member: Member): Promise<void> | void {
    if (member.traits.protocol === 'http') return this.#proxy.serve(socket, member);
    return this.#serveAsk(socket, member, (bytes) => write(socket, bytes));
  }

  /** Reads what is asked, dials it, answers, joins. */
  async #serveAsk(socket: Socket, member: Member, say: Say, back?: Transform): Promise<void> {
    const ask = await readAsk(socket, member.traits.protocol, member.login, say);
    if (ask === undefined) return end(socket);
    const target = await this.#dial(member, ask);
    if (!('connect' in target)) {
      await say(ask.refusal(target.why));
      return end(socket);
    }
    if (socket.destroyed) {
      target.destroy(); // the client left, or the member ended, while we dialed
      return;
    }
    if (ask.first.length > 0) target.write(ask.first);
    await say(ask.accepted);
    joinStreams(socket, target, back);
  }

  async #dial(member: Member, ask: Ask): Promise<Socket | { readonly why: Refusal }> {
    try {
      return await this.#exits.dial(member.exit, ask.host, ask.port);
    } catch (error) {
      return { why: refusalOf(error) };
    }
  }

  async #dribble(socket: Socket, bytes: Buffer, ms = 0): Promise<void> {
    for (const byte of bytes) {
      await write(socket, Buffer.from([byte]));
      await (ms === 0 ? new Promise((next) => setImmediate(next)) : this.#pause(ms, socket));
    }
  }

  async #answerEndlessly(socket: Socket, member: Member): Promise<void> {
    const http = member.traits.protocol === 'http';
    if (http) await write(socket, Buffer.from('HTTP/1.1 200 OK\r\n'));
    while (!socket.destroyed) await write(socket, http ? ENDLESS_LINE : Buffer.alloc(1000, 0x05));
  }

  /** Waits, or returns as soon as the connection is gone. */
  async #pause(ms: number, socket: Socket): Promise<void> {
    const gone = new AbortController();
    const leave = () => gone.abort();
    socket.once('close', leave);
    await pause(this.#clock, ms, gone.signal);
    socket.off('close', leave);
    if (socket.destroyed) throw new HandshakeEnded('the client left');
  }
}

const WRONG_HTTP = Buffer.from('HTTP/9.9 200 OK\r\n\r\n');
const WRONG_SOCKS = Buffer.from([0x09, 0x00]);

/** Answers a status to whatever is asked, or the reply that says the nearest thing in SOCKS. */
async function answerStatus(socket: Socket, member: Member, status: number): Promise<void> {
  const say: Say = (bytes) => write(socket, bytes);
  const { protocol, login } =
    member.traits.protocol === 'http'
      ? { protocol: 'http' as const, login: undefined }
      : { protocol: member.traits.protocol, login: member.login };
  if (protocol !== 'http' && status === 407) {
    await new SocketReader(socket).some();
    return end(socket, Buffer.from(protocol === 'socks5' ? [0x05, 0xff] : [0x00, 0x5d, 0, 0, 0, 0, 0, 0]));
  }
  const ask = await readAsk(socket, protocol, login, say);
  if (ask === undefined) return end(socket);
  const challenge = status === 407 ? 'Proxy-Authenticate: Basic realm="sandbox"\r\n' : '';
  const answer =
    protocol === 'http'
      ? httpAnswer(`${status} ${STATUS_TEXTS[status] ?? 'Unknown'}`, challenge)
      : ask.refusal(STATUS_REFUSALS[status] ?? 'general');
  end(socket, answer);
}

/** Half of what it would say to accept the target, then the end. */
async function answerHalf(socket: Socket, member: Member): Promise<void> {
  const ask = await readAsk(socket, member.traits.protocol, member.login, (bytes) => write(socket, bytes));
  const whole =
    ask === undefined || ask.accepted.length === 0 ? Buffer.from('HTTP/1.1 200 OK\r\n') : ask.accepted;
  end(socket, whole.subarray(0, Math.floor(whole.length / 2)));
}

/** Lets `afterBytes` of the target pass, then resets the client. */
function cutter(afterBytes: number, socket: Socket): Transform {
  let left = afterBytes;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const passed = chunk.subarray(0, left);
      left -= passed.length;
      done(null, passed);
      if (left === 0) setImmediate(() => socket.resetAndDestroy()); // after what passed is with the kernel
    },
  });
}

/** Writes and waits until the other side takes more. */
function write(socket: Socket, bytes: Buffer): Promise<void> {
  if (bytes.length === 0) return Promise.resolve();
  if (socket.destroyed) return Promise.reject(new HandshakeEnded('the client left'));
  return new Promise((resolve, reject) => {
    socket.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

/** Ends the connection, reading on for a moment so that an answer is not lost to a reset. */
function end(socket: Socket, bytes?: Buffer): void {
  socket.resume();
  socket.setTimeout(LINGER_MS, () => socket.destroy());
  if (bytes === undefined) socket.end();
  else socket.end(bytes);
}

/** A client that left, or the system's word for it. Anything else is a mistake of ours. */
function isExpected(error: unknown): boolean {
  return error instanceof HandshakeEnded || (error instanceof Error && 'code' in error);
}
