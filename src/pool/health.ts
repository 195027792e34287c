/**
 * Health: the faults of one member in a row, and what the next fault leads to.
 *
 * A fault that no target can cause counts in full. Failures that the target may have caused are suspicions: refusals end
 * with the next accepted attempt, closed tunnels only with the next answer of a target, because a member may accept
 * everything and then hang up. Old faults fade: they halve with each half-life without a fault.
 */
import type { HealthOptions } from './options.ts';
import { type Surroundings, type SuspectFailure, Suspicion } from './suspicion.ts';

/** What a fault leads to. */
export type HealthVerdict =
  | 'none'
  | 'quarantine'
  /** Quarantine without a replacement: only one client failed through the member. */
  | 'rest'
  /** The same, and noria probes the member: the evidence is enough to evict it, but comes from one client. */
  | 'rest-and-probe'
  /** The member fails for several targets, and no member of its source works: noria probes it. */
  | 'probe'
  | 'evict';

/** As a snapshot stores it. Suspicions are not stored. */
export interface HealthRecord {
  /** Faults in a row that no target can cause. */
  readonly inRow: number;
  /** Quarantines in a row. */
  readonly rests: number;
}

/** How long a success speaks for a member, and for its source. */
export const WORKED_MS = 60_000;

/** The faults of one member. */
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

  /** Counts a failure that the target may have caused. `cut`: after the member had accepted it. */
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

  /** Duration of the quarantine that begins now: `quarantineMs` at first, and twice as long each further time in a row. */
  nextQuarantineMs({ quarantineMs }: HealthOptions): number {
    const forMs = quarantineMs * 2 ** this.#quarantines;
    this.#quarantines += 1;
    return forMs;
  }

  record(): HealthRecord {
    return { inRow: this.#faults, rests: this.#quarantines };
  }

  /** Replaces the counts, as of monotonic `now`. */
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
