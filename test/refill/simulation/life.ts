/**
 * One run of a simulated noria, until it is closed, or killed like a process by `kill -9`. It may be stopped (SIGSTOP)
 * and continued.
 *
 * While it is stopped, its timers and awaited promises wait. After a kill, its timers never fire and its awaited
 * promises never settle; what it has written to the pace store remains.
 */
import { type Clock, pause } from '../../../src/core/clock.ts';
import type { PaceStore } from '../../../src/state/pace-file.ts';

export class Life {
  readonly #world: Clock;
  readonly #timers = new Set<Disposable>();
  #isKilled = false;
  /** Resolved by `continue`; undefined unless the run is stopped. */
  #continued: PromiseWithResolvers<void> | undefined;
  /** The timers that were due while the run was stopped. */
  #missed: (() => void)[] = [];
  /** The clock of the process: its monotonic time starts at 0. */
  readonly clock: Clock;
  /** When the run started, in monotonic ms of the world. */
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

  /** The number of armed timers; 0 after a proper close. */
  get armedCount(): number {
    return this.#timers.size;
  }

  kill(): void {
    this.#isKilled = true;
    for (const timer of this.#timers) timer[Symbol.dispose]();
  }

  get isStopped(): boolean {
    return this.#continued !== undefined;
  }

  stop(): void {
    this.#continued ??= Promise.withResolvers();
  }

  continue(): void {
    const missed = this.#missed;
    this.#continued?.resolve();
    this.#continued = undefined;
    this.#missed = [];
    for (const fn of missed) if (!this.#isKilled) fn();
  }

  /** Settles like `promise`, but not while the run is stopped, and never after a kill. */
  async orNever<T>(promise: Promise<T>): Promise<T> {
    const [result] = await Promise.allSettled([promise]);
    while (this.#continued !== undefined) await this.#continued.promise;
    if (this.#isKilled) return new Promise(() => {});
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  }

  /**
   * The pace store as this run sees it.
   * @param delayMs - the delay of the disk before and after each change.
   * @param changed - called after a change, before this run learns of it.
   */
  storeOf(store: PaceStore, delayMs: () => number, changed: () => void): PaceStore {
    const delay = () => this.orNever(pause(this.#world, delayMs()));
    return {
      ...store,
      change: async (key, decide) => {
        await delay();
        const result = await this.orNever(store.change(key, decide));
        changed();
        await delay();
        return result;
      },
    };
  }

  #after(ms: number, fn: () => void): Disposable {
    if (this.#isKilled) return { [Symbol.dispose]: () => {} };
    const timer = this.#world.after(ms, () => {
      this.#timers.delete(handle);
      if (this.isStopped) this.#missed.push(fn);
      else fn();
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
