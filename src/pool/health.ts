/**
 * Evidence about the health of a member and, for comparison, about all members of its source. A fault that no target can cause counts in full;
 * a failure that the target may have caused is only a suspicion.
 *
 * An accepted attempt clears suspicions from refusals. Only an answer of a target clears those from closed tunnels, because a faulty member
 * may accept every attempt and then close the tunnel. After each half-life without a fault, the count is halved and all suspicions end. The
 * half-life is the time from the joining to the end of life.
 */
import { MINUTE_MS } from '../core/duration.ts';
import type { HealthOptions } from './options.ts';

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
  #lastFaultAt = 0;
  #acceptedAt = Number.NEGATIVE_INFINITY;
  #answeredAt = Number.NEGATIVE_INFINITY;
  #refusals: Suspicion | undefined;
  #cuts: Suspicion | undefined;

  /** The consecutive faults, with the suspicions that count as faults. */
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

  /** @param halfLifeMs - after this time without a fault, earlier faults count half. */
  fault(now: number, halfLifeMs: number, { maxFailures }: HealthOptions): HealthVerdict {
    this.#fade(now, halfLifeMs);
    this.#faults += 1;
    return this.score >= Math.max(1, maxFailures) ? 'evict' : 'quarantine';
  }

  /** @param evidence - of the member's source, which has already counted the failure. */
  suspect(
    failure: SuspectFailure,
    evidence: SourceEvidence,
    { now, halfLifeMs, maxFailures }: { now: number; halfLifeMs: number; maxFailures: number },
  ): HealthVerdict {
    const { cut, compared } = failure;
    const memberWorked = now - (cut ? this.#answeredAt : this.#acceptedAt) <= WORKED_MS;
    if (memberWorked && !compared) return 'none';
    this.#fade(now, halfLifeMs);
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

  /** Each consecutive quarantine is twice as long as the one before. */
  nextQuarantineMs({ quarantineMs }: HealthOptions): number {
    const forMs = quarantineMs * 2 ** this.#quarantines;
    this.#quarantines += 1;
    return forMs;
  }

  snapshot(): HealthSnapshot {
    return { inRow: this.#faults, rests: this.#quarantines };
  }

  /** Of an earlier process, an earlier stay in the pool or another replica; as if the last fault happened now. */
  inherit({ inRow, rests }: HealthSnapshot, now: number): void {
    this.#faults = inRow;
    this.#quarantines = rests;
    this.#lastFaultAt = now;
  }

  #fade(now: number, halfLifeMs: number): void {
    const halfLives = Math.floor((now - this.#lastFaultAt) / Math.max(1, halfLifeMs));
    this.#lastFaultAt = now;
    if (halfLives <= 0) return;
    this.#faults /= 2 ** halfLives;
    this.#quarantines = Math.max(0, this.#quarantines - halfLives);
    this.#refusals?.clear();
    this.#cuts?.clear();
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
    if (this.#hosts.size === 0) return;
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

/** What all members of a source do: the failures of a single member are compared with it. */
export class SourceEvidence {
  /** Success: a member accepted an attempt. Failure: an attempt failed before the member accepted it. */
  readonly accepts: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  /** Success: a target answered through a member. Failure: a member closed a tunnel before the target answered. */
  readonly answers: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  #trials = Number.POSITIVE_INFINITY;
  /** The client that received the latest answer of a target. */
  #latestClient: string | undefined;
  #latestAt = Number.NEGATIVE_INFINITY;
  /** The moment of the latest answer to any other client. */
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

  memberJoined(size: number): void {
    this.#trials += TRIALS_PER_MEMBER;
    this.#limitTrials(size);
  }

  spendTrial(size: number): boolean {
    this.#limitTrials(size);
    if (this.#trials < 1) return false;
    this.#trials -= 1;
    return true;
  }

  /** To a tenth of `size`, or to 1 if that is more. A new source may make so many. */
  #limitTrials(size: number): void {
    this.#trials = Math.min(this.#trials, Math.max(1, size * TRIALS_PER_MEMBER));
  }
}
