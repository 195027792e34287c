/**
 * Health: the faults of one member in a row, and what the next fault leads to.
 *
 * There are two counts. A failed attempt is a whole fault; the next accepted attempt clears those. A tunnel that the
 * member cut before its first byte is half a fault; only a tunnel that ended well clears those, because a member may
 * accept everything and then hang up. Old faults fade: both counts halve with each half-life without a fault.
 */
import type { HealthOptions } from './options.ts';

/** What a fault leads to. */
export type HealthVerdict = 'none' | 'quarantine' | 'evict';

/** As a snapshot stores it. */
export interface HealthRecord {
  /** Whole faults in a row. */
  readonly inRow: number;
  /** Half faults in a row. */
  readonly halves: number;
  /** Quarantines in a row. */
  readonly rests: number;
}

/** The faults of one member. */
export class Health {
  #wholeFaults = 0;
  #halfFaults = 0;
  #quarantines = 0;
  #lastFaultAt = 0;

  /** Faults in a row, as `maxFailures` counts them. */
  get score(): number {
    return this.#wholeFaults + this.#halfFaults / 2;
  }

  /** An attempt was accepted. */
  accepted(): void {
    this.#wholeFaults = 0;
    if (this.#halfFaults === 0) this.#quarantines = 0;
  }

  /** A tunnel or forwarded request ended well. */
  completed(): void {
    this.#halfFaults = 0;
    if (this.#wholeFaults === 0) this.#quarantines = 0;
  }

  /**
   * Counts a fault at monotonic `now`. Each whole fault and every second half fault leads to quarantine.
   *
   * @param halfLifeMs - time without a fault after which the earlier faults count half.
   */
  fault(half: boolean, now: number, halfLifeMs: number, { maxFailures }: HealthOptions): HealthVerdict {
    this.#fade(now, halfLifeMs);
    this.#lastFaultAt = now;
    if (half) this.#halfFaults += 1;
    else this.#wholeFaults += 1;
    if (this.score >= Math.max(1, maxFailures)) return 'evict';
    return half && this.#halfFaults % 2 !== 0 ? 'none' : 'quarantine';
  }

  /** Duration of the quarantine that begins now: `quarantineMs` at first, and twice as long each further time in a row. */
  nextQuarantineMs({ quarantineMs }: HealthOptions): number {
    const forMs = quarantineMs * 2 ** this.#quarantines;
    this.#quarantines += 1;
    return forMs;
  }

  record(): HealthRecord {
    return { inRow: this.#wholeFaults, halves: this.#halfFaults, rests: this.#quarantines };
  }

  /** Replaces the counts, as of monotonic `now`. */
  inherit({ inRow, halves, rests }: HealthRecord, now: number): void {
    this.#wholeFaults = inRow;
    this.#halfFaults = halves;
    this.#quarantines = rests;
    this.#lastFaultAt = now;
  }

  #fade(now: number, halfLifeMs: number): void {
    const halfLives = Math.floor((now - this.#lastFaultAt) / Math.max(1, halfLifeMs));
    if (halfLives <= 0) return;
    this.#wholeFaults /= 2 ** halfLives;
    this.#halfFaults = Math.floor(this.#halfFaults / 2 ** halfLives);
    this.#quarantines = Math.max(0, this.#quarantines - halfLives);
  }
}
