/**
 * The contract between the listener and the dialer: a request for a connection to a target, and its result.
 *
 * The dialer sends nothing to the client. On success the listener takes over a connected socket.
 */
import type { Socket } from 'node:net';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { RoutingOptions, SourceOutlook } from '../pool/lease.ts';

/** How to send a plain HTTP request: `direct` to the target through a tunnel, or in `absolute` form to the member. */
export type ForwardMode = 'direct' | 'absolute';

export interface DialRequest {
  readonly target: HostPort;
  readonly routing: RoutingOptions;
  /**
   * `tunnel`: unmodified bytes to the target. `forward`: a plain HTTP request to the target. It may reuse an idle
   * connection, and may use absolute form if the member does not accept CONNECT to this port.
   */
  readonly use: 'tunnel' | 'forward';
  /** `forward` only. Requests of different owners never share an idle connection. */
  readonly owner?: string;
  /**
   * `forward` only: do not use an idle connection, because the member or the target may have closed it. Set for retries
   * and for requests that cannot be repeated.
   */
  readonly fresh?: boolean;
  /**
   * `forward` only: use CONNECT, because absolute form got an error from the member itself and no answer of the target.
   */
  readonly connectOnly?: boolean;
  /** Members that already failed for this request; set when a forwarded request is retried. */
  readonly avoid?: readonly string[];
}

/** An answer to a request in absolute form. */
export interface AbsoluteAnswer {
  readonly status: number;
  /** Header fields as received. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  /** The method is GET or HEAD. No target answers these with 405 or 501, so such a status comes from the member. */
  readonly isRead: boolean;
}

/** A connection to the target through a member. */
export interface MemberConnection {
  /**
   * Paused, with no data lost and half-open allowed. With TLS if the member speaks TLS. The dialer's 'error' handler
   * stays attached, so no error is uncaught.
   */
  readonly socket: Socket;
  /** Bytes that the member sent after its answer. Send them to the client first. Often empty. */
  readonly head: Buffer;
  readonly forwardMode: ForwardMode;
  /** Value of Proxy-Authorization for a request in absolute form. Never log it. */
  readonly proxyAuthorization?: string | undefined;
  /** The connection is reused after an idle time. It may already be closed, which is not the member's fault. */
  readonly reused: boolean;
  readonly member: string;
  readonly source: string;
  readonly exitIp?: string | undefined;
  /** Lifetime of the member in ms when it was leased; absent if unknown. */
  readonly remainingMs?: number | undefined;
  readonly session?: string | undefined;
  readonly attempts: number;
  /**
   * `absolute` only: reports the head of the response. The dialer learns from it which form the members accept.
   * @returns whether the member made the response itself; then the client must not get it as the target's answer.
   */
  isMemberError(answer: AbsoluteAnswer): boolean;
  /**
   * Ends the lease. Call it in all cases; idempotent. It closes no socket: close the socket, or return it with `keep`.
   */
  end(outcome: DialOutcome): void;
}

export interface DialOutcome {
  /** The member closed the connection, or the connection failed, before the member had sent a byte. */
  readonly cut: boolean;
  /** At least one byte arrived from the target. */
  readonly answered?: boolean;
  /** `forward` only: returns the socket to the dialer after a complete exchange, for another request. */
  readonly keep?: boolean;
  /** `absolute` only: the response was a 407. The next dial sends other credentials if there are any. */
  readonly proxyAuthRequired?: boolean;
}

/** Why the dial failed. The listener sends it to the client as X-Noria-Error and Retry-After, or as a SOCKS reply. */
export interface DialFailure {
  readonly code: Extract<
    FaultCode,
    | 'pool-empty'
    | 'bad-routing'
    | 'members-failed'
    | 'target-unreachable'
    | 'front-proxy-failed'
    | 'deadline'
    | 'client-gone'
    | 'shutting-down'
    | 'internal'
  >;
  /** Contains no address of a member and no text from outside. */
  readonly reason: string;
  readonly attempts: number;
  /** With `pool-empty`: ms until the next draw can bring a member. */
  readonly retryAfterMs?: number;
  /** With `pool-empty`: the state of each source, and what it waits for. */
  readonly sources?: readonly SourceOutlook[];
  /**
   * With `target-unreachable`: true if the target refused the connection (SOCKS5 reply 5), false if it was unreachable
   * (reply 4).
   */
  readonly targetRefused?: boolean;
}

export type DialResult =
  | { readonly ok: true; readonly connection: MemberConnection }
  | { readonly ok: false; readonly failure: DialFailure };

/** A dial in progress. */
export interface Dialing {
  /** Aborts all attempts with `client-gone`, because the client disconnected. A no-op after the result. */
  cancel(): void;
}

/** The dialer as the listener uses it. */
export interface Dialer {
  /**
   * Starts a dial.
   * @param onResult - must not throw. Called exactly once, possibly before `dial` returns. A promise would cost more
   * than the choice of a member.
   */
  dial(request: DialRequest, onResult: (result: DialResult) => void): Dialing;
}
