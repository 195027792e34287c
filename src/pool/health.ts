/**
 * How much a member is trusted: its faults in a row, and what each new one leads to.
 *
 * Two rows are kept. A failed attempt is a whole fault, and the next accepted one clears it. A tunnel cut before its
 * first byte is half a fault, which only a tunnel that ran well clears: a member that accepts everything and then
 * hangs up would otherwise never be found out. Old faults fade: both rows halve with each half-life that has passed.
 */
import type { HealthOptions } from './options.ts';

/** What a fault leads to. */
export type HealthVerdict = 'none' | 'rest' | 'evict';

/** As kept in a snapshot. */
export interface HealthRecord {
  readonly inRow: number;
  readonly halves: number;
  readonly rests: number;
}

/** The history of one member's faults. */
export class Health {
  #inRow = 0;
  #halves = 0;
  #rests = 0;
  #lastAt = 0;

  /** Faults in a row as they count towards eviction. */
  get score(): number {
    return this.#inRow + this.#halves / 2;
  }

  /** An attempt was accepted. */
  accepted(): void {
    this.#inRow = 0;
    if (this.#halves === 0) this.#rests = 0;
  }

  /** A tunnel or forwarded request ended well. */
  completed(): void {
    this.#halves = 0;
    if (this.#inRow === 0) this.#rests = 0;
  }

  /**
   * A fault was laid at the member at monotonic `now`: a whole one rests it at once, every second half one does.
   *
   * @param halfLifeMs - after so long without a fault those before count half.
   */
  fault(half: boolean, now: number, halfLifeMs: number, options: HealthOptions): HealthVerdict {
    this.#fade(now, halfLifeMs);
    this.#lastAt = now;
    if (half) this.#halves += 1;
    else this.#inRow += 1;
    if (this.score >= Math.max(1, options.maxFailures)) return 'evict';
    return half && this.#halves % 2 !== 0 ? 'none' : 'rest';
  }

  /** How long the rest that begins now lasts: the first `quarantineMs`, each further one twice as long as the one before. */
  nextRestMs(options: HealthOptions): number {
    const restMs = options.quarantineMs * 2 ** this.#rests;
    this.#rests += 1;
    return restMs;
  }

  record(): HealthRecord {
    return { inRow: this.#inRow, halves: this.#halves, rests: this.#rests };
  }

  /** Takes over a history, as of `now`. */
  inherit(record: HealthRecord, now: number): void {
    this.#inRow = record.inRow;
    this.#halves = record.halves;
    this.#rests = record.rests;
    this.#lastAt = now;
  }

  #fade(now: number, halfLifeMs: number): void {
    const halfLives = Math.floor((now - this.#lastAt) / Math.max(1, halfLifeMs));
    if (halfLives <= 0) return;
    this.#inRow /= 2 ** halfLives;
    this.#halves = Math.floor(this.#halves / 2 ** halfLives);
    this.#rests = Math.max(0, this.#rests - halfLives);
  }
}
