/** One session: the name under which a client stays on one member. */

import type { HeapNode } from '../core/heap.ts';
import { ANY_MEMBER, type MemberFilter } from './filter.ts';
import type { SessionOwner } from './lease.ts';

/** How old the record of a session in use may become, as a share of its TTL. */
export const REFRESH_SHARE = 1 / 4;

/** One session. `key` is the monotonic moment at which the timer looks at it next. */
export class Session implements HeapNode {
  readonly name: string;
  readonly owner: SessionOwner;
  ttlMs: number;
  /** Id of its member; undefined until the next pick when it has none. */
  member: string | undefined;
  /** Id of the member whose hedge last won for it. It moves there when its own member fails. */
  fallback: string | undefined;
  /** Its member failed an attempt, and has not accepted one since. */
  memberFailed = false;
  /** The filter of its last request. */
  filter: MemberFilter = ANY_MEMBER;
  /** Monotonic moment of its last use. */
  usedAt: number;
  /** Monotonic moment at which its member was last picked for it or accepted an attempt. */
  confirmedAt = Number.NEGATIVE_INFINITY;
  /** Leases so far, those in other replicas included. */
  uses = 0;
  /** Those of `uses` that other replicas do not know yet. */
  unsharedUses = 0;
  /** Open leases, and those of other replicas where the pool counts them; with one, the session is not idle. */
  openLeases = 0;
  /** Monotonic moment of its last record in the journal. */
  recordedAt = Number.NEGATIVE_INFINITY;
  /** Its place in the order of use of its client's sessions. */
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

  /** Monotonic moment at which it ends without another use. */
  get endsAt(): number {
    return this.usedAt + this.ttlMs;
  }

  /** When to look at it again: when it ends, and often enough to keep its record fresh. */
  nextCheckAt(now: number): number {
    return Math.min(
      this.openLeases > 0 ? Number.POSITIVE_INFINITY : this.endsAt,
      now + this.ttlMs * REFRESH_SHARE,
    );
  }
}

/** A session in the order of use. `key` is a moment at which it was used, perhaps not the last one. */
export class SessionUse implements HeapNode {
  readonly session: Session;
  key = 0;
  heapIndex = -1;

  constructor(session: Session) {
    this.session = session;
  }
}
