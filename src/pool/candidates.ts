/**
 * Candidates: the members that pass one filter, in the order in which the pool picks them. The members form one tier
 * for each source priority. A tier has three buckets (fresh, expiring, quarantined), and each bucket is a rotation. A
 * member that passes several filters is in the same bucket for each of them.
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
import type { TimeSlots } from './time-slots.ts';

/**
 * If no request has searched a tier for longer than this, the next request that searches the tier emits the event
 * `demand.rose`.
 */
export const QUIET_MS = 1_000;

export class Candidate extends RotationEntry implements MemberCandidate {
  readonly member: Member;
  readonly tier: Tier;
  /** The bucket that contains the member. Undefined while the pool must not pick the member. */
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

export class Candidates {
  readonly filter: MemberFilter;
  /** The tiers, ordered by the priority of their sources, highest first. */
  readonly tiers: readonly Tier[];
  /** Exit address of the last member that was picked for a client without a session. */
  lastExit = '';
  /** Monotonic moment of the last request with this filter. */
  lastUsedAt = 0;
  /** Number of clients that wait for a member that passes the filter. */
  waitingCount = 0;
  /** Number of waiting clients that a newly drawn member could serve. */
  waitingForDrawCount = 0;

  constructor(filter: MemberFilter, tiers: readonly Tier[]) {
    this.filter = filter;
    this.tiers = tiers;
  }

  get isEmpty(): boolean {
    return this.tiers.every((tier) => !tier.canServe && tier.buckets.quarantined.size === 0);
  }

  /**
   * Uses only the first tier with a member that is not quarantined. Returns the next member of this tier that passes
   * the check; undefined if none passes.
   */
  pickOfFirstTier(check: MemberCheck): Member | undefined {
    for (const tier of this.tiers) {
      if (check.now - tier.lastWantedAt > QUIET_MS) check.endedQuiet = true;
      tier.lastWantedAt = check.now;
      if (tier.canServe) return (tier.buckets.fresh.pick(check) ?? tier.buckets.expiring.pick(check))?.member;
    }
    return undefined;
  }

  /** Picks the next member that passes the check, from any tier. Picks a quarantined member only if no other member passes. */
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
 * Decides for one lease request which members a pick may return, and records why it rejected members. The pool reuses one object
 * for all picks to save allocations.
 */
export class MemberCheck implements PickCheck<Candidate> {
  now = 0;
  host = '';
  avoid: readonly string[] = [];
  minEndsAt = Number.NEGATIVE_INFINITY;
  /** The exit address of the previous pick. The pick prefers a member with another exit address. */
  lastExit = '';
  /** The members that sessions use, by member id. The pick prefers other members. */
  heldBySessions: ReadonlyMap<string, unknown> | undefined;
  /**
   * The time slots decide which of several processes may use a member now. If set, a member fits only during a slot of
   * this process.
   */
  slots: TimeSlots | undefined;

  /**
   * Result: the earliest moment at which a time slot of this process starts for a rejected member. Infinity if the pick
   * rejected no member because of its time slot.
   */
  slotAt = Number.POSITIVE_INFINITY;
  /**
   * Result: the earliest moment at which the spacing (`perHostSpacing`) of a rejected member ends. Infinity if the pick
   * rejected no member because of its spacing.
   */
  spacedUntil = Number.POSITIVE_INFINITY;
  /** Result: true if the pick rejected a member that other requests with the same filter may still get. */
  rejectedForRequest = false;
  /** Result: whether the pick searched a tier that no request had searched for longer than QUIET_MS. */
  endedQuiet = false;

  clearResults(): void {
    this.slotAt = Number.POSITIVE_INFINITY;
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
    if (this.slots !== undefined && !this.isOwnSlot(member, this.slots)) return UNFIT;
    if (member.exit === this.lastExit) return SECOND_CHOICE;
    return this.heldBySessions?.has(member.id) === true ? SECOND_CHOICE : FITS;
  }

  isOwnSlot(member: Member, slots: TimeSlots): boolean {
    const slotAt = slots.startAt(member, this.host, this.now);
    if (slotAt <= this.now) return true;
    this.rejectedForRequest = true;
    this.slotAt = Math.min(this.slotAt, slotAt);
    return false;
  }
}
