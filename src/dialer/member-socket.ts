/**
 * Opens connections to members: the one place that knows how such a socket is made.
 *
 * Members are IP literals, so nothing is looked up. TLS to a member (`https`) encrypts without knowing whom it speaks
 * to: a member is an address that the service named a moment ago, and no certificate can vouch for it. Whoever
 * needs certainty about the target has it from the TLS inside the tunnel.
 */
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { TCP_KEEP_ALIVE_MS } from '../core/keep-alive.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { DialRequest } from './dial.ts';
import { ReadMemory, TunnelSocket } from './tunnel-socket.ts';

export interface MemberAddress {
  readonly protocol: MemberProtocol;
  /** IP literal without brackets. */
  readonly host: string;
  readonly port: number;
}

/**
 * Starts a connection, for a tunnel or for a plain HTTP request. The socket is half-open capable, and an error of it is
 * never uncaught: a handler that stays for its whole life is on it from the same tick; whoever drives it learns of the
 * end by `close` and `errored`.
 */
export type OpenSocket = (member: MemberAddress, use: DialRequest['use']) => Socket;

/** A tunnel is probed once it has lasted a while, which most do not (listener/relay.ts); these may be kept for long. */
const LASTING = {
  allowHalfOpen: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
} as const;

/** Opens the real connections of one dialer. */
export function memberSockets(): OpenSocket {
  const memory = new ReadMemory();
  const open: OpenSocket = ({ protocol, host, port }, use) => {
    const where = { host, port, autoSelectFamily: false };
    if (protocol === 'https') return connectTls({ ...where, ...LASTING, rejectUnauthorized: false });
    if (use === 'forward') return connect({ ...where, ...LASTING });
    return new TunnelSocket(memory).connect(where);
  };
  return (member, use) => open(member, use).on('error', endsByClose);
}

/** The event that tells that a member's connection can carry bytes: after TLS, where there is TLS. */
export function readyEvent(protocol: MemberProtocol): 'connect' | 'secureConnect' {
  return protocol === 'https' ? 'secureConnect' : 'connect';
}

function endsByClose(): void {
  // ignored: `close` follows every error, and `socket.errored` keeps it for whoever asks
}
