/**
 * `Member`: a proxy in the pool. `PoolSource`: the members of one source, and what they share. `Candidate`: a member in one tier of a
 * candidate list. `Members` decides when a member moves.
 */
import { MINUTE_MS } from '../core/duration.ts';
import type { FaultCode } from '../core/faults.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';
import type { Demand, DrawnMember, Facts } from './drawn-member.ts';
import { hasLatinLetter, type Location } from './locations.ts';
import type { PoolSettings, PoolSourceOptions } from './options.ts';
import { type Rotation, RotationEntry } from './rotations.ts';
import { type Pair, RequestRate, type Site } from './sites.ts';

/** `failed`, `used-up` and `evicted` bar the proxy until the end of its life (see `Members.departed`). */
export type LeaveReason = 'expired' | 'failed' | 'used-up' | 'evicted' | 'removed';

export interface Departure {
  readonly reason: LeaveReason;
  readonly fault?: FaultCode;
}

export type MemberPhase =
  | { readonly name: 'joining' }
  | { readonly name: 'ready' }
  /** Until `untilAt`, picked only if no other member fits. After that, one attempt decides whether the member is ready again. */
  | {
      readonly name: 'quarantined';
      readonly sinceAt: number;
      readonly untilAt: number;
      readonly fault: FaultCode;
      /** False if only one client failed through the member: one client must not cause draws. */
      readonly replaced: boolean;
    }
  | { readonly name: 'draining'; readonly departure: Departure }
  | { readonly name: 'left' };

export type MemberPhaseName = MemberPhase['name'];
export type Quarantine = Extract<MemberPhase, { name: 'quarantined' }>;

/** The allowed moves. From `quarantined` to `quarantined`: an attempt failed, so a longer quarantine starts. */
export const MEMBER_MOVES = {
  joining: ['ready', 'draining', 'left'],
  ready: ['quarantined', 'draining', 'left'],
  quarantined: ['ready', 'quarantined', 'draining', 'left'],
  draining: ['left'],
  left: [],
} as const satisfies Record<MemberPhaseName, readonly MemberPhaseName[]>;

const LATENCY_WEIGHT = 0.05;
const LATENCY_MEMORY_MS = 10_000;
/** Even if the reading immediately follows another one. */
const MIN_READING_WEIGHT = 0.2;

/**
 * `fresh`: enough life left. `expiring`: only if no fresh member of the tier fits. `quarantined`: only if none of any tier fits.
 */
export type Bucket = 'fresh' | 'expiring' | 'quarantined';

export class Candidate extends RotationEntry {
  readonly member: Member;
  readonly tier: Tier;
  rotation: Rotation<Candidate> | undefined;

  constructor(member: Member, tier: Tier) {
    super();
    this.member = member;
    this.tier = tier;
  }

  moveTo(bucket: Bucket | undefined): void {
    this.rotation?.remove(this);
    this.rotation = bucket && this.tier.buckets[bucket];
    this.rotation?.add(this);
  }
}

export class Tier {
  readonly sources: readonly PoolSource[];
  readonly buckets: Readonly<Record<Bucket, Rotation<Candidate>>>;
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

export interface MemberMoment extends HeapNode {
  readonly member: Member;
}

/**
 * An end of life that the service reported replaces an assumed one, and of two of the same kind the later one applies: so the order in
 * which replicas learn ends does not matter.
 */
export function replacesEnd(
  known: Pick<Member, 'endsAt' | 'endIsAssumed'>,
  { endsAt, endIsAssumed }: Pick<Member, 'endsAt' | 'endIsAssumed'>,
): boolean {
  return endIsAssumed === known.endIsAssumed ? endsAt > known.endsAt : known.endIsAssumed;
}

export class Member {
  readonly id: string;
  readonly source: PoolSource;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly location: Location;
  /** The monotonic moment at which the member joined. For a member of an earlier run, it is before the start of the process. */
  readonly joinedAt: number;
  readonly health = new Health();

  exitIp: string | undefined;
  exitName: string | undefined;
  login: Login | undefined;
  facts: Facts | undefined;
  drawnBy: string | undefined;
  /** The site of the last lease, and this exit's pair there: saves most lookups of picks. */
  lastSite: Site | undefined;
  lastPair: Pair | undefined;
  endsAt: number;
  /** True if the service reported no end of life. `endsAt` is then an assumption, and each success renews it. */
  endIsAssumed: boolean;

