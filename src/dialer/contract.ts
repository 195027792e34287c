/**
 * What the listener and the dialer exchange. The dialer sends nothing to the client; the listener takes over a
 * connected socket.
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
  /** `forward`: the dial may return an idle connection, or one for requests in absolute form. */
  readonly use: 'tunnel' | 'forward';
  /** Only with `forward`: different owners never share an idle connection. */
  readonly owner?: string;
  /** Only with `forward`: a new connection, for retries and for requests that cannot be repeated. */
  readonly noReuse?: boolean;
  /** Only with `forward`: a member answered in absolute form with its own error. */
  readonly connectOnly?: boolean;
  readonly record?: OpenRequest | undefined;
  readonly avoid?: readonly string[];
  /** The marks of the norias that the request has passed on its way (core/front-proxy.ts). */
  readonly marks?: readonly string[] | undefined;
}

export interface AbsoluteAnswer {
  readonly status: number;
  readonly fields: readonly (readonly [name: string, value: string])[];
  /** No target answers GET or HEAD with 405 or 501, so such a response comes from the member. */
  readonly isRead: boolean;
}

export interface MemberConnection {
  /**
   * Allows half-open connections; of a member that speaks TLS, the TLS socket. It may be flowing: add a 'data'
   * listener or pause it in the same tick, or bytes are lost. Its 'error' has a handler.
   */
  readonly socket: Socket;
  /** What the member sent after its answer: send it to the client first. */
  readonly early: Buffer;
  readonly forwardMode: ForwardMode;
  /** The value of Proxy-Authorization for a request in absolute form. Never log it. */
  readonly proxyAuthorization?: string | undefined;
  /** The member may have closed a connection that is older than this dial, which is no fault. */
  readonly reused: boolean;
  readonly lease: Pick<Lease, 'member' | 'source' | 'exitIp' | 'remainingMs' | 'session'>;
  readonly attempts: number;
  /** Whether the target's host has answered through this exit: if it now resets, it is not the member's doing. */
  readonly hasWorked?: boolean;
  /** Only with `forward`: when the target has been silent for so long, another member should be tried. */
  readonly muteAfterMs?: number;
  /** Only in absolute form. @returns whether the member made the response itself: the client must not get it. */
  isMemberError(answer: AbsoluteAnswer): boolean;
  /** Ends the lease. Call it in all cases; idempotent. Destroy the socket yourself, or return it with `keep`. */
  end(outcome: ConnectionOutcome): 'member-mute' | undefined;
}

export interface ConnectionOutcome {
  /**
   * Whether the member closed the connection, or the connection failed, before the member had sent a byte. `after-tls`:
   * it had sent the handshake of TLS, and no application data.
   */
  readonly cut: boolean | 'after-tls';
  readonly answered?: boolean;
  readonly mute?: boolean;
  readonly firstByteMs?: number;
  readonly response?: SiteResponse;
  /** Only with `forward`: the dialer gets the socket back for another request. */
  readonly keep?: boolean;
  /** Only in absolute form: a 407. The next dial sends other credentials, if any. */
  readonly proxyAuthRequired?: boolean;
}

export interface DialFailure extends Partial<Pick<LeaseRefusal, 'retryAfterMs' | 'sources'>> {
  readonly code:
    | LeaseRefusal['code']
    | Extract<FaultCode, 'members-failed' | 'target-unreachable' | 'deadline' | 'internal'>
    | Extract<FaultCode, 'front-proxy-failed' | 'proxy-loop'>;
  /** Contains no address of a member and no text from outside. */
  readonly reason: string;
  readonly attempts: number;
  /** True: refused (SOCKS5 reply 5). False: unreachable (reply 4). */
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
   * @param onResult - called exactly once, possibly before `dial` returns. It must not throw. A promise would take
   * more CPU time than the choice of a member.
   */
  dial(request: DialRequest, onResult: (result: DialResult) => void): Dialing;
}
