/**
 * A member of the pool: a proxy with an end of life, its counters and its phase. And its source, to which it refers.
 *
 * Only `#move` writes the phase; it refuses every move that `MEMBER_MOVES` does not list. The diagram in
 * docs/architecture.md shows the same table. `Members` decides when a member moves.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { FaultCode } from '../core/faults.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import type { Login } from '../core/login.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Demand, DrawnMember, Facts } from './drawn-member.ts';
import { Health } from './health.ts';
import { hasLatinLetter, type Location } from './locations.ts';
import type { PoolSourceOptions } from './options.ts';
import { SourceEvidence } from './source-evidence.ts';

/** After `failed`, `used-up` and `evicted`, a draw cannot bring the same proxy back; see `DepartedMembers`. */
export type LeaveReason = 'expired' | 'failed' | 'used-up' | 'evicted' | 'removed';

/** Why a member leaves; with the last fault when that was the reason. */
export interface Departure {
  readonly reason: LeaveReason;
  readonly fault?: FaultCode;
}

/** Each phase with its data. Moments are monotonic. */
export type MemberPhase =
  /** Unproven: not for clients until a probe succeeds. */
  | { readonly name: 'joining' }
  | { readonly name: 'ready' }
  /** Excluded until `untilAt`; after that, one attempt decides whether it is ready again. */
  | {
      readonly name: 'quarantined';
      readonly sinceAt: number;
      readonly untilAt: number;
      readonly fault: FaultCode;
      /** A draw replaces it. False when only one client failed through it: that alone must not cost a draw. */
      readonly replaced: boolean;
    }
  /** Gets no new lease; open leases continue. */
  | { readonly name: 'draining'; readonly departure: Departure }
  | { readonly name: 'left' };

export type MemberPhaseName = MemberPhase['name'];

/** The allowed moves. A quarantined member whose trial fails starts a longer quarantine. */
export const MEMBER_MOVES = {
  joining: ['ready', 'draining', 'left'],
  ready: ['quarantined', 'draining', 'left'],
  quarantined: ['ready', 'quarantined', 'draining', 'left'],
  draining: ['left'],
  left: [],
} as const satisfies Record<MemberPhaseName, readonly MemberPhaseName[]>;

/** Latency readings older than this have little weight. */
const LATENCY_MEMORY_MS = 10_000;
/** Weight of a new reading that follows the previous one at once. */
const MIN_READING_WEIGHT = 0.2;
/** Hosts that a member remembers for bans, and for spacing. Bounds the memory. */
const MAX_HOSTS = 1_000;

/**
 * `fresh`: enough life left. `expiring`: picked only when the tier has no fresh member that fits. `quarantined`: picked
 * only when no tier has another member that fits.
 */
export type Bucket = 'fresh' | 'expiring' | 'quarantined';

/** The member in one tier of the candidates. `Candidate` implements it; the interface keeps this file free of candidates. */
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

