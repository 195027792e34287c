/** The bad answers of members that misbehave: silence, another status, another protocol, half of one, none. */
import type { Socket } from 'node:net';
import { Transform } from 'node:stream';
import type { RunningMember } from './member.ts';
import type { Behaviour } from './member-behaviour.ts';
import { httpAnswer, type RefusalCause, readProxyRequest, sendTo } from './proxy-request.ts';
import { SocketReader } from './socket-reader.ts';

/** Those that never serve anybody. */
export type BadBehaviour = Exclude<Behaviour, { how: 'good' | 'slow' | 'no-connect' | 'dribble' | 'cut' }>;

/** The greeting of another protocol, then bytes that are no text. */
const GARBAGE = Buffer.from(
  'SSH-2.0-OpenSSH_9.6\r\n\x00\x00\x05\x14\x0c\xff\xfe\x80\x00\x00\r\n\r\n',
  'latin1',
);
const WRONG_HTTP = Buffer.from('HTTP/9.9 200 OK\r\n\r\n');
const WRONG_SOCKS = Buffer.from([0x09, 0x00]);
const ENDLESS_LINE = Buffer.from(`X-Filler: ${'a'.repeat(1000)}\r\n`);
const ENDLESS_BYTES = Buffer.alloc(1000, 0x05);
/** How long an ended connection waits for the client's own end. */
const LINGER_MS = 1000;

const STATUS_TEXTS: Readonly<Record<number, string>> = {
  403: 'Forbidden',
  407: 'Proxy Authentication Required',
  500: 'Internal Server Error',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};
/** The SOCKS reply nearest to a status. */
const STATUS_REFUSALS: Readonly<Record<number, RefusalCause>> = {
  403: 'ruleset',
  502: 'host-unreachable',
  503: 'net-unreachable',
  504: 'ttl',
};

/** Takes over a connection that `member` accepted, and treats it as its behaviour says. */
export async function answerBadly(
  socket: Socket,
  member: RunningMember,
  behaviour: BadBehaviour,
): Promise<void> {
  const { protocol } = member.traits;
  if (('when' in behaviour ? behaviour.when : undefined) !== 'accept') await new SocketReader(socket).some();
  switch (behaviour.how) {
    case 'refuse': // its port is closed; this one was still in the backlog
      socket.destroy();
      return;
    case 'silent':
      return swallow(socket);
    case 'silent-after':
      return acceptAndSwallow(socket, member);
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

/** Ends the connection, after `bytes`; reads on for a moment, so that these are not lost to a reset. */
export function endWith(socket: Socket, bytes: Buffer = Buffer.alloc(0)): void {
  socket.resume();
  socket.setTimeout(LINGER_MS, () => socket.destroy());
  socket.end(bytes);
}

/** Lets `afterBytes` of the target pass, then resets the client. */
export function cutAfter(afterBytes: number, client: Socket): Transform {
  let left = afterBytes;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const passed = chunk.subarray(0, left);
      left -= passed.length;
      done(null, passed);
      // Once what passed is with the kernel: a reset throws away what is not.
      if (left === 0) setImmediate(() => client.write('', () => client.resetAndDestroy()));
    },
  });
}

function swallow(socket: Socket): void {
  socket.once('end', () => socket.destroy());
  socket.resume();
}

async function acceptAndSwallow(socket: Socket, member: RunningMember): Promise<void> {
  const say = sendTo(socket);
  const ask = await readProxyRequest(socket, member.traits.protocol, member.login, say);
  if (ask === undefined) return endWith(socket);
  await say(ask.accepted);
  swallow(socket);
}

/** Answers a status to whatever is asked; in SOCKS the reply that says the nearest thing, and to 407 no method. */
async function answerStatus(socket: Socket, member: RunningMember, status: number): Promise<void> {
  const { protocol } = member.traits;
  if (protocol === 'socks5' && status === 407) return endWith(socket, Buffer.from([0x05, 0xff]));
  const isHttp = protocol === 'http';
  const ask = await readProxyRequest(socket, protocol, isHttp ? undefined : member.login, sendTo(socket));
  if (ask === undefined) return endWith(socket);
  if (!isHttp) return endWith(socket, ask.refusal(STATUS_REFUSALS[status] ?? 'general'));
  const challenge = status === 407 ? 'Proxy-Authenticate: Basic realm="sandbox"\r\n' : '';
  endWith(socket, httpAnswer(`${status} ${STATUS_TEXTS[status] ?? 'Unknown'}`, challenge));
}

/** Half of what it would say to accept the target, then the end. */
async function answerHalf(socket: Socket, member: RunningMember): Promise<void> {
  const ask = await readProxyRequest(socket, member.traits.protocol, member.login, sendTo(socket));
  const whole = ask === undefined || ask.accepted.length === 0 ? httpAnswer('200 OK') : ask.accepted;
  endWith(socket, whole.subarray(0, Math.floor(whole.length / 2)));
}

async function answerEndlessly(socket: Socket, member: RunningMember): Promise<void> {
  const say = sendTo(socket);
  const isHttp = member.traits.protocol === 'http';
  if (isHttp) await say(Buffer.from('HTTP/1.1 200 OK\r\n'));
  while (!socket.destroyed) await say(isHttp ? ENDLESS_LINE : ENDLESS_BYTES);
}
