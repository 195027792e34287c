/**
 * One life of a simulated noria, from its start to its end: by closing, or as `kill -9` ends a process.
 *
 * What it did before stands; nothing of it goes on afterwards: its timers never fire, what it waits for never comes.
 */
import type { Clock } from '../../core/clock.ts';
import type { PaceStore } from '../../state/pace-file.ts';

export class Life {
  /** Monotonic time begins anew with every process. */
  readonly #originMs: number;
  readonly #world: Clock;
  readonly #timers = new Set<Disposable>();
  readonly #waiting = new Set<(nothing: undefined) => void>();
  #alive = true;
  readonly clock: Clock;

  constructor(world: Clock, originMs: number) {
    this.#world = world;
    this.#originMs = originMs;
    this.clock = {
      now: () => world.now(),
      monotonic: () => world.monotonic() - originMs,
      after: (ms, fn) => this.#after(ms, fn),
    };
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Timers of this life that are armed; none is left when it was closed properly. */
  get armedCount(): number {
    return this.#timers.size;
  }

  /** A moment of this life in the time of the world. */
  toWorld(monotonicMs: number): number {
    return monotonicMs + this.#originMs;
  }

  kill(): void {
    this.#alive = false;
    for (const timer of this.#timers) timer[Symbol.dispose]();
    for (const resolve of this.#waiting) resolve(undefined);
    this.#waiting.clear();
  }

  /** What `promise` resolves with, or undefined as soon as this life is killed. */
  orKilled<T>(promise: Promise<T>): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      if (!this.#alive) return resolve(undefined);
      this.#waiting.add(resolve);
      promise.then(resolve, reject).finally(() => this.#waiting.delete(resolve));
    });
  }

  /** Resolves after `ms`, or when this life is killed. */
  async pass(ms: number): Promise<void> {
    await this.orKilled(
      new Promise<void>((resolve) => {
        this.#after(ms, resolve);
      }),
    );
  }

  /** `store` as this life sees it: what it has written stays, an answer after its end never comes. */
  storeOf(store: PaceStore): PaceStore {
    return {
      now: store.now,
      change: (key, decide) =>
        this.#alive ? store.change(key, decide).then((result) => this.#orNever(result)) : never(),
    };
  }

  #orNever<T>(value: T): T | Promise<T> {
    return this.#alive ? value : never();
  }

  #after(ms: number, fn: () => void): Disposable {
    if (!this.#alive) return { [Symbol.dispose]: () => {} };
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

function never<T>(): Promise<T> {
  return new Promise(() => {});
}
