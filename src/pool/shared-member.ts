/**
 * Members, sessions and their changes as the replicas of one pool exchange them: plain data that survives JSON. Keys that are
 * `undefined` may be absent.
 *
 * Moments are monotonic ms of the process that holds the data. What carries data to another process converts them.
 */
import type { FaultCode } from '../core/faults.ts';
import type { Demand, DrawnMember } from './drawn-member.ts';
import type { HealthRecord } from './health.ts';
import type { SessionOwner } from './lease.ts';
import type { LeaveReason } from './member.ts';

/** A member of the pool, without what each replica learns about it. Its login contains a secret. */
export interface SharedMember extends Omit<DrawnMember, 'endsAt'> {
  /** Made by the replica that drew the member; the same in every replica. */
  readonly id: string;
  readonly source: string;
  readonly joinedAt: number;
  readonly endsAt: number;
  /** The real end of life is unknown: each success renews `endsAt`. */
  readonly endIsAssumed: boolean;
}

/** Why a member is the last choice, and until when. */
export interface MemberQuarantine {
  readonly untilAt: number;
  readonly fault: FaultCode;
  /** False: no draw replaces the member meanwhile, because only one client failed through it. Default true. */
  readonly replaced?: boolean | undefined;
  /** The faults of the member so far. */
  readonly health: HealthRecord;
}

export interface SharedSession {
  readonly name: string;
  readonly owner: SessionOwner;
  /** Id of its member; absent: it gets one with its next use. */
  readonly member?: string | undefined;
  readonly ttlMs: number;
  /** Its last use that is known. It ends `ttlMs` later. */
  readonly usedAt: number;
  /** Leases so far. */
  readonly uses: number;
}

/** A change of the pool that all its replicas apply. Applied again, it changes nothing. */
export type PoolChange =
  /** A draw brought the member, or brought it again: the later end of life counts. Ignored for a member that was removed. */
  | { readonly kind: 'member.joined'; readonly member: SharedMember }
  /** The member becomes a last choice. */
  | { readonly kind: 'member.quarantined'; readonly member: string; readonly quarantine: MemberQuarantine }
  /** The member accepted an attempt after a quarantine, or for the first time. */
  | { readonly kind: 'member.restored'; readonly member: string }
  /** The member was removed before its end of life. One that ends, or whose source is no longer configured, leaves without a change. */
  | {
      readonly kind: 'member.left';
      readonly member: string;
      readonly reason: Exclude<LeaveReason, 'expired' | 'removed'>;
      readonly fault?: FaultCode | undefined;
      /** Its uses in all replicas, as far as this one knows. */
      readonly uses?: number | undefined;
    }
  /** A client reported that the member is banned by the host, or (`lifted`) that it works again. */
  | {
      readonly kind: 'member.banned';
      readonly member: string;
      readonly host: string;
      readonly lifted: boolean;
    }
  /** The session is on this member now, for this reason. Creates the session where it is missing. */
  | { readonly kind: 'session.moved'; readonly session: SharedSession; readonly reason: string }
  /** The session was removed before its end, by the operator or for a limit. A session that is idle ends without a change. */
  | { readonly kind: 'session.ended'; readonly name: string }
  | MachineChange;

/** What matters to the replicas of one machine only. */
export type MachineChange =
  | Restriction
  /** A replica that probes has to probe the member. */
  | { readonly kind: 'member.suspected'; readonly member: string };

/** What one machine learned about its sources and its network. */
export type Restriction =
  /** Clients may not use the members of the source, for this reason, and its members may have so many open leases in all. */
  | {
      readonly kind: 'source.restricted';
      readonly source: string;
      readonly blockedReason?: string | undefined;
      readonly leaseLimit?: number | undefined;
    }
  /** The network of the machine is down, so faults of members do not count; or it is up again. */
  | { readonly kind: 'evictions.frozen'; readonly on: boolean };

/** How one replica uses a member. */
export interface MemberActivity {
  readonly member: string;
  /** Accepted leases of clients since the last report. */
  readonly uses: number;
  /** Open leases of this replica. */
  readonly openLeases: number;
  /** The client that a target answered last, since the last report. */
  readonly answeredTo?: string | undefined;
  readonly latencyMs?: number | undefined;
  /** For a member whose end of life is assumed: the end after its last success here. The later end counts everywhere. */
  readonly endsAt?: number | undefined;
}

/** How one replica uses a session. */
export interface SessionActivity {
  readonly session: string;
  /** Leases since the last report. */
  readonly uses: number;
  /** Open leases of this replica. */
  readonly openLeases: number;
  /** Its last use; now, while it has an open lease. The later one counts everywhere. */
  readonly usedAt: number;
  readonly ttlMs: number;
}

/** What one replica does. */
export interface PoolActivity {
  /** Clients that wait for a member. */
  readonly waiting: number;
  /** By source; a source without any demand so far may be missing. `lastWantedAt` is finite. */
  readonly demand: Readonly<Record<string, Demand>>;
  /** Members whose numbers changed since the last report. */
  readonly members: readonly MemberActivity[];
  /** Sessions that were used since the last report, and those in use from time to time. */
  readonly sessions: readonly SessionActivity[];
}
