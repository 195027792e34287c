/**
 * What the listener and the dialer exchange: a request for a connection to a target, and its result.
 *
 * The dialer sends nothing to the client. On success the listener takes over a connected socket.
 */
import type { Socket } from 'node:net';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { OpenRequest } from '../core/request-record.ts';
import type { Lease, LeaseRefusal, RoutingOptions } from '../pool/lease.ts';
import type { SiteResponse } from './evidence.ts';

/** How to send a plain HTTP request: `direct` to the target through a tunnel, or in `absolute` form to the member. */
export type ForwardMode = 'direct' | 'absolute';

export interface DialRequest {
  readonly target: HostPort;
  readonly routing: RoutingOptions;
  /**
   * What the connection is for. `tunnel`: unmodified bytes to the target. `forward`: a plain HTTP request to the
   * target. With `forward`, the dial may return an idle connection. It may also return a connection for requests in
   * absolute form, if the member does not accept CONNECT to the target's port.
   */
  readonly use: 'tunnel' | 'forward';
  /**
   * Only with `forward`: the client's address, user and session. Requests with different owners never share an idle connection.
   */
  readonly owner?: string;
  /**
   * Only with `forward`: do not use an idle connection, because the member or the target may have closed it. Set for
   * retries and for requests that cannot be repeated.
   */
  readonly noReuse?: boolean;
  /**
   * Only with `forward`: use CONNECT, because a member answered a request in absolute form with its own error instead
   * of the target's answer.
   */
  readonly connectOnly?: boolean;
  /** The dialer adds its attempts to it. */
  readonly record?: OpenRequest | undefined;
  /** Members that already failed for this request; set when a forwarded request is retried. */
  readonly avoid?: readonly string[];
  /** The marks of the norias that the request has passed on its way (core/front-proxy.ts). */
  readonly marks?: readonly string[] | undefined;
}

export interface AbsoluteAnswer {
  readonly status: number;
  readonly fields: readonly (readonly [name: string, value: string])[];
  /**
   * Whether the method is GET or HEAD. No target answers GET or HEAD with 405 or 501, so a response with such a status
   * comes from the member.
   */
  readonly isRead: boolean;
}

export interface MemberConnection {
  /**
   * The socket allows half-open connections. If the member speaks TLS, this is the TLS socket. The socket may be
   * flowing: add a 'data' listener or pause the socket in the same tick, otherwise bytes are lost. The dialer's 'error'
   * handler stays attached, so an error of the socket does not crash the process.
   */
  readonly socket: Socket;
  /** The bytes that the member sent after its answer. Send them to the client first. Often empty. */
  readonly early: Buffer;
  readonly forwardMode: ForwardMode;
  /** The value of Proxy-Authorization for a request in absolute form. Never log it. */
  readonly proxyAuthorization?: string | undefined;
  /**
   * Whether the connection was opened before this dial. The member may have closed such a connection in the meantime,
   * which is no fault of the member.
   */
  readonly reused: boolean;
  /** The lease on the member. Its `remainingMs` is the remaining life of the member when the pool granted the lease. */
  readonly lease: Pick<Lease, 'member' | 'source' | 'exitIp' | 'remainingMs' | 'session'>;
  readonly attempts: number;
  /** Whether the target's host has answered through this exit: if it now resets, it is not the member's doing. */
  readonly hasWorked?: boolean;
  /**
   * Only with `forward`: when the target has not sent a byte for this number of ms, another member should be tried. It
   * follows from the target's earlier first bytes.
   */
  readonly muteAfterMs?: number;
  /**
   * Only in absolute form: passes the head of the response to the dialer. From the head, the dialer learns which
   * forward mode the members accept.
   * @returns whether the member made the response itself. If so, the client must not get it as the target's answer.
   */
  isMemberError(answer: AbsoluteAnswer): boolean;
  /**
   * Ends the lease. Call it in all cases; idempotent. It does not close the socket: destroy the socket yourself, or
   * return it with `keep`.
   * @returns the fault of a member that relayed nothing while the target answered through others.
   */
  end(outcome: ConnectionOutcome): 'member-mute' | undefined;
}

export interface ConnectionOutcome {
  /**
   * Whether the member closed the connection, or the connection failed, before the member had sent a byte. `after-tls`:
   * it had sent the handshake of TLS, and no application data.
   */
  readonly cut: boolean | 'after-tls';
  readonly answered?: boolean;
  /** Whether bytes were sent and none came back, for longer than the target needs. */
  readonly mute?: boolean;
  readonly firstByteMs?: number;
  /** Only with `forward`: the response, which may show that the site bans the exit. */
  readonly response?: SiteResponse;
  /**
   * Used only with `forward`. If true, the dialer gets the socket back after a complete exchange and may use it for
   * another request.
   */
  readonly keep?: boolean;
  /**
   * Only in absolute form: whether the response had status 407. If so, the next dial sends other credentials, if any.
   */
  readonly proxyAuthRequired?: boolean;
}

/** Why the dial failed. The listener sends it to the client as X-Noria-Error and Retry-After, or as a SOCKS reply. */
export interface DialFailure {
  readonly code: Extract<
    FaultCode,
    | 'pool-empty'
    | 'site-banned'
    | 'session-ended'
    | 'limit'
    | 'bad-routing'
    | 'members-failed'
    | 'target-unreachable'
    | 'front-proxy-failed'
    | 'proxy-loop'
    | 'deadline'
    | 'client-gone'
    | 'shutting-down'
    | 'internal'
  >;
  /** Why the dial failed. The text contains no address of a member and no text from outside. */
  readonly reason: string;
  readonly attempts: number;
  /** With `pool-empty`: ms until the next draw can bring a member. */
  readonly retryAfterMs?: number;
  /** With `pool-empty`: the state of each source, and what it waits for. */
  readonly sources?: LeaseRefusal['sources'];
  /**
   * With `target-unreachable`: true if the target refused the connection (SOCKS5 reply 5), false if it was unreachable
   * (reply 4).
   */
  readonly targetRefused?: boolean;
}

export type DialResult =
  | { readonly ok: true; readonly connection: MemberConnection }
  | { readonly ok: false; readonly failure: DialFailure };

export interface Dialing {
  cancel(): void;
}

export interface Dialer {
  /**
   * Starts a dial.
   * @param onResult - called exactly once, possibly before `dial` returns. It must not throw. It is a callback, because
   * a promise would take more CPU time than the choice of a member.
   */
  dial(request: DialRequest, onResult: (result: DialResult) => void): Dialing;
}
