/**
 * An answer that many may ask for at once. It is made when someone asks, and kept just so long that making it never takes
 * more than a fiftieth of the time, however often it is asked for: a small pool's is always fresh, one of ten thousand
 * members is a second old.
 */
import type { Clock } from '../core/clock.ts';

/** Ms kept for each ms that the making took. */
const KEPT_PER_MS = 50;

export class SnapshotCache<T extends object> {
  readonly #clock: Clock;
  readonly #make: () => T;
  #value: T | undefined;
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, make: () => T) {
    this.#clock = clock;
    this.#make = make;
  }

  get(): T {
    const askedAt = this.#clock.monotonic();
    if (this.#value !== undefined && askedAt < this.#freshUntil) return this.#value;
    const value = this.#make();
    const madeAt = this.#clock.monotonic();
    this.#value = value;
    this.#freshUntil = madeAt + (madeAt - askedAt) * KEPT_PER_MS;
    return value;
  }

  /** What it shows has been changed by hand: the next answer is made anew. */
  forget(): void {
    this.#value = undefined;
  }
}
