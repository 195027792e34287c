/**
 * A member of the pool: a proxy with an end of life, counters and a phase. And `PoolSource`, the source of members. Only `#move`
 * writes the phase, and it rejects each move that MEMBER_MOVES does not list. `Members` decides when a member moves.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import type { Login } from '../core/login.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Demand, DrawnMember, Facts } from './drawn-member.ts';
import { Health } from './health.ts';
import { hasLatinLetter, type Location } from './locations.ts';
import { type Departure, MEMBER_MOVES, type MemberPhase, type MemberPhaseName } from './member-phase.ts';
import type { PoolSourceOptions } from './options.ts';
import { SourceEvidence } from './source-evidence.ts';

/** Latency readings older than this have little weight. */
const LATENCY_MEMORY_MS = 10_000;
/** Weight of a new latency reading that immediately follows another one. */
const MIN_READING_WEIGHT = 0.2;
/** The most hosts that a member remembers for bans, and for spacing. */
const MAX_HOSTS = 1_000;

/**
 * `fresh`: has enough life left. `expiring`: picked only when no fresh member of the tier fits. `quarantined`: picked only when
 * no other member of any tier fits.
 */
export type Bucket = 'fresh' | 'expiring' | 'quarantined';

/** A member in one tier of the candidates. `Candidate` implements it; the interface avoids an import of candidates.ts. */
export interface MemberCandidate {
  readonly tier: object;
  moveTo(bucket: Bucket | undefined): void;
  used(): void;
  rankChanged(): void;
}

/** A moment in a member's life, as a node of a heap. */
export class MemberMoment implements HeapNode {
  readonly member: Member;
  key = Number.POSITIVE_INFINITY;
  heapIndex = -1;

  constructor(member: Member) {
    this.member = member;
  }
}

/** The facts of a member that never change. */
export interface MemberIdentity {
  readonly id: string;
  readonly source: PoolSource;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly location: Location;
}

/** A proxy while the pool holds it. */
export class Member implements MemberIdentity {
  readonly id: string;
  readonly source: PoolSource;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly location: Location;
  /** Monotonic. Before the start of the process for a member from an earlier snapshot. */
  readonly joinedAt: number;
  readonly health = new Health();

  exitIp: string | undefined;
  /** Replaces the credentials of its source. */
  login: Login | undefined;
  facts: Facts | undefined;
  /** Monotonic moment at which its life ends. */
  endsAt = 0;
  /** `endsAt` is only an assumption, which each success renews, because the service did not report an end of life. */
  endIsAssumed = false;

  /** Open leases, including those of probes, and those of other replicas if the pool counts them. */
  openLeases = 0;
  /** Open leases of clients that the member has not accepted yet. */
  pendingUses = 0;
  /** Accepted leases of clients, in all replicas. */
  uses = 0;
  /** The part of `uses` that other replicas do not know yet. */
  unsharedUses = 0;
  /** The last client that a target answered through this member; undefined once other replicas know it. */
  unsharedAnswer: string | undefined;
  /** Id of the lease that tests the member: a probe, or a client's lease on a quarantined member. At most one at a time. */
  trialLease: number | undefined;
  /** The member failed while no member of its source worked. A draw replaces it, to see whether new members work. */
  onTrial = false;
  /** Monotonic moment of the last probe requested while no member of its source worked. */
  undecidedAt = Number.NEGATIVE_INFINITY;
  /** Monotonic moment of the last accepted attempt; undefined before the first. */
  lastSuccessAt: number | undefined;
  /** Moving average; undefined before the first reading. */
  latencyMs: number | undefined;
  #latencyAt = 0;

  /** Keys: the hosts for which clients banned the member. */
  bans: BoundedMap<string, true> | undefined;
  /** Monotonic moment from which the member may be used again for a host, by host (`perHostSpacing`). */
  #spacing: BoundedMap<string, number> | undefined;

