/**
 * Members and sessions as the replicas of one pool exchange them: plain data that survives JSON. Keys that are `undefined` may
 * be absent.
 *
 * Moments are monotonic ms of the process that holds the data. What carries data to another process converts them.
 */
import type { FaultCode } from '../core/faults.ts';
import type { DrawnMember } from './drawn-member.ts';
import type { HealthRecord } from './health.ts';
import type { SessionOwner } from './lease.ts';

/** A member of the pool, without what each replica learns about it. */
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
