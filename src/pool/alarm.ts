/** One timer for the nearest of many moments. Its owner sets it whenever a nearer one appears, and closes it. */
import type { Clock } from '../core/clock.ts';

/** A timer that is set anew as nearer moments appear. */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #timer: Disposable | undefined;
  #setFor = Number.POSITIVE_INFINITY;

  /** @param ring - called at the moment set, or a little earlier than it is needed; sets the alarm again itself. */
  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /**
   * Rings not later than the monotonic moment `at`. One that is set for an earlier moment already stays as it is: to
   * ring once too often is cheaper than to arm a timer at every change.
   */
  setBy(at: number): void {
    if (at >= this.#setFor || at === Number.POSITIVE_INFINITY) return;
    this.close();
    this.#setFor = at;
    this.#timer = this.#clock.after(at - this.#clock.monotonic(), () => {
      this.#timer = undefined;
      this.#setFor = Number.POSITIVE_INFINITY;
      this.#ring();
    });
  }

  /** Takes the setting back. It may be set again. */
  close(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#setFor = Number.POSITIVE_INFINITY;
  }
}