  // Written by `CandidateIndex` only.
  bucket: Bucket | undefined;
  readonly candidates: MemberCandidate[] = [];
  /** The end of life minus the safety margin. */
  readonly usableUntil = new MemberMoment(this);
  /** The next moment at which time alone removes the member or changes its bucket. */
  readonly nextChange = new MemberMoment(this);

  #phase: MemberPhase;

  constructor(identity: MemberIdentity, unproven: boolean, joinedAt: number) {
    this.id = identity.id;
    this.source = identity.source;
    this.protocol = identity.protocol;
    this.host = identity.host;
    this.port = identity.port;
    this.location = identity.location;
    this.joinedAt = joinedAt;
    this.#phase = { name: unproven ? 'joining' : 'ready' };
  }

  get phase(): MemberPhase {
    return this.#phase;
  }

  /** The address that targets see: the exit IP when it is known, else the member's own host. */
  get exit(): string {
    return this.exitIp ?? this.host;
  }

  /** Sets the phase to ready, after an accepted attempt. */
  admit(): void {
    this.trialLease = undefined;
    this.#move({ name: 'ready' });
  }

  quarantine(quarantine: Omit<Extract<MemberPhase, { name: 'quarantined' }>, 'name'>): void {
    this.trialLease = undefined;
    this.#move({ name: 'quarantined', ...quarantine });
  }

  /** Drains it; without an open lease it leaves at once. */
  leave(departure: Departure): void {
    this.#move(this.openLeases > 0 ? { name: 'draining', departure } : { name: 'left' });
  }

