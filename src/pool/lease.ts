/**
 * The one interface between the data plane and the pool: a request, a lease, and what came of it.
 *
 * All of it is plain data without a socket or a callback in it, so that it can cross a pipe: a pool may live
 * in another process than the listeners it serves. In one process `take` answers at once when a member is
 * ready, so that a busy proxy pays for no promise.
 */
import type { FaultCode } from '../core/faults.ts';
import type { MemberProtocol } from '../core/protocol.ts';

/** What a client asked for, by its user name or headers, with the listener's own choices filled in. */
export interface RoutingOptions {
  /** The whole name of the session, made unique to its user or listener by whoever fills it in; as in X-Noria-Session. */
  readonly session?: string;
  /** Idle life of that session; the pool's default when absent. */
  readonly sessionTtlMs?: number;
  /** Only members of this source. */
  readonly source?: string;
  /** Only members whose location contains this keyword, letter case aside. */
  readonly location?: string;
  /** Only members with at least this much life left. */
  readonly minLifeMs?: number;
  /** Only members that speak this. */
  readonly protocol?: MemberProtocol;
}

export interface LeaseRequest {
  /** Chosen by the asker, unique among its own requests under way: names it in `cancel`. */
  readonly id: number;
  readonly routing: RoutingOptions;
  /** Canonical host of the target: for spacing, bans and nothing else. */
  readonly targetHost: string;
  /** Members already tried for the same client request. */
  readonly avoid: readonly string[];
  /** How long it may wait for a member. 0: now or never (a hedge). */
  readonly waitMs: number;
}

/** The pool's loan of a member. It counts as load of the member until a report ends it. */
export interface Lease {
  readonly id: number;
  /** Opaque id of the member, as in X-Noria-Member. */
  readonly member: string;
  readonly source: string;
  readonly protocol: MemberProtocol;
  /** IP literal without brackets. */
  readonly host: string;
  readonly port: number;
  readonly exitIp?: string;
  /** Ms of life left when the lease was given, safety margin not taken off; absent when unknown. */
  readonly remainingMs?: number;
  readonly session?: string;
  /** Ms the request waited for it. */
  readonly waitedMs: number;
  /** Quarantined and tried again by this one request, or never proven: a hedge beside it is worth it sooner. */
  readonly doubtful: boolean;
}

/** Why there is no lease. */
export interface LeaseRefusal {
  readonly refused: Extract<
    FaultCode,
    'pool-empty' | 'bad-routing' | 'deadline' | 'shutting-down' | 'client-gone'
  >;
  /** In noria's words, for the client: never text of the service. */
  readonly reason: string;
  /** Ms until the next draw can bring a member; absent when none is in sight. */
  readonly retryAfterMs?: number;
  readonly sources: readonly SourceOutlook[];
}

/** What a source is waiting for: told to clients that found the pool empty. */
export interface SourceOutlook {
  readonly name: string;
  readonly state: string;
  /** In noria's words, with the service's code where it matters. */
  readonly reason: string;
  /** Ms until its next draw may go out; absent when none is planned. */
  readonly nextDrawMs?: number;
}

/** What came of a lease. `accepted` keeps it open; each of the others ends it. A report about a lease that has ended is ignored. */
export type LeaseReport =
  /** The member opened a way to the target, in so many ms (absent when an idle connection was used again). */
  | { readonly lease: number; readonly kind: 'accepted'; readonly latencyMs?: number }
  /** It did not. `blame` other than member and half-member costs the member nothing. */
  | {
      readonly lease: number;
      readonly kind: 'failed';
      readonly blame: 'nobody' | 'member' | 'half-member' | 'target' | 'source' | 'network';
      readonly fault: FaultCode;
    }
  /** The tunnel or forwarded request ended. `cut`: by the member, before its first byte. */
  | { readonly lease: number; readonly kind: 'closed'; readonly cut: boolean };

/** The pool as the data plane sees it. */
export interface LeaseProvider {
  /** A lease at once where a member is ready; else a promise, in the order of asking, until `waitMs` or `cancel`. Never rejects. */
  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal>;
  /** Gives up a waiting request: its promise resolves with `client-gone`. Unknown ids are ignored. */
  cancel(requestId: number): void;
  report(report: LeaseReport): void;
}

export function isLease(answer: Lease | LeaseRefusal): answer is Lease {
  return !('refused' in answer);
}
