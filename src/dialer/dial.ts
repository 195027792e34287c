/**
 * The contract between the listener and the dialer: a request for a connection to a target, and its result.
 *
 * The dialer sends nothing to the client. On success the listener takes over a connected socket.
 */
import type { Socket } from 'node:net';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { RoutingOptions, SourceOutlook } from '../pool/lease.ts';

/** How a plain HTTP request is sent: `direct` to the target through a tunnel, or in `absolute` form to the member. */
export type ForwardMode = 'direct' | 'absolute';

export interface DialRequest {
  readonly target: HostPort;
  readonly routing: RoutingOptions;
  /**
   * `tunnel`: unmodified bytes to the target. `forward`: a plain HTTP request to the target. It may reuse an idle
   * connection, and may use absolute form if the member does not accept CONNECT to this port.
   */
  readonly use: 'tunnel' | 'forward';
  /** `forward` only: an idle connection serves only requests of the same owner. */
  readonly owner?: string;
  /** `forward` only: no idle connection, which the other side may have closed. For requests that cannot be repeated, and for retries. */
  readonly fresh?: boolean;
  /** `forward` only, after absolute form got an error of the member instead of an answer of the target: use CONNECT. */
  readonly connectOnly?: boolean;
  /** Members that already failed for this client request, when a forwarded request is retried. */
  readonly avoid?: readonly string[];
}

/** An answer to a request in absolute form. */
export interface AbsoluteAnswer {
  readonly status: number;
  /** As received. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  /** The method is GET or HEAD, which every target accepts. */
  readonly isRead: boolean;
}

/** A connection to the target through a member. */
export interface MemberConnection {
  /**
   * Connected, paused, with no data lost, half-open allowed; TLS where the member speaks it. The dialer's 'error' handler
   * stays on it, so an error is never uncaught.
   */
  readonly socket: Socket;
  /** Bytes that followed the member's answer; the client must get them first. Often empty. */
  readonly head: Buffer;
  readonly forwardMode: ForwardMode;
  /** Value of Proxy-Authorization for a request in absolute form. Never log it. */
  readonly proxyAuthorization?: string | undefined;
  /** The connection was idle before. It may turn out to be closed, which is not the member's fault. */
  readonly reused: boolean;
  readonly member: string;
  readonly source: string;
  readonly exitIp?: string | undefined;
  /** Lifetime of the member in ms when it was leased; absent if unknown. */
  readonly remainingMs?: number | undefined;
  readonly session?: string | undefined;
  readonly attempts: number;
  /**
   * `absolute` only: an answer has arrived. The dialer learns from it. @returns whether it is an error of the member itself,
   * which must not be presented as the target's answer.
   */
  isMemberError(answer: AbsoluteAnswer): boolean;
  /** Ends the lease. Idempotent. Always call it; close the socket yourself unless `keep` returns it to the dialer. */
  end(outcome: DialOutcome): void;
}

export interface DialOutcome {
  /** The member closed the connection, or it failed, before the member's first byte. */
  readonly cut: boolean;
  /** At least one byte arrived from the target. */
  readonly answered?: boolean;
  /** `forward` only: the exchange is complete and the socket can serve another request. The dialer owns it again. */
  readonly keep?: boolean;
  /** `absolute` only: the member answered 407. The next dial carries other credentials if there are any. */
  readonly proxyAuthRequired?: boolean;
}

/** Why the dial failed. The client gets it as X-Noria-Error, Retry-After and SOCKS reply. */
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
  /** In noria's own words: contains no member's address and no text from outside. */
  readonly reason: string;
  readonly attempts: number;
  /** With `pool-empty`: ms until the next draw can bring a member. */
  readonly retryAfterMs?: number;
  /** With `pool-empty`: what each source is waiting for. */
  readonly sources?: readonly SourceOutlook[];
  /** With `target-unreachable`: the target refused the connection (SOCKS5 reply 5), rather than being unreachable (4). */
  readonly targetRefused?: boolean;
}

export type DialResult =
  | { readonly ok: true; readonly connection: MemberConnection }
  | { readonly ok: false; readonly failure: DialFailure };

/** A dial in progress. */
export interface Dialing {
  /** The client left: aborts all attempts with `client-gone`. A no-op after the result. */
  cancel(): void;
}

/** The dialer as the listener uses it. */
export interface Dialer {
  /**
   * @param onResult - called exactly once, synchronously with the result and possibly before `dial` returns: a promise would
   *   delay it, and would cost more than the choice of a member. Must not throw.
   */
  dial(request: DialRequest, onResult: (result: DialResult) => void): Dialing;
}