  openLeases = 0;
  pendingUses = 0;
  uses = 0;
  /** The id of the one lease that tests the member: a probe, or a client's lease on a quarantined member. */
  trialLease: number | undefined;
  /** Whether a draw replaces the member, which failed while none of its source worked, to find out whether new ones work. */
  onTrial = false;
  undecidedAt = Number.NEGATIVE_INFINITY;
  lastSuccessAt: number | undefined;
  latencyMs: number | undefined;
  #latencyAt = 0;

  // Only `CandidateIndex` writes the next four fields.
  bucket: Bucket | undefined;
  readonly candidates: Candidate[] = [];
  /** `key` is the end of life minus the safety margin. */
  readonly usableUntil: MemberMoment = { member: this, key: Number.POSITIVE_INFINITY, heapIndex: -1 };
  /** `key` is the next moment at which a timer removes the member or changes its bucket (see candidates.ts). */
  readonly nextChange: MemberMoment = { member: this, key: Number.POSITIVE_INFINITY, heapIndex: -1 };

  /** Only `Members` changes it. */
  phase: MemberPhase;

  constructor(drawn: DrawnMember, life: Pick<Member, 'id' | 'source' | 'location' | 'joinedAt' | 'endsAt'>) {
    this.id = life.id;
    this.source = life.source;
    this.protocol = drawn.protocol;
    this.host = drawn.host;
    this.port = drawn.port;
    this.location = life.location;
    this.joinedAt = life.joinedAt;
    this.exitIp = drawn.exitIp;
    this.exitName = drawn.exitName;
    this.login = drawn.login;
    this.facts = drawn.facts;
    this.drawnBy = drawn.drawnBy;
    this.endsAt = life.endsAt;
    this.endIsAssumed = drawn.endsAt === undefined;
    this.phase = { name: drawn.unproven ? 'joining' : 'ready' };
  }

  /** The exit that a target sees: its IP if known, else its made name, else the member's host. Never a port. */
  get exit(): string {
    return this.exitIp ?? this.exitName ?? this.host;
  }

