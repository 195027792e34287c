/**
 * The members that pass one filter, in the order in which the pool picks them: a tier for each source priority, with three buckets (fresh,
 * expiring, quarantined), each of them a rotation. `CandidateIndex` keeps one list for each filter that clients used recently, moves members
 * between the buckets, and owns one timer for the next moment at which time moves one.
 */
import { type Clock, EarliestTimer } from '../core/clock.ts';
import { Heap } from '../core/heap.ts';
import type { Random } from '../core/random.ts';
import { ANY_MEMBER, type MemberFilter, passesFilter } from './filter.ts';
import { type Bucket, Candidate, type Member, type MemberMoment, type PoolSource, Tier } from './member.ts';
import { type PoolSettings, type ProcessPart, partOfProcess, type Strategy } from './options.ts';
import {
  type PickCheck,
  RandomRotation,
  RankedRotation,
  type Rotation,
  RoundRobin,
  ShuffleRotation,
} from './rotations.ts';

/** If no request has searched a tier for longer than this, the next one that does emits the event `demand.rose`. */
export const QUIET_MS = 1_000;

const MAX_LISTS = 256;

/** A rank of open leases times USE_RANGE, plus `lastUse`, is exact in a double. */
const USE_RANGE = 2 ** 32;

const ROTATIONS: Record<Strategy, (random: Random) => Rotation<Candidate>> = {
  'round-robin': () => new RoundRobin(),
  random: (random) => new RandomRotation(random),
  shuffle: (random) => new ShuffleRotation(random),
  'least-connections': () => new RankedRotation(byOpenLeases),
  'longest-lived': () => new RankedRotation(({ member }) => -member.endsAt, false),
  fastest: (random) => new RandomRotation(random, ({ member }, now) => member.expectedLatencyMs(now)),
};

interface Held {
  readonly settings: PoolSettings;
  readonly sources: ReadonlyMap<string, PoolSource>;
  readonly byKey: ReadonlyMap<string, Member>;
}

/** A check that also learns whether the pick searched a tier that no request had searched for longer than QUIET_MS. */
export interface CandidateCheck extends PickCheck<Candidate> {
  endedQuiet: boolean;
}

export class Candidates {
  readonly filter: MemberFilter;
  readonly tiers: readonly Tier[];
  lastExit = '';
  lastUsedAt = 0;
  waitingCount = 0;
  waitingForDrawCount = 0;

  constructor(filter: MemberFilter, tiers: readonly Tier[]) {
    this.filter = filter;
    this.tiers = tiers;
  }

  pick(check: CandidateCheck): Member | undefined {
    for (const tier of this.tiers) {
      const candidate = search(tier, check);
      if (candidate !== undefined) return candidate.member;
    }
    for (const tier of this.tiers) {
      const candidate = tier.buckets.quarantined.pick(check);
      if (candidate !== undefined) return candidate.member;
    }
    return undefined;
  }

  /** Only from the first tier with a member that is not quarantined. */
  pickOfFirstTier(check: CandidateCheck): Member | undefined {
    for (const tier of this.tiers) {
      const candidate = search(tier, check);
      if (tier.canServe) return candidate?.member;
    }
    return undefined;
  }

  upcoming(count: number, now: number): readonly Member[] {
    const tier = this.tiers.find(({ canServe }) => canServe);
    if (tier === undefined) return [];
    const { fresh, expiring } = tier.buckets;
    return (fresh.size > 0 ? fresh : expiring).upcoming(count, now).map(({ member }) => member);
  }
}

export class CandidateIndex {
  /** True when a member may have become free. The pool sets it to false, and then gives free members to the waiting clients. */
  membersFreed = false;
  /** After a change, the caller must call `update` for each member. */
  part: ProcessPart = { count: 1, index: 0, sharesClock: true, changedAt: 0 };

  readonly #random: Random;
  readonly lists = new Map<string, Candidates>();
  readonly #changes = new Heap<MemberMoment>();
  readonly #timer: EarliestTimer;
  readonly #held: Held;
  #anyMember = new Candidates(ANY_MEMBER, []);

