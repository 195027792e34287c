/**
 * Sockets to members: how noria opens them, when they are ready, and what their errors mean.
 *
 * Members are IP literals, so noria resolves no names of members. TLS to a member (`https`) encrypts without
 * verification: the service reports members as addresses, for which there is no certificate to verify. A client that
 * has to authenticate its target uses TLS inside the tunnel.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { TCP_KEEP_ALIVE_MS } from '../core/keep-alive.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { DialRequest } from './dial.ts';
import { ReceivingSocket } from './receiving-socket.ts';
import { ReadMemory, TunnelSocket } from './tunnel-socket.ts';

export interface MemberAddress {
  readonly protocol: MemberProtocol;
  /** An IP literal without brackets. For a front proxy, it may also be a name. */
  readonly host: string;
  readonly port: number;
}

/**
 * Starts a connection for a tunnel or a plain HTTP request. The socket allows half-open connections. It has an 'error'
 * handler for its whole life, so no error is uncaught. Users listen for 'close' and then read `errored`.
 */
export type OpenSocket = (member: MemberAddress, use: DialRequest['use']) => Socket;

/**
 * Enables TCP keep-alive immediately, for sockets that may stay open for long. For tunnels, relay.ts enables keep-alive
 * later, because most tunnels end before keep-alive matters.
 */
const LONG_LIVED = {
  allowHalfOpen: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
} as const;

const LOCAL_CODES = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'EADDRNOTAVAIL', 'ENOMEM']);
const ANSWER_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ECONNABORTED']);

/** Returns a function that opens real connections. All tunnels that the returned function opens share a read buffer. */
export function memberSockets(): OpenSocket {
  const memory = new ReadMemory();
  const open: OpenSocket = ({ protocol, host, port }, use) => {
    const address = { host, port, autoSelectFamily: true }; // autoSelectFamily has an effect only on names
    if (protocol === 'https') return connectTls({ ...address, ...LONG_LIVED, rejectUnauthorized: false });
    if (use === 'forward') return new ReceivingSocket(LONG_LIVED).connect(address);
    return new TunnelSocket(memory).connect(address);
  };
  return (member, use) => open(member, use).on('error', ignoreError);
}

/** Starts TLS to a member on a connection through the front proxy. */
export function secureSocket(stream: Duplex): Socket {
  return connectTls({ socket: stream, rejectUnauthorized: false }).on('error', ignoreError);
}

/** The event after which the socket can carry bytes: 'secureConnect' with TLS, otherwise 'connect'. */
export function readyEvent(protocol: MemberProtocol): 'connect' | 'secureConnect' {
  return protocol === 'https' ? 'secureConnect' : 'connect';
}

/** The code of the error that closed the socket, or `closed` if there was none. */
export function closeCode(socket: Pick<Socket, 'errored'> | undefined): string {
  const error = socket?.errored;
  if (error === null || error === undefined) return 'closed';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}

/** Whether the code means that this machine is out of sockets, ports or memory. */
export function isLocalCode(code: string): boolean {
  return LOCAL_CODES.has(code);
}

/** Whether the code means that another machine answered, if only with a reset. */
export function isAnswerCode(code: string): boolean {
  return ANSWER_CODES.has(code);
}

function ignoreError(): void {
  // ignored: 'close' follows every error, and `socket.errored` keeps it
}
