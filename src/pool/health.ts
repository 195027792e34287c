/**
 * Counts the faults of one member in a row, and decides what the next fault leads to. A fault that no target can cause counts in
 * full. Failures that the target may have caused are suspicions. An accepted attempt ends suspicions from refusals. Only an
 * answer of a target ends suspicions from closed tunnels, because a member may accept everything and then close. Without new
 * faults, the count halves with each half-life.
 */
import type { HealthOptions } from './options.ts';
import { type Surroundings, type SuspectFailure, Suspicion } from './suspicion.ts';

/** What a fault leads to. */
export type HealthVerdict =
  | 'none'
  | 'quarantine'
  /** Quarantine, but no draw replaces the member, because only one client failed through it. */
  | 'rest'
  /** Like `rest`, and noria probes the member: the evidence would evict it, but comes from only one client. */
  | 'rest-and-probe'
  /** noria probes the member: it fails for several targets, and no member of its source works. */
  | 'probe'
  | 'evict';

/** The health in a snapshot. Suspicions are not stored. */
export interface HealthRecord {
  /** Faults in a row that no target can cause. */
  readonly inRow: number;
  /** Quarantines in a row. */
  readonly rests: number;
}

/** For how long a success counts as evidence that a member and its source work. */
export const WORKED_MS = 60_000;

/** The health of one member. */
export class Health {
  #faults = 0;
  #quarantines = 0;
  #lastFaultAt = 0;
  #acceptedAt = Number.NEGATIVE_INFINITY;
  #answeredAt = Number.NEGATIVE_INFINITY;
  #refusals: Suspicion | undefined;
  #cuts: Suspicion | undefined;

  /** Faults in a row, as `maxFailures` counts them. */
  get score(): number {
    return this.#faults + (this.#refusals?.counted ?? 0) + (this.#cuts?.counted ?? 0);
  }

  /** An attempt was accepted at monotonic `now`. */
  accepted(now: number): void {
    this.#acceptedAt = now;
    this.#faults = 0;
    this.#refusals?.clear();
    if (this.score === 0) this.#quarantines = 0;
  }

  /** A target answered through the member. */
  answered(now: number): void {
    this.#answeredAt = now;
    this.#cuts?.clear();
    if (this.score === 0) this.#quarantines = 0;
  }

  /**
   * Counts a fault that no target can cause.
   *
   * @param halfLifeMs - time without a fault after which the earlier faults count half.
   */
  fault(now: number, halfLifeMs: number, { maxFailures }: HealthOptions): HealthVerdict {
    this.#fade(now, halfLifeMs);
    this.#faults += 1;
    return this.score >= Math.max(1, maxFailures) ? 'evict' : 'quarantine';
  }

  /** Counts a failure that the target may have caused. `cut`: the member accepted the target and then closed the tunnel. */
  suspect(
    failure: SuspectFailure & { readonly cut: boolean },
    surroundings: Omit<Surroundings, 'memberWorked' | 'sourceWorked'>,
    { now, halfLifeMs, maxFailures }: { now: number; halfLifeMs: number; maxFailures: number },
  ): HealthVerdict {
    const workedAt = failure.cut ? this.#answeredAt : this.#acceptedAt;
    const memberWorked = now - workedAt <= WORKED_MS;
    if (memberWorked && !failure.compared) return 'none';
    this.#fade(now, halfLifeMs);
    const suspicion = this.#suspicionFor(failure.cut);
    const before = suspicion.counted;
    const sourceWorked = now - surroundings.sourceTotals.succeededAt <= WORKED_MS;
    suspicion.add(failure, { ...surroundings, memberWorked, sourceWorked });
    if (suspicion.isUndecided && !suspicion.isCompared) return 'probe';
    const { counted, isCompared, isShared } = suspicion;
    if (counted === 0) return 'none';
    if (isCompared && this.score >= Math.max(1, maxFailures)) return isShared ? 'evict' : 'rest-and-probe';
    if (!failure.compared && counted <= before) return 'none';
    return isShared ? 'quarantine' : 'rest';
  }

  /** The duration of the quarantine that begins now: first `quarantineMs`, then twice as long for each further one in a row. */
  nextQuarantineMs({ quarantineMs }: HealthOptions): number {
    const forMs = quarantineMs * 2 ** this.#quarantines;
    this.#quarantines += 1;
    return forMs;
  }

  record(): HealthRecord {
    return { inRow: this.#faults, rests: this.#quarantines };
  }

  /** Restores the counts of a snapshot, as of monotonic `now`. */
  inherit({ inRow, rests }: HealthRecord, now: number): void {
    this.#faults = inRow;
    this.#quarantines = rests;
    this.#lastFaultAt = now;
  }

  #suspicionFor(cut: boolean): Suspicion {
    if (cut) {
      this.#cuts ??= new Suspicion();
      return this.#cuts;
    }
    this.#refusals ??= new Suspicion();
    return this.#refusals;
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
