/**
 * Answers the clients of misbehaving members: with silence, an error status, bytes of another protocol, or half an
 * answer. Some of these members close or reset the connection without an answer.
 */
import type { Socket } from 'node:net';
import { Transform } from 'node:stream';
import type { RunningMember } from './member.ts';
import { httpAnswer, PROXY_CHALLENGE, type RefusalCause, readProxyRequest, sendTo } from './proxy-request.ts';
import type { Behaviour } from './scenario.ts';
import { SocketReader } from './socket-reader.ts';

/** The behaviours with which a member never connects a client to a target. */
type BadBehaviour = Exclude<Behaviour, { how: 'good' | 'slow' | 'no-connect' | 'dribble' | 'cut' }>;

/** The SSH greeting, then bytes that are not text. */
const GARBAGE = Buffer.from(
  'SSH-2.0-OpenSSH_9.6\r\n\x00\x00\x05\x14\x0c\xff\xfe\x80\x00\x00\r\n\r\n',
  'latin1',
);
const WRONG_HTTP = Buffer.from('HTTP/9.9 200 OK\r\n\r\n');
const WRONG_SOCKS = Buffer.from([0x09, 0x00]);
const ENDLESS_LINE = Buffer.from(`X-Filler: ${'a'.repeat(1000)}\r\n`);
const ENDLESS_BYTES = Buffer.alloc(1000, 0x05);
/** How long a member waits for the client to close a connection that the member has ended. */
const LINGER_MS = 1000;

/** The cause of refusal with which a SOCKS member answers in place of an HTTP status. */
const STATUS_CAUSES: Readonly<Record<number, RefusalCause>> = {
  403: 'ruleset',
  502: 'host-unreachable',
  503: 'net-unreachable',
  504: 'ttl',
};

export async function answerBadly(
  socket: Socket,
  member: RunningMember,
  behaviour: BadBehaviour,
): Promise<void> {
  const { protocol } = member.traits;
  if (('when' in behaviour ? behaviour.when : undefined) !== 'accept')
    await new SocketReader(socket).waitForBytes();
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
export function endWith(socket: Socket, bytes: Buffer = Buffer.alloc(0)): void {
  socket.resume();
  socket.setTimeout(LINGER_MS, () => socket.destroy());
  socket.end(bytes);
}

/** Passes the first `afterBytes` bytes from the target to the client. Then resets the client's connection. */
export function cutAfter(afterBytes: number, client: Socket): Transform {
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
  const request = await readProxyRequest(
    socket,
    { protocol: member.traits.protocol, login: member.login },
    send,
  );
  if (request === undefined) return endWith(socket);
  await send(request.accepted);
  discard(socket);
}

/**
 * Answers with the HTTP status. A SOCKS member sends the most similar reply instead; for status 407, it is "no
 * acceptable methods".
 */
async function answerStatus(socket: Socket, member: RunningMember, status: number): Promise<void> {
  const { protocol } = member.traits;
  if (protocol === 'socks5' && status === 407) return endWith(socket, Buffer.from([0x05, 0xff]));
  const isHttp = protocol === 'http';
  const request = await readProxyRequest(
    socket,
    { protocol, login: isHttp ? undefined : member.login },
    sendTo(socket),
  );
  if (request === undefined) return endWith(socket);
  if (!isHttp) return endWith(socket, request.refusal(STATUS_CAUSES[status] ?? 'general'));
  endWith(socket, httpAnswer(status, status === 407 ? PROXY_CHALLENGE : ''));
}

/** Sends half of the answer that reports a connected target, then ends the connection. */
async function answerHalf(socket: Socket, member: RunningMember): Promise<void> {
  const request = await readProxyRequest(
    socket,
    { protocol: member.traits.protocol, login: member.login },
    sendTo(socket),
  );
  const whole = request === undefined || request.accepted.length === 0 ? httpAnswer(200) : request.accepted;
  endWith(socket, whole.subarray(0, Math.floor(whole.length / 2)));
}

async function answerEndlessly(socket: Socket, member: RunningMember): Promise<void> {
  const send = sendTo(socket);
  const isHttp = member.traits.protocol === 'http';
  if (isHttp) await send(Buffer.from('HTTP/1.1 200 OK\r\n'));
  while (!socket.destroyed) await send(isHttp ? ENDLESS_LINE : ENDLESS_BYTES);
}