  recordSuccess(now: number, latencyMs: number | undefined): void {
    const { source } = this;
    this.lastSuccessAt = now;
    this.health.accepted(now);
    source.evidence.recordAccept(now);
    if (latencyMs === undefined) return;
    if (source.typicalLatencyMs === 0) source.typicalLatencyMs = latencyMs;
    else source.typicalLatencyMs += (latencyMs - source.typicalLatencyMs) * LATENCY_WEIGHT;
    const weight =
      this.latencyMs === undefined
        ? 1
        : Math.max(MIN_READING_WEIGHT, 1 - Math.exp((this.#latencyAt - now) / LATENCY_MEMORY_MS));
    this.latencyMs = (this.latencyMs ?? 0) * (1 - weight) + latencyMs * weight;
    this.#latencyAt = now;
  }

  /** The older the last reading is, the closer to the average of the source. */
  expectedLatencyMs(now: number): number {
    const { typicalLatencyMs } = this.source;
    if (this.latencyMs === undefined) return typicalLatencyMs;
    const remaining = Math.exp((this.#latencyAt - now) / (6 * LATENCY_MEMORY_MS));
    return typicalLatencyMs + (this.latencyMs - typicalLatencyMs) * remaining;
  }

  /** @throws TypeError for a move that the table does not have. */
  moveTo(next: MemberPhase): void {
    const allowed: readonly MemberPhaseName[] = MEMBER_MOVES[this.phase.name];
    if (!allowed.includes(next.name)) {
      throw new TypeError(`member ${this.id}: ${this.phase.name} -> ${next.name} is not a move`);
    }
    this.trialLease = undefined;
    this.source.counts[this.phase.name] -= 1;
    this.source.counts[next.name] += 1;
    this.phase = next;
  }
}

export class PoolSource {
  readonly name: string;
  options: PoolSourceOptions;
  readonly members = new Set<Member>();
  readonly counts: Record<MemberPhaseName, number> = {
    joining: 0,
    ready: 0,
    quarantined: 0,
    draining: 0,
    left: 0,
  };
  /** Members that do not drain, ordered by the monotonic moment at which they stop being usable. */
  readonly expiries = new Heap<MemberMoment>();
  readonly quarantined = new Set<Member>();
  /** Members that wait for a probe, because the evidence against them is too weak for an eviction. */
  readonly suspected = new Set<Member>();
  openLeases = 0;
  leaseLimit = Number.POSITIVE_INFINITY;
  blockedReason: string | undefined;
  /** Only of the demand that no tier records: of sessions, and of candidates that the pool has removed since. */
  lastWantedAt = Number.NEGATIVE_INFINITY;
  /** What other replicas last reported. Each key is the `PoolSharing` object of one group of replicas. */
  readonly demandElsewhere = new Map<object, Demand>();
  readonly requests = new RequestRate();
  typicalLatencyMs = 0;

  readonly evidence = new SourceEvidence();

  readonly protocols = new Set<MemberProtocol>();
  longestLifeMs = 0;
  locatedCount = 0;
  hasLatinLocation = false;

  constructor(options: PoolSourceOptions) {
    this.name = options.name;
    this.options = options;
  }

  get isFull(): boolean {
    return this.openLeases >= this.leaseLimit;
  }

  learn({ protocol, location = '' }: DrawnMember, lifeMs: number): void {
    this.protocols.add(protocol);
    this.longestLifeMs = Math.max(this.longestLifeMs, lifeMs);
    if (location === '') return;
    this.locatedCount += 1;
    this.hasLatinLocation ||= hasLatinLetter(location);
  }
}

/**
 * Evidence about the health of a member and, for comparison, about all members of its source. A fault that no target can cause counts in full;
 * a failure that the target may have caused is only a suspicion.
 *
 * An accepted attempt clears suspicions from refusals. Only an answer of a target clears those from closed tunnels, because a faulty member
 * may accept every attempt and then close the tunnel.
 */
export type HealthVerdict =
  | 'none'
  | 'quarantine'
  /** As `quarantine`, but no draw replaces the member: only one client failed through it. */
  | 'exclude'
  /** As `exclude`, and noria probes the member: with the same evidence from several clients, it would evict it. */
  | 'exclude-and-probe'
  /** noria probes the member, because it fails for several targets and no member of its source works. */
  | 'probe'
  | 'evict';

export interface SuspectFailure {
  /** Canonical host of the target. The port does not matter: two ports of a host count as one target. */
  readonly host: string;
  readonly client: string;
  readonly compared: boolean;
  /** Whether the member closed a tunnel; otherwise it refused an attempt. */
  readonly cut: boolean;
}

export interface HealthSnapshot {
  readonly inRow: number;
  readonly rests: number;
}

/** How long a success counts as evidence that a member and its source work. */
export const WORKED_MS = 60_000;

export class Health {
  #faults = 0;
  #quarantines = 0;
  #acceptedAt = Number.NEGATIVE_INFINITY;
  #answeredAt = Number.NEGATIVE_INFINITY;
  #refusals: Suspicion | undefined;
  #cuts: Suspicion | undefined;

  get score(): number {
    return this.#faults + (this.#refusals?.counted ?? 0) + (this.#cuts?.counted ?? 0);
  }

  accepted(now: number): void {
    this.#acceptedAt = now;
    this.#faults = 0;
    this.#refusals?.clear();
    if (this.score === 0) this.#quarantines = 0;
  }

  answered(now: number): void {
    this.#answeredAt = now;
    this.#cuts?.clear();
    if (this.score === 0) this.#quarantines = 0;
  }

  fault({ maxFailures }: PoolSettings['health']): HealthVerdict {
    this.#faults += 1;
    return this.score >= Math.max(1, maxFailures) ? 'evict' : 'quarantine';
  }

  /** @param evidence - of the member's source, which has already counted the failure. */
  suspect(
    failure: SuspectFailure,
    evidence: SourceEvidence,
    maxFailures: number,
    now: number,
  ): HealthVerdict {
    const { cut, compared } = failure;
    const memberWorked = now - (cut ? this.#answeredAt : this.#acceptedAt) <= WORKED_MS;
    if (memberWorked && !compared) return 'none';
    const suspicion = (cut ? this.#cuts : this.#refusals) ?? new Suspicion();
    if (cut) this.#cuts = suspicion;
    else this.#refusals = suspicion;
    const before = suspicion.counted;
    suspicion.add(failure, memberWorked, evidence, now);
    const { counted, isCompared, isShared } = suspicion;
    if (suspicion.isUndecided && !isCompared) return 'probe';
    if (counted === 0) return 'none';
    if (isCompared && this.score >= Math.max(1, maxFailures)) return isShared ? 'evict' : 'exclude-and-probe';
    if (!compared && counted <= before) return 'none';
    return isShared ? 'quarantine' : 'exclude';
  }

  nextQuarantineMs({ quarantineMs }: PoolSettings['health']): number {
    const forMs = quarantineMs * 2 ** this.#quarantines;
    this.#quarantines += 1;
    return forMs;
  }

  snapshot(): HealthSnapshot {
    return { inRow: this.#faults, rests: this.#quarantines };
  }

  /** Of an earlier process, an earlier stay in the pool or another replica. */
  inherit({ inRow, rests }: HealthSnapshot): void {
    this.#faults = inRow;
    this.#quarantines = rests;
  }
}

const MAX_HOSTS = 16;
/** While no other member is known to work, noria probes a member only after it has failed for so many targets. */
const MIN_HOSTS_FOR_PROBE = 8;

/**
 * Several failures for one target count once, because the target may refuse this member. Failures of a single client do not count while
 * targets answer other clients: one client can request as many bad targets as it likes.
 */
class Suspicion {
  readonly #hosts = new Map<string, boolean>();
  readonly #clients = new Set<string>();
  #totalsAtStart: Pick<SourceTotals, 'successes' | 'failures'> = { successes: 0, failures: 0 };
  #independent = false;
  #sourceWorked = true;
  counted = 0;

  get isShared(): boolean {
    return this.#clients.size > 1;
  }

  get isCompared(): boolean {
    return this.#hosts.size > 1 && [...this.#hosts.values()].includes(true);
  }

  /** Whether the member or the targets are at fault does not show while no member of the source works. */
  get isUndecided(): boolean {
    return this.#independent && !this.#sourceWorked && this.#hosts.size >= MIN_HOSTS_FOR_PROBE;
  }

  add(
    { host, client, compared, cut }: SuspectFailure,
    memberWorked: boolean,
    evidence: SourceEvidence,
    now: number,
  ): void {
    const totals = cut ? evidence.answers : evidence.accepts;
    this.#sourceWorked = now - totals.succeededAt <= WORKED_MS;
    if (this.#hosts.size === 0) this.#totalsAtStart = { ...totals };
    if (this.#hosts.size < MAX_HOSTS || this.#hosts.has(host)) {
      this.#hosts.set(host, compared || this.#hosts.get(host) === true);
      this.#clients.add(client);
    }
    const successes = totals.successes - this.#totalsAtStart.successes;
    const failures = totals.failures - this.#totalsAtStart.failures;
    const isCompared = [...this.#hosts.values()].includes(true);
    this.#independent = this.#clients.size > 1 || !evidence.servedOther(client, now);
    if (!this.#independent || !(isCompared || successes > failures)) this.counted = 0;
    else this.counted = this.#hosts.size - (isCompared && !memberWorked ? 0 : 1);
  }

  clear(): void {
    this.#hosts.clear();
    this.#clients.clear();
    this.counted = 0;
  }
}

interface SourceTotals {
  successes: number;
  failures: number;
  succeededAt: number;
}

/** How long an answer of a target shows that the source can serve the client. */
const CLIENT_SERVED_MS = 10 * MINUTE_MS;
/** In a trial, a draw replaces a member that may be good, to find out whether new ones work: at most a tenth more draws. */
const TRIALS_PER_MEMBER = 0.1;

export class SourceEvidence {
  /** Success: a member accepted an attempt. Failure: an attempt failed before the member accepted it. */
  readonly accepts: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  /** Success: a target answered through a member. Failure: a member closed a tunnel before the target answered. */
  readonly answers: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  #trials = Number.POSITIVE_INFINITY;
  #latestClient: string | undefined;
  #latestAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  recordAccept(now: number): void {
    this.accepts.successes += 1;
    this.accepts.succeededAt = now;
  }

  recordAnswer(client: string, now: number): void {
    this.answers.successes += 1;
    this.answers.succeededAt = now;
    if (client !== this.#latestClient) {
      this.#otherAt = this.#latestAt;
      this.#latestClient = client;
    }
    this.#latestAt = now;
  }

  servedOther(client: string, now: number): boolean {
    const at = client === this.#latestClient ? this.#otherAt : this.#latestAt;
    return now - at <= CLIENT_SERVED_MS;
  }

  memberJoined(): void {
    this.#trials += TRIALS_PER_MEMBER;
  }

  /** At most a tenth of `size` trials, or 1 if that is more, are left. A new source may make so many. */
  spendTrial(size: number): boolean {
    this.#trials = Math.min(this.#trials, Math.max(1, size * TRIALS_PER_MEMBER));
    if (this.#trials < 1) return false;
    this.#trials -= 1;
    return true;
  }
}
