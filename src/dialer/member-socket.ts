/**
 * Opens connections to members: the one place that knows how such a socket is made.
 *
 * Members are IP literals, so nothing is looked up. TLS to a member (`https`) encrypts without knowing whom it speaks
 * to: a member is an address that the service named a moment ago, and no certificate can vouch for it. Whoever
 * needs certainty about the target has it from the TLS inside the tunnel.
 */
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { MemberProtocol } from '../core/protocol.ts';

export interface MemberAddress {
  readonly protocol: MemberProtocol;
  /** IP literal without brackets. */
  readonly host: string;
  readonly port: number;
}

/**
 * Starts a connection. The socket is half-open capable, and an error of it is never uncaught: a handler that stays
 * for its whole life is on it from the same tick; whoever drives it learns of the end by `close` and `errored`.
 */
export type OpenSocket = (member: MemberAddress) => Socket;

const KEEP_ALIVE_PROBE_MS = 30_000;

export const openMemberSocket: OpenSocket = ({ protocol, host, port }) => {
  const options = {
    host,
    port,
    allowHalfOpen: true,
    autoSelectFamily: false,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
  };
  const socket =
    protocol === 'https' ? connectTls({ ...options, rejectUnauthorized: false }) : connect(options);
  return socket.on('error', endsByClose);
};

/** The event that tells that a member's connection can carry bytes: after TLS, where there is TLS. */
export function readyEvent(protocol: MemberProtocol): 'connect' | 'secureConnect' {
  return protocol === 'https' ? 'secureConnect' : 'connect';
}

function endsByClose(): void {
  // ignored: `close` follows every error, and `socket.errored` keeps it for whoever asks
}
