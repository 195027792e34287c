import type { Clock } from '../../src/core/clock.ts';

/**
 * A clock that moves only by `advance`. Due timers fire in the order of their due times. Timers that are due at the same time
 * fire in the order in which they were set.
 */
export class ManualClock implements Clock {
  #monotonicMs = 0;
  #wallMs: number;
  #armed: { readonly dueAt: number; readonly fn: () => void }[] = [];

  constructor(startAt = Date.UTC(2030, 0, 1)) {
    this.#wallMs = startAt;
  }

  /** A clock that has run for a day. With it, a test notices if a moment is added where it should be subtracted. */
  static dayOld(): ManualClock {
    const clock = new ManualClock();
    clock.advance(86_400_000);
    return clock;
  }

  now(): number {
    return this.#wallMs;
  }

  monotonic(): number {
    return this.#monotonicMs;
  }

  after(ms: number, fn: () => void): Disposable {
    const timer = { dueAt: this.#monotonicMs + Math.max(0, ms), fn };
    this.#armed.push(timer);
    return { [Symbol.dispose]: () => this.#disarm(timer) };
  }

  /** The number of armed timers. A test that closes something ends with an assertion that this is 0. */
  get armedCount(): number {
    return this.#armed.length;
  }

  /** The remaining time of each armed timer. */
  get armedMs(): readonly number[] {
    return this.#armed.map(({ dueAt }) => dueAt - this.#monotonicMs);
  }

  /** Moves the wall clock without moving monotonic time, as an operator or NTP does. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  advance(ms: number): void {
    const untilMs = this.#monotonicMs + ms;
    for (;;) {
      let next: { readonly dueAt: number; readonly fn: () => void } | undefined;
      for (const timer of this.#armed) {
        if (timer.dueAt <= untilMs && (next === undefined || timer.dueAt < next.dueAt)) next = timer;
      }
      if (next === undefined) break;
      this.#disarm(next);
      this.#moveTo(next.dueAt);
      next.fn();
    }
    this.#moveTo(untilMs);
  }

  #moveTo(monotonicMs: number): void {
    const step = Math.max(0, monotonicMs - this.#monotonicMs);
    this.#monotonicMs += step;
    this.#wallMs += step;
  }

  #disarm(timer: object): void {
    this.#armed = this.#armed.filter((armed) => armed !== timer);
  }
}