  /**
   * Ends the draining when the last lease has ended.
   * @returns why the member left.
   */
  finishDraining(): Departure {
    if (this.#phase.name !== 'draining') throw new TypeError(`member ${this.id} is not draining`);
    const { departure } = this.#phase;
    this.#move({ name: 'left' });
    return departure;
  }

  /** Ends the wait of a quarantined member: the next attempt may try it. */
  endQuarantine(now: number): void {
    if (this.#phase.name === 'quarantined' && this.#phase.untilAt > now) {
      this.#move({ ...this.#phase, untilAt: now });
    }
  }

  /** Records an accepted attempt. `latencyMs` is undefined if the attempt reused an idle connection. */
  recordSuccess(now: number, latencyMs: number | undefined): void {
    this.lastSuccessAt = now;
    this.health.accepted(now);
    if (latencyMs === undefined) return;
    const weight =
      this.latencyMs === undefined
        ? 1
        : Math.max(MIN_READING_WEIGHT, 1 - Math.exp((this.#latencyAt - now) / LATENCY_MEMORY_MS));
    this.latencyMs = (this.latencyMs ?? 0) * (1 - weight) + latencyMs * weight;
    this.#latencyAt = now;
  }

  /** Latency for comparisons between members. An old reading counts less, and the source's average more. */
  expectedLatencyMs(now: number): number {
    const { typicalLatencyMs } = this.source;
    if (this.latencyMs === undefined) return typicalLatencyMs;
    const remaining = Math.exp((this.#latencyAt - now) / (6 * LATENCY_MEMORY_MS));
    return typicalLatencyMs + (this.latencyMs - typicalLatencyMs) * remaining;
  }

  /** Monotonic moment from which the spacing allows a use for `host`; 0 if it allows one now. */
  spacedUntil(host: string): number {
    return this.#spacing?.get(host) ?? 0;
  }

  /** Keeps the member from further uses for `host` until `untilAt`. */
  space(host: string, untilAt: number, now: number): void {
    this.#spacing ??= new BoundedMap(MAX_HOSTS);
    this.#spacing.set(host, untilAt);
    this.#spacing.deleteOldestWhile((otherUntilAt) => otherUntilAt <= now);
  }

  ban(host: string): void {
    this.bans ??= new BoundedMap(MAX_HOSTS);
    this.bans.set(host, true);
  }

  #move(next: MemberPhase): void {
    const allowed: readonly MemberPhaseName[] = MEMBER_MOVES[this.#phase.name];
    if (!allowed.includes(next.name)) {
      throw new TypeError(`member ${this.id}: ${this.#phase.name} -> ${next.name} is not a move`);
    }
    this.source.counts[this.#phase.name] -= 1;
    this.source.counts[next.name] += 1;
    this.#phase = next;
  }
}

/** Weight of a new reading in the source's average latency. */
const LATENCY_WEIGHT = 0.05;
/** The time constant of the decay: after it, an event has about a third of its weight. */
const RATE_MEMORY_MS = 30_000;

/** Events per second, with exponential decay. */
class DecayingRate {
  #amount = 0;
  #updatedAt = 0;

  add(amount: number, now: number): void {
    this.#amount = this.#decayed(now) + amount;
    this.#updatedAt = now;
  }

  perSecond(now: number): number {
    return (this.#decayed(now) * 1_000) / RATE_MEMORY_MS;
  }

  #decayed(now: number): number {
    return this.#amount === 0 ? 0 : this.#amount * Math.exp((this.#updatedAt - now) / RATE_MEMORY_MS);
  }
}

/** One source's part of the pool. */
export class PoolSource {
  /** Replaced by a reload; the name stays the same. */
  options: PoolSourceOptions;
  readonly members = new Set<Member>();
  /** Members by phase; `left` counts all that ever left. */
  readonly counts: Record<MemberPhaseName, number> = {
    joining: 0,
    ready: 0,
    quarantined: 0,
    draining: 0,
    left: 0,
  };
  /** Members that do not drain, ordered by the moment at which they stop being usable. */
  readonly expiries = new Heap<MemberMoment>();
  readonly quarantined = new Set<Member>();
  /** Members waiting for a probe, because the evidence against them comes from too few clients. */
  readonly suspected = new Set<Member>();
  /** Open leases on its members. */
  openLeases = 0;
  /** Limit of open leases on its members. */
  leaseLimit = Number.POSITIVE_INFINITY;
  /** Why clients may not use its members; undefined when they may. */
  blockedReason: string | undefined;
  /** Monotonic moment of the last demand that no tier records: that of a session, or of a tier that no longer exists. */
  lastWantedAt = Number.NEGATIVE_INFINITY;
  /** The demand of the other replicas. */
  demandElsewhere: Demand | undefined;
  /** Rate of members used up, by `maxUsesPerMember` or by spacing. */
  readonly usedUp = new DecayingRate();
  /** Average latency of all its members; 0 before the first reading. */
  typicalLatencyMs = 0;

  readonly evidence = new SourceEvidence();

  /** The protocols of all members that it ever had. */
  readonly protocols = new Set<MemberProtocol>();
  /** The longest life with which a member joined; 0 before the first member. */
  longestLifeMs = 0;
  /** How many members with a location it ever had, and whether a location had a Latin letter. */
  locatedCount = 0;
  hasLatinLocation = false;

  constructor(options: PoolSourceOptions) {
    this.options = options;
  }

  get name(): string {
    return this.options.name;
  }

  /** Whether another lease would exceed the limit. */
  get isFull(): boolean {
    return this.openLeases >= this.leaseLimit;
  }

  /** The current limit multiplied by `factor`; without a limit, the open leases multiplied by `factor`. At least 1. */
  limitedTo(factor: number): number {
    const current = this.leaseLimit === Number.POSITIVE_INFINITY ? this.openLeases : this.leaseLimit;
    return Math.max(1, Math.floor(current * factor));
  }

  /**
   * Remembers the properties of a member of this source.
   * @param lifeMs - its life when it joined.
   */
  learn({ protocol, location = '' }: DrawnMember, lifeMs: number): void {
    this.protocols.add(protocol);
    this.longestLifeMs = Math.max(this.longestLifeMs, lifeMs);
    if (location === '') return;
    this.locatedCount += 1;
    this.hasLatinLocation ||= hasLatinLetter(location);
  }

  learnLatency(latencyMs: number): void {
    if (this.typicalLatencyMs === 0) this.typicalLatencyMs = latencyMs;
    else this.typicalLatencyMs += (latencyMs - this.typicalLatencyMs) * LATENCY_WEIGHT;
  }
}
