/** One timer for the earliest of many exact moments. For many coarse timeouts of one kind, `Deadlines` is cheaper. */
import type { Clock } from './clock.ts';

export class EarliestTimer {
  readonly #clock: Clock;
  readonly #fn: () => void;
  #timer: Disposable | undefined;
  #dueAt = Number.POSITIVE_INFINITY;

  /**
   * @param fn - handles everything that is due, then calls `armBy` for the next moment. The timer may also call `fn`
   * when nothing is due.
   */
  constructor(clock: Clock, fn: () => void) {
    this.#clock = clock;
    this.#fn = fn;
  }

  /** The monotonic moment at which the timer fires; infinite while it is not armed. */
  get dueAt(): number {
    return this.#dueAt;
  }

  /**
   * Makes the timer fire at the monotonic moment `at` or earlier. If the timer is armed for an earlier moment, it
   * stays as it is: an unnecessary call of `fn` costs less than arming a timer at every change. Infinity is ignored.
   */
  armBy(at: number): void {
    if (at >= this.#dueAt) return;
    this.disarm();
    this.#dueAt = at;
    this.#timer = this.#clock.after(at - this.#clock.monotonic(), () => {
      this.disarm();
      this.#fn();
    });
  }

  disarm(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#dueAt = Number.POSITIVE_INFINITY;
  }
}
