/** The clock of one simulated process, which can be stopped (SIGSTOP), continued and killed. */
import type { Clock } from '../../../src/core/clock.ts';

export class StoppableClock implements Clock {
  readonly #base: Clock;
  readonly #skewMs: number;
  #state: 'running' | 'stopped' | 'dead' = 'running';
  #held: (() => void)[] = [];

  /** @param skewMs - by how many ms the wall clock is wrong. */
  constructor(base: Clock, skewMs: number) {
    this.#base = base;
    this.#skewMs = skewMs;
  }

  get isStopped(): boolean {
    return this.#state === 'stopped';
  }

  now(): number {
    return this.#base.now() + this.#skewMs;
  }

  monotonic(): number {
    return this.#base.monotonic();
  }

  after(ms: number, fn: () => void): Disposable {
    let disposed = false;
    const timer = this.#base.after(ms, () => this.#deliver(() => !disposed && fn()));
    return {
      [Symbol.dispose]: () => {
        disposed = true;
        timer[Symbol.dispose]();
      },
    };
  }

  /** Delivers the result when the process runs. Never settles if the process is dead. */
  async gate<T>(result: Promise<T>): Promise<T> {
    const settled = await result.then(
      (value) => () => value,
      (error: unknown) => () => {
        throw error;
      },
    );
    await new Promise<void>((resolve) => this.#deliver(resolve));
    return settled();
  }

  stop(): void {
    if (this.#state === 'running') this.#state = 'stopped';
  }

  continue(): void {
    if (this.#state !== 'stopped') return;
    this.#state = 'running';
    const held = this.#held;
    this.#held = [];
    for (const fn of held) fn();
  }

  kill(): void {
    this.#state = 'dead';
    this.#held = [];
  }

  #deliver(fn: () => void): void {
    if (this.#state === 'running') fn();
    else if (this.#state === 'stopped') this.#held.push(fn);
  }
}
