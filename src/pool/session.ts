/** One session: the name under which a client stays on one member. */

import type { HeapNode } from '../core/heap.ts';
import { ANY_MEMBER, type MemberFilter } from './filter.ts';
import type { SessionOwner } from './lease.ts';

/** The maximum age of the journal record of a session in use, as a share of the session's TTL. */
export const REFRESH_SHARE = 1 / 4;

/** `key` is the monotonic moment at which the timer checks the session next. */
export class Session implements HeapNode {
  readonly name: string;
  readonly owner: SessionOwner;
  ttlMs: number;
  /** Id of the session's member. If undefined, the next pick gives the session a member. */
  member: string | undefined;
  /**
   * Id of the member through which a hedge last won for this session. If the session's own member fails, the session
   * moves to this member.
   */
  fallback: string | undefined;
  /** Whether the session's member failed an attempt and has accepted no attempt since. */
  memberFailed = false;
  filter: MemberFilter = ANY_MEMBER;
  usedAt: number;
  /**
   * The later of two monotonic moments: the moment at which the session got its member, and the moment at which this member last
   * accepted an attempt.
   */
  confirmedAt = Number.NEGATIVE_INFINITY;
  /** Number of leases so far, in all replicas. */
  uses = 0;
  /**
   * Number of open leases. Includes the open leases of other replicas if `SharingOptions.countsLeases` is set. A
   * session with open leases is not idle.
   */
  openLeases = 0;
  recordedAt = Number.NEGATIVE_INFINITY;
  readonly use = new SessionUse(this);
  key: number;
  heapIndex = -1;

  constructor(name: string, owner: SessionOwner, { ttlMs, usedAt }: { ttlMs: number; usedAt: number }) {
    this.name = name;
    this.owner = owner;
    this.ttlMs = ttlMs;
    this.usedAt = usedAt;
    this.key = this.nextCheckAt(usedAt);
  }

  /** Monotonic moment at which the session ends unless it is used again. */
  get endsAt(): number {
    return this.usedAt + this.ttlMs;
  }

  /** Monotonic moment at which the timer must check the session again: at its end, or earlier to renew its journal record. */
  nextCheckAt(now: number): number {
    return Math.min(
      this.openLeases > 0 ? Number.POSITIVE_INFINITY : this.endsAt,
      now + this.ttlMs * REFRESH_SHARE,
    );
  }
}

/**
 * A node of the heap that sorts sessions by last use. `key` may be older than the session's last use:
 * `SessionClients` corrects it before it chooses a session to end.
 */
export class SessionUse implements HeapNode {
  readonly session: Session;
  key = 0;
  heapIndex = -1;

  constructor(session: Session) {
    this.session = session;
  }
}
