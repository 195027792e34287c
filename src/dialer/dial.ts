/**
 * What the listener asks of the dialer: one way to one target, through whichever member accepts first.
 *
 * The result owns a connected socket until the listener takes it over; nothing has been told to the client yet.
 */
import type { Socket } from 'node:net';
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { RoutingOptions, SourceOutlook } from '../pool/lease.ts';

export interface DialRequest {
  readonly target: HostPort;
  readonly routing: RoutingOptions;
  /**
   * `tunnel`: bytes to the target, untouched. `forward`: a plain HTTP request to the target; an idle connection may be used
   * again, and a member that does not CONNECT to this port may take it in absolute form instead.
   */
  readonly use: 'tunnel' | 'forward';
  /** `forward` after a reused connection died: a new connection this time. */
  readonly fresh?: boolean;
  /** Members that already failed for this client request (a forwarded request tried again). */
  readonly avoid?: readonly string[];
}

/** A way that stands. */
export interface MemberConnection {
  /**
   * Connected, paused, no data lost; TLS where the member speaks it. The dialer's error handler stays on it, so an
   * error is never uncaught; the taker adds its own. Half-open is allowed.
   */
  readonly socket: Socket;
  /** Bytes that came after the member's answer; to be given to the client first. Empty when there are none. */
  readonly head: Buffer;
  /** `direct`: speak to the target. `absolute`: speak HTTP to the member, in absolute form. */
  readonly forwardMode: 'direct' | 'absolute';
  /** Value of Proxy-Authorization to send with an absolute-form request; never to be logged. */
  readonly proxyAuthorization?: string | undefined;
  /** It was idle and is used again: it may turn out dead, which is nobody's fault. */
  readonly reused: boolean;
  readonly member: string;
  readonly source: string;
  readonly exitIp?: string | undefined;
  /** Ms of life the member had left at the pick; absent when unknown. */
  readonly remainingMs?: number | undefined;
  readonly session?: string | undefined;
  readonly attempts: number;
  /** Ends the lease. Call it once, whatever happened; the socket is the caller's to close, unless `keep` gives it back for reuse. */
  end(outcome: DialOutcome): void;
}

export interface DialOutcome {
  /** The member ended it, or it failed, before its first byte. */
  readonly cut: boolean;
  /** The exchange ended cleanly and the socket may serve another request (`forward` only); the dialer owns it again. */
  readonly keep?: boolean;
  /** `absolute` only: the member answered 407. A new dial carries what credentials there are left to try, if any. */
  readonly proxyAuthRequired?: boolean;
}

/** Why no way came about; told to the client as X-Noria-Error, Retry-After and a SOCKS reply. */
export interface DialFailure {
  readonly code: Extract<
    FaultCode,
    | 'pool-empty'
    | 'bad-routing'
    | 'members-failed'
    | 'target-unreachable'
    | 'deadline'
    | 'client-gone'
    | 'shutting-down'
    | 'internal'
  >;
  /** In noria's own words; holds no member's address and no text from outside. */
  readonly reason: string;
  readonly attempts: number;
  /** With `pool-empty`: ms until the next draw can bring a member. */
  readonly retryAfterMs?: number;
  /** With `pool-empty`: what each source is waiting for. */
  readonly sources?: readonly SourceOutlook[];
  /** With `target-unreachable`: the members said refused (SOCKS5 reply 0x05) rather than unreachable (0x04). */
  readonly targetRefused?: boolean;
}

export type DialResult =
  | { readonly ok: true; readonly connection: MemberConnection }
  | { readonly ok: false; readonly failure: DialFailure };

/** A dial under way. */
export interface Dialing {
  /** The client left: ends every attempt at once, with `client-gone`. Once the result was told it does nothing. */
  cancel(): void;
}

/** The dialer as the listener sees it. */
export interface Dialer {
  /**
   * @param done - called once, in the very moment in which the result stands (a promise would tell it later, and cost
   *   more than the pick); that may be before `dial` returns. It must not throw.
   */
  dial(request: DialRequest, done: (result: DialResult) => void): Dialing;
}
