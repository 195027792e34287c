/**
 * The interface between the data plane and the pool: request a lease, report its outcome.
 *
 * All of it is plain data without sockets or callbacks, so that it can be sent to another process: the pool may live in
 * another process than the listeners that it serves.
 */
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { Login } from '../core/login.ts';
import type { MemberProtocol } from '../core/protocol.ts';

/** The client that a session belongs to: its sessions count together. */
export interface SessionOwner {
  /** The user that it has authenticated as; '' when the listener has no users. */
  readonly user: string;
  readonly address: string;
}

/** What a client asks for in its user name or headers, completed by the options of its listener. */
export interface RoutingOptions {
  /** Who asks: the user, or the client's network where there are no users. Absent: all such requests come from one client. */
  readonly client?: string;
  /** Complete name of the session, unique among users and listeners. Equals the value of X-Noria-Session. */
  readonly session?: string;
  /** Who opens the session, if it does not exist. */
  readonly sessionOwner?: SessionOwner;
  /** How long the session may be idle; absent: the pool's default. */
  readonly sessionTtlMs?: number;
  /** Only members of this source. */
  readonly source?: string;
  /** Only members whose location contains this keyword, case-insensitive. */
  readonly location?: string;
  /** Only members with at least this much life left. */
  readonly minLifeMs?: number;
  /** Only members that speak this protocol. */
  readonly protocol?: MemberProtocol;
}

export interface LeaseRequest {
  /** Chosen by the caller for `cancel`; unique among its pending requests. */
  readonly id: number;
  readonly routing: RoutingOptions;
  /** Canonical host of the target, for bans and for the minimum time between two uses of a member for one host. */
  readonly targetHost: string;
  /** Ids of members already tried for the same client request. */
  readonly avoid: readonly string[];
  /** How long the request may wait for a member. 0: it does not wait. */
  readonly waitMs: number;
  /** It runs in parallel with a slow attempt, so its success does not move the session. */
  readonly hedge?: boolean;
}

/** The pool's grant of a member to one request. It counts as load on the member until a report ends it. */
export interface Lease {
  readonly id: number;
  /** The member's opaque id, as in X-Noria-Member. */
  readonly member: string;
  readonly source: string;
  readonly protocol: MemberProtocol;
  /** IP literal without brackets. */
  readonly host: string;
  readonly port: number;
  readonly exitIp?: string;
  /** The member's own credentials, in place of those of its source. */
  readonly login?: Login;
  /** The member's life left when the lease was granted, safety margin included; absent when unknown. */
  readonly remainingMs?: number;
  readonly session?: string;
  /** How long the request waited. */
  readonly waitedMs: number;
  /** The member never had a success, or this lease is its trial after a quarantine: hedge it earlier. */
  readonly doubtful: boolean;
}

/** A lease for a probe of noria itself. */
export interface ProbeLease extends Lease {
  /** The member is unproven: no client has it yet. */
  readonly isNew: boolean;
}

/** A member that a later request will probably get. */
export type UpcomingMember = Pick<
  Lease,
  'member' | 'source' | 'protocol' | 'host' | 'port' | 'login' | 'remainingMs'
>;

export interface UpcomingQuery {
  /** With a session: only its own member is upcoming. */
  readonly routing: RoutingOptions;
  readonly count: number;
  /** Members that the caller needs no answer about. */
  isKnown(member: string): boolean;
}

/** Why there is no lease. */
export interface LeaseRefusal {
  readonly refused: Extract<
    FaultCode,
    'pool-empty' | 'bad-routing' | 'deadline' | 'shutting-down' | 'client-gone'
  >;
  /** For the client. Never text from the service. */
  readonly reason: string;
  /** Time until the next draw can bring a member; absent when no draw is planned. */
  readonly retryAfterMs?: number;
  readonly sources: readonly SourceOutlook[];
}

/** What a source waits for, as a refusal reports it. */
export interface SourceOutlook {
  readonly name: string;
  readonly state: string;
  /** With the service's code where it matters, but never its text. */
  readonly reason: string;
  /** Time until its next draw may start; absent when none is planned. */
  readonly nextDrawMs?: number;
}

/** The outcome of a lease. `accepted` keeps the lease open; the others end it. The pool ignores reports on leases that have ended. */
export type LeaseReport =
  /** The member connected to the target. `latencyMs` is absent when an idle connection was reused. */
  | { readonly lease: number; readonly kind: 'accepted'; readonly latencyMs?: number }
  /** The attempt failed. Only the blames `member`, `member-for-target` and `unclear` count against the member. */
  | {
      readonly lease: number;
      readonly kind: 'failed';
      readonly blame: Blame;
      readonly fault: FaultCode;
    }
  /** The tunnel or forwarded request ended. */
  | {
      readonly lease: number;
      readonly kind: 'closed';
      /** The member closed it before its first byte: whether another member got an answer of the target. */
      readonly cut: false | Extract<Blame, 'member-for-target' | 'unclear'>;
      /** At least one byte of the target arrived. */
      readonly answered?: boolean;
    };

/** The pool, as the data plane uses it. */
export interface LeaseProvider {
  /**
   * Returns a lease at once when a member is free, without the cost of a promise. Otherwise the request waits, first come
   * first served, until `waitMs` has passed or it is cancelled. The promise never rejects.
   */
  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal>;
  /** Cancels a waiting request: its promise resolves with `client-gone`. Ignores unknown ids. */
  cancel(requestId: number): void;
  report(report: LeaseReport): void;
  /**
   * The members that the next requests with these routing options will probably get, in order, without those that the caller
   * knows and those that may get no further tunnel now. It grants nothing and changes no order. Empty when the pool cannot say.
   */
  upcoming(query: UpcomingQuery): readonly UpcomingMember[];
}

export function isLease(answer: Lease | LeaseRefusal): answer is Lease {
  return !('refused' in answer);
}