/** What never changes about a member. */
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
  /** Monotonic; for a member from a snapshot this can be before the start of the process. */
  readonly joinedAt: number;
  readonly health = new Health();

  exitIp: string | undefined;
  /** Its own credentials, in place of those of its source. */
  login: Login | undefined;
  facts: Facts | undefined;
  /** Monotonic moment at which its life ends. */
  endsAt = 0;
  /** Its real end is unknown: `endsAt` is an assumption that each success renews. */
  endIsAssumed = false;

  /** Open leases, probes included, and leases of other replicas where the pool counts them. */
  openLeases = 0;
  /** Open leases of clients that are not accepted yet. */
  pendingUses = 0;
  /** Accepted leases of clients, those in other replicas included. */
  uses = 0;
  /** Those of `uses` that other replicas do not know yet. */
  unsharedUses = 0;
  /** The client that a target answered through it, as long as other replicas do not know. */
  unsharedAnswer: string | undefined;
  /** The lease that tries the member out: a probe, or a client's lease on a quarantined member. At most one at a time. */
  trialLease: number | undefined;
  /** It failed while no member of its source worked, and a draw replaced it. */
  onTrial = false;
  /** Monotonic moment of the last request for a probe while no member of its source worked. */
  undecidedAt = Number.NEGATIVE_INFINITY;
  /** Monotonic moment of the last accepted attempt; undefined before the first. */
  lastSuccessAt: number | undefined;
  /** Decaying mean; undefined before the first reading. */
  latencyMs: number | undefined;
  #latencyAt = 0;

  /** The keys are the hosts for which clients banned the member. */
  bans: BoundedMap<string, true> | undefined;
  /** Monotonic moment from which the member may be used again for a host, by host (`perHostSpacing`). */
  #spacing: BoundedMap<string, number> | undefined;

  // Written by `CandidateIndex` only.
  bucket: Bucket | undefined;
  readonly candidates: MemberCandidate[] = [];
  /** The end of life minus the safety margin. */
  readonly usableUntil = new MemberMoment(this);
  /** The next moment at which time alone moves the member to another bucket or removes it. */
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

  /** Makes it ready, after an accepted attempt. */
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

  /** Ends the draining, after the last open lease. @returns why the member left. */
  finishDraining(): Departure {
    if (this.#phase.name !== 'draining') throw new TypeError(`member ${this.id} is not draining`);
    const { departure } = this.#phase;
    this.#move({ name: 'left' });
    return departure;
  }

  /** Lets a quarantined member be tried from now on. */
  endQuarantine(now: number): void {
    if (this.#phase.name === 'quarantined' && this.#phase.untilAt > now) {
      this.#move({ ...this.#phase, untilAt: now });
    }
  }

  /** Records an accepted attempt. `latencyMs` is undefined when an idle connection was reused. */
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

  /** Latency for comparison: with age, a reading approaches the typical latency of the source. */
  expectedLatencyMs(now: number): number {
    const { typicalLatencyMs } = this.source;
    if (this.latencyMs === undefined) return typicalLatencyMs;
    const remaining = Math.exp((this.#latencyAt - now) / (6 * LATENCY_MEMORY_MS));
    return typicalLatencyMs + (this.latencyMs - typicalLatencyMs) * remaining;
  }

  /** Monotonic moment from which the spacing allows a use for `host`; 0 when it allows one now. */
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

/** Weight of a new reading in a source's typical latency. */
const LATENCY_WEIGHT = 0.05;
/** After this time an event has about a third of its weight. */
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
  /** Members that are not draining, by the moment at which they stop being usable. */
  readonly expiries = new Heap<MemberMoment>();
  readonly quarantined = new Set<Member>();
  /** Members that noria is going to probe, because their clients prove too little. */
  readonly suspected = new Set<Member>();
  /** Open leases on its members. */
  openLeases = 0;
  /** Maximum of open leases on its members. */
  leaseLimit = Number.POSITIVE_INFINITY;
  /** Why clients may not use its members; undefined when they may. */
  blockedReason: string | undefined;
  /** Monotonic moment of the last demand that no tier recorded: of a session, or of a tier that no longer exists. */
  lastWantedAt = Number.NEGATIVE_INFINITY;
  /** What other replicas need. */
  demandElsewhere: Demand | undefined;
  /** Members used up, by `maxUsesPerMember` or by spacing. */
  readonly usedUp = new DecayingRate();
  /** Decaying mean over all its members; 0 before the first reading. */
  typicalLatencyMs = 0;

  readonly evidence = new SourceEvidence();

  /** The protocols of its members so far. */
  readonly protocols = new Set<MemberProtocol>();
  /** The longest remaining life with which a member joined; 0 before the first. */
  longestLifeMs = 0;
  /** Members with a location so far, and whether one of the locations had a Latin letter. */
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

  /** A limit of `factor` of the current limit, or of the open leases when there is no limit. At least 1. */
  limitedTo(factor: number): number {
    const current = this.leaseLimit === Number.POSITIVE_INFINITY ? this.openLeases : this.leaseLimit;
    return Math.max(1, Math.floor(current * factor));
  }

  /** Records what members of this source are like, from one that lives for `lifeMs`. */
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