  /** @param onDue - called when the timer fires; must update or remove every member that `due` returns. */
  constructor(clock: Clock, random: Random, held: Held, onDue: () => void) {
    this.#random = random;
    this.#held = held;
    this.#timer = new EarliestTimer(clock, () => {
      onDue();
      this.#timer.armBy(this.#changes.firstKey);
    });
  }

  find(filter: MemberFilter, now: number): Candidates {
    if (filter === ANY_MEMBER) return this.#anyMember;
    const key = keyOfFilter(filter);
    let list = this.lists.get(key);
    if (list === undefined) {
      this.#makeRoom();
      list = this.#make(filter);
      this.lists.set(key, list);
      for (const member of this.#held.byKey.values()) addToList(list, member);
    }
    list.lastUsedAt = now;
    return list;
  }

  /** Call it when settings or sources change. Lists that `find` returned earlier are then invalid. */
  rebuild(): void {
    for (const list of this.lists.values()) saveLastWanted(list);
    this.lists.clear();
    this.#anyMember = this.#make(ANY_MEMBER);
    this.lists.set(keyOfFilter(ANY_MEMBER), this.#anyMember);
    for (const member of this.#held.byKey.values()) {
      member.candidates.length = 0;
      addToList(this.#anyMember, member);
    }
  }

  due(now: number): Member | undefined {
    return this.#changes.firstKey <= now ? this.#changes.first?.member : undefined;
  }

  add(member: Member, now: number): void {
    for (const list of this.lists.values()) addToList(list, member);
    this.update(member, now);
  }

  remove(member: Member): void {
    this.#changes.remove(member.nextChange);
    this.#move(member, undefined);
    member.candidates.length = 0;
  }

  setEnd(member: Member, endsAt: number): void {
    member.endsAt = endsAt;
    member.source.expiries.update(member.usableUntil, endsAt - this.#held.settings.safetyMarginMs);
    for (const candidate of member.candidates) candidate.rotation?.rankChanged(candidate);
  }

  leased(member: Member, now: number): void {
    for (const candidate of member.candidates) candidate.rotation?.used(candidate);
    this.update(member, now);
  }

  leaseEnded(member: Member, now: number): void {
    for (const candidate of member.candidates) candidate.rotation?.rankChanged(candidate);
    if (member.source.leaseLimit !== Number.POSITIVE_INFINITY) this.membersFreed = true;
    this.update(member, now);
  }

  update(member: Member, now: number): void {
    const { name } = member.phase;
    if (name === 'draining' || name === 'left') return; // draining and departed members are in no list
    const bucket = this.#bucketOf(member, now);
    if (bucket !== member.bucket) {
      this.#move(member, bucket);
      if (bucket !== undefined) this.membersFreed = true;
    }
    const { phase, usableUntil } = member;
    const rests = phase.name === 'quarantined' && phase.untilAt > now;
    const movesAt = rests ? phase.untilAt : member.endsAt - this.#held.settings.minRemainingMs;
    const changesAt = movesAt > now ? Math.min(movesAt, usableUntil.key) : usableUntil.key;
    if (changesAt === member.nextChange.key) return;
    this.#changes.update(member.nextChange, changesAt);
    this.#timer.armBy(changesAt);
  }

  close(): void {
    this.#timer.disarm();
  }

  #bucketOf(member: Member, now: number): Bucket | undefined {
    const { phase, source } = member;
    if (phase.name !== 'ready' && phase.name !== 'quarantined') return undefined;
    if (source.blockedReason !== undefined) return undefined;
    const { maxTunnelsPerMember: tunnels, maxUsesPerMember: uses } = this.#held.settings.rotation;
    if (tunnels > 0 && member.openLeases >= partOfProcess(tunnels, this.part)) return undefined;
    if (uses > 0 && member.uses + member.pendingUses >= uses) return undefined;
    if (phase.name === 'quarantined') {
      if (member.trialLease !== undefined) return undefined; // only one lease at a time may test the member
      if (phase.untilAt > now) return 'quarantined';
    }
    return member.endsAt - this.#held.settings.minRemainingMs > now ? 'fresh' : 'expiring';
  }

  #move(member: Member, bucket: Bucket | undefined): void {
    member.bucket = bucket;
    for (const candidate of member.candidates) candidate.moveTo(bucket);
  }

  #make(filter: MemberFilter): Candidates {
    const { sources, settings } = this.#held;
    const fitting = [...sources.values()].filter(
      ({ name }) => filter.source === undefined || filter.source === name,
    );
    const byPriority = Map.groupBy(fitting, ({ options }) => options.priority);
    const makeRotation = ROTATIONS[settings.rotation.strategy];
    const tiers = [...byPriority]
      .sort(([one], [other]) => one - other)
      .map(([, equals]) => {
        const fresh = makeRotation(this.#random);
        const expiring = makeRotation(this.#random);
        return new Tier(equals, { fresh, expiring, quarantined: new RoundRobin() });
      });
    return new Candidates(filter, tiers);
  }

  #makeRoom(): void {
    if (this.lists.size < MAX_LISTS) return;
    let oldest: [string, Candidates] | undefined;
    for (const entry of this.lists) {
      const list = entry[1];
      if (list === this.#anyMember || list.waitingCount > 0) continue;
      if (oldest === undefined || list.lastUsedAt < oldest[1].lastUsedAt) oldest = entry;
    }
    if (oldest === undefined) return;
    const [key, list] = oldest;
    this.lists.delete(key);
    saveLastWanted(list);
    for (const tier of list.tiers) {
      for (const source of tier.sources) {
        for (const { candidates } of source.members) {
          const index = candidates.findIndex((candidate) => candidate.tier === tier);
          if (index >= 0) candidates.splice(index, 1);
        }
      }
    }
  }
}

function search(tier: Tier, check: CandidateCheck): Candidate | undefined {
  if (check.now - tier.lastWantedAt > QUIET_MS) check.endedQuiet = true;
  tier.lastWantedAt = check.now;
  return tier.buckets.fresh.pick(check) ?? tier.buckets.expiring.pick(check);
}

function byOpenLeases({ member }: Candidate, lastUse: number): number {
  return member.openLeases * USE_RANGE + (lastUse % USE_RANGE);
}

function keyOfFilter({ source, protocol, location }: MemberFilter): string {
  return `${source ?? ''}|${protocol ?? ''}|${location ?? ''}`;
}

function addToList(list: Candidates, member: Member): void {
  const tier = list.tiers.find(({ sources }) => sources.includes(member.source));
  if (tier === undefined || !passesFilter(member, list.filter)) return;
  const candidate = new Candidate(member, tier);
  member.candidates.push(candidate);
  candidate.moveTo(member.bucket);
}

/** Call it before the list is removed: otherwise refill would not know of the demand that only the list records. */
function saveLastWanted({ tiers: [first] }: Candidates): void {
  if (first === undefined) return;
  for (const source of first.sources) source.lastWantedAt = Math.max(source.lastWantedAt, first.lastWantedAt);
}
