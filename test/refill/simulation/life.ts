/**
 * One run of a simulated noria, until it is closed, or killed as by `kill -9`.
 *
 * After a kill its timers never fire and what it awaits never settles. What it wrote to the pace store stays.
 */
import type { Clock } from '../../../src/core/clock.ts';
import type { PaceStore } from '../../../src/state/pace-file.ts';

export class Life {
  readonly #world: Clock;
  readonly #timers = new Set<Disposable>();
  #isKilled = false;
  /** The clock of the process: its monotonic time starts at 0. */
  readonly clock: Clock;
  /** Monotonic moment of the start, in world time. */
  readonly startedAt: number;

  constructor(world: Clock) {
    const startedAt = world.monotonic();
    this.#world = world;
    this.startedAt = startedAt;
    this.clock = {
      now: () => world.now(),
      monotonic: () => world.monotonic() - startedAt,
      after: (ms, fn) => this.#after(ms, fn),
    };
  }

  /** Armed timers: 0 after a proper close. */
  get armedCount(): number {
    return this.#timers.size;
  }

  kill(): void {
    this.#isKilled = true;
    for (const timer of this.#timers) timer[Symbol.dispose]();
  }

  /** Settles like `promise`, but never after a kill. */
  async orNever<T>(promise: Promise<T>): Promise<T> {
    const [result] = await Promise.allSettled([promise]);
    if (this.#isKilled) return new Promise(() => {});
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  }

  /** The store as this run sees it. */
  storeOf(store: PaceStore): PaceStore {
    return {
      now: store.now,
      change: (key, decide) =>
        this.#isKilled ? new Promise(() => {}) : this.orNever(store.change(key, decide)),
    };
  }

  #after(ms: number, fn: () => void): Disposable {
    if (this.#isKilled) return { [Symbol.dispose]: () => {} };
    const timer = this.#world.after(ms, () => {
      this.#timers.delete(handle);
      fn();
    });
    const handle = {
      [Symbol.dispose]: () => {
        this.#timers.delete(handle);
        timer[Symbol.dispose]();
      },
    };
    this.#timers.add(handle);
    return handle;
  }
}
