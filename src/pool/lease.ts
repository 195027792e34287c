/** What the data plane and the pool exchange: plain data, because the pool may run in another process than the listeners. */
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';

export interface RoutingOptions {
  /** The user or, on a listener without users, the client's network. Requests without it count as one client. */
  readonly client?: string;
  readonly user?: string;
  /** With its user, as `USER:NAME`, or only `NAME` on a listener without users. All listeners share the sessions. */
  readonly session?: string;
  /** `maxSessionsPerClient` applies to all sessions of one owner together. */
  readonly sessionOwner?: { readonly user: string; readonly address: string };
  readonly sessionTtlMs?: number;
  readonly source?: string;
  readonly location?: string;
  readonly minLifeMs?: number;
  readonly protocol?: MemberProtocol;
  /** The client's name for this one request. It binds the request to no member. */
  readonly tag?: string;
  /** While the session lives, nobody else gets its exit. */
  readonly exclusive?: boolean;
  /** The session never moves: when its member ends, its requests are refused. */
  readonly fixed?: boolean;
}

export interface LeaseRequest {
  readonly id: number;
  readonly routing: RoutingOptions;
  /** Canonical host of the target; its site decides about bans, spacing and limits. */
  readonly targetHost: string;
  readonly avoid: readonly string[];
  readonly waitMs: number;
  /** Parallel to a slow attempt. Its success moves the session only if the session's own member has failed. */
  readonly hedge?: boolean;
}

/** The pool's grant of a member to one request. The lease counts as load on the member until a report ends the lease. */
export interface Lease {
  readonly id: number;
  readonly member: string;
  readonly source: string;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly exit: string;
  readonly exitIp?: string;
  readonly login?: Login;
  readonly remainingMs?: number;
  readonly session?: string;
  readonly waitedMs: number;
  /** The member never had a success, or this lease tests it after a quarantine: the dialer hedges earlier. */
  readonly doubtful: boolean;
}

export interface ProbeLease extends Lease {
  readonly isNew: boolean;
}

export type UpcomingMember = Pick<
  Lease,
  'member' | 'source' | 'protocol' | 'host' | 'port' | 'login' | 'remainingMs'
>;

export interface UpcomingQuery {
  readonly routing: RoutingOptions;
  readonly count: number;
  isKnown(member: string): boolean;
}

export interface LeaseRefusal {
  readonly code: Extract<
    FaultCode,
    'pool-empty' | 'session-ended' | 'bad-routing' | 'shutting-down' | 'client-gone' | 'site-banned' | 'limit'
  >;
  readonly reason: string;
  readonly retryAfterMs?: number;
  readonly sources: readonly Pick<SourceForecast, 'name' | 'state' | 'reason' | 'nextDrawMs'>[];
}

export interface SourceForecast {
  readonly name: string;
  readonly state: string;
  /** Why the source is in `state`. May contain an error code of the service, but never the text of the service. */
  readonly reason: string;
  readonly nextDrawMs?: number;
  readonly nextMemberMs?: number;
  /** 0 if the source is not suspended, or if waiting clients shorten the suspension. `Infinity`: until the operator acts. */
  readonly suspendedMs: number;
}

/** After `accepted` the lease stays open; the others end it. Reports on ended leases have no effect. */
export type LeaseReport =
  /** `latencyMs` is absent if the attempt reused an idle connection. `late`: another attempt has served the client. */
  | { readonly lease: number; readonly kind: 'accepted'; readonly latencyMs?: number; readonly late?: true }
  /** It counts against the member only if the blame is `member`, `member-for-target` or `unclear`. */
  | {
      readonly lease: number;
      readonly kind: 'failed';
      readonly blame: Blame;
      readonly fault: FaultCode;
    }
  | {
      readonly lease: number;
      readonly kind: 'closed';
      /**
       * If the member closed the connection before the target's first byte. `member-for-target`: the same target answered another member.
       */
      readonly cut: false | Extract<Blame, 'member-for-target' | 'unclear'>;
      readonly mute?: boolean;
      readonly answered?: boolean;
    };

export interface LeaseProvider {
  /**
   * Synchronous if a member is free, which saves a promise. Otherwise the request waits in order of arrival until it gets a member,
   * `waitMs` has passed or the caller cancels it. The promise never rejects.
   */
  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal>;
  cancel(requestId: number): void;
  report(report: LeaseReport): void;
  /**
   * The members that the next requests with these routing options will probably get, in order, without those that the caller knows,
   * that expire too soon or whose source is full. Empty if the pool cannot predict them. Changes nothing.
   */
  upcoming(query: UpcomingQuery): readonly UpcomingMember[];
}

export function isLease(answer: Lease | LeaseRefusal): answer is Lease {
  return !('code' in answer);
}
