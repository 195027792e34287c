/**
 * Candidates: the members that pass one filter, in the order in which the pool picks them. Each source priority has a tier. Each
 * tier has three buckets of members, and each bucket is a rotation, so a pick needs no search. A member is in the same bucket in
 * all its tiers.
 */
import type { MemberFilter } from './filter.ts';
import type { Bucket, Member, MemberCandidate, PoolSource } from './member.ts';
import {
  FITS,
  type Fit,
  type PickCheck,
  type Rotation,
  RotationEntry,
  SECOND_CHOICE,
  UNFIT,
} from './rotation/rotation.ts';
import type { Turns } from './turns.ts';

/** The first request after a pause of at least this length emits `demand.rose`. */
export const QUIET_MS = 1_000;

/** A member in a rotation. */
export class Candidate extends RotationEntry implements MemberCandidate {
  readonly member: Member;
  readonly tier: Tier;
  /** The rotation that contains it; undefined while the member may not be picked. */
  rotation: Rotation<Candidate> | undefined;

  constructor(member: Member, tier: Tier) {
    super();
    this.member = member;
    this.tier = tier;
  }

  moveTo(bucket: Bucket | undefined): void {
    this.rotation?.remove(this);
    this.rotation = bucket === undefined ? undefined : this.tier.buckets[bucket];
    this.rotation?.add(this);
  }

  used(): void {
    this.rotation?.used(this);
  }

  rankChanged(): void {
    this.rotation?.rankChanged(this);
  }
}

/** The candidates of all sources with the same priority. */
export class Tier {
  readonly sources: readonly PoolSource[];
  readonly buckets: Readonly<Record<Bucket, Rotation<Candidate>>>;
  /** Monotonic moment of the last request that searched this tier. */
  lastWantedAt = Number.NEGATIVE_INFINITY;

  constructor(sources: readonly PoolSource[], buckets: Readonly<Record<Bucket, Rotation<Candidate>>>) {
    this.sources = sources;
    this.buckets = buckets;
  }

  /** Whether the tier has a pickable member that is not quarantined. */
  get canServe(): boolean {
    return this.buckets.fresh.size + this.buckets.expiring.size > 0;
  }
}

/** All candidates for one filter. */
export class Candidates {
  readonly filter: MemberFilter;
  /** In order of priority. */
  readonly tiers: readonly Tier[];
  /** Exit of the last member picked for a client without a session. */
  lastExit = '';
  /** Monotonic moment of the last request with this filter. */
  lastUsedAt = 0;
  /** Clients that wait for a member that passes the filter. */
  waitingCount = 0;
  /** The part of the waiting clients that a newly drawn member could serve. */
  waitingForDrawCount = 0;

  constructor(filter: MemberFilter, tiers: readonly Tier[]) {
    this.filter = filter;
    this.tiers = tiers;
  }

  get isEmpty(): boolean {
    return this.tiers.every((tier) => !tier.canServe && tier.buckets.quarantined.size === 0);
  }

  /**
   * The next member that passes the check, in the first tier that has usable members at all. Later tiers are not searched, even
   * if no member of that tier passes.
   */
  pickOfFirstTier(check: MemberCheck): Member | undefined {
    for (const tier of this.tiers) {
      if (check.now - tier.lastWantedAt > QUIET_MS) check.endedQuiet = true;
      tier.lastWantedAt = check.now;
      if (tier.canServe) return (tier.buckets.fresh.pick(check) ?? tier.buckets.expiring.pick(check))?.member;
    }
    return undefined;
  }

  /** The next member that passes the check. */
  pick(check: MemberCheck): Member | undefined {
    for (const tier of this.tiers) {
      if (check.now - tier.lastWantedAt > QUIET_MS) check.endedQuiet = true;
      tier.lastWantedAt = check.now;
      const candidate = tier.buckets.fresh.pick(check) ?? tier.buckets.expiring.pick(check);
      if (candidate !== undefined) return candidate.member;
    }
    for (const tier of this.tiers) {
      const candidate = tier.buckets.quarantined.pick(check);
      if (candidate !== undefined) return candidate.member;
    }
    return undefined;
  }

  /** The members that the next picks will probably return, in order; at most `count`. */
  upcoming(count: number, now: number): readonly Member[] {
    const tier = this.tiers.find(({ canServe }) => canServe);
    if (tier === undefined) return [];
    const { fresh, expiring } = tier.buckets;
    return (fresh.size > 0 ? fresh : expiring).upcoming(count, now).map(({ member }) => member);
  }
}

/**
 * The check that a pick applies to members for one lease request. It also records why members were rejected. The pool reuses one
 * object for all picks to save the allocation.
 */
export class MemberCheck implements PickCheck<Candidate> {
  now = 0;
  host = '';
  /** Ids of members that must not be picked. */
  avoid: readonly string[] = [];
  minEndsAt = Number.NEGATIVE_INFINITY;
  /** Members with this exit are a second choice. */
  lastExit = '';
  /** Members whose ids are keys here are a second choice. */
  heldBySessions: ReadonlyMap<string, unknown> | undefined;
  /** Set: members whose turn belongs to another process do not fit. */
  turns: Turns | undefined;

  /** A result of the check: the earliest moment at which this process may use a member that fits apart from its turn. */
  turnAt = Number.POSITIVE_INFINITY;
  /** Result: the earliest moment at which a member is no longer excluded by its spacing (`perHostSpacing`). */
  spacedUntil = Number.POSITIVE_INFINITY;
  /** A result of the check: a member was rejected that may fit other requests with the same filter. */
  rejectedForRequest = false;
  /** A result of the check: the pick searched a tier that no request had searched for at least QUIET_MS. */
  endedQuiet = false;

  /** Clears the results of the previous pick. */
  clearResults(): void {
    this.turnAt = Number.POSITIVE_INFINITY;
    this.spacedUntil = Number.POSITIVE_INFINITY;
    this.rejectedForRequest = false;
    this.endedQuiet = false;
  }

  fit({ member }: Candidate): Fit {
    if (member.source.isFull) return UNFIT;
    if (
      member.endsAt < this.minEndsAt ||
      member.bans?.has(this.host) === true ||
      (this.avoid.length > 0 && this.avoid.includes(member.id))
    ) {
      this.rejectedForRequest = true;
      return UNFIT;
    }
    const spacedUntil = member.spacedUntil(this.host);
    if (spacedUntil > this.now) {
      this.rejectedForRequest = true;
      if (spacedUntil < this.spacedUntil) this.spacedUntil = spacedUntil;
      return UNFIT;
    }
    if (this.turns !== undefined && !this.isOwnTurn(member, this.turns)) return UNFIT;
    if (member.exit === this.lastExit) return SECOND_CHOICE;
    return this.heldBySessions?.has(member.id) === true ? SECOND_CHOICE : FITS;
  }

  isOwnTurn(member: Member, turns: Turns): boolean {
    const turnAt = turns.startAt(member, this.host, this.now);
    if (turnAt <= this.now) return true;
    this.rejectedForRequest = true;
    this.turnAt = Math.min(this.turnAt, turnAt);
    return false;
  }
}
