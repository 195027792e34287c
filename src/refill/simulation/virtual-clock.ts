/**
 * A Clock for simulations. Its time jumps from one armed timer to the next.
 *
 * Timers that are due at the same time fire in the order in which they were armed. The code that waits for a fired
 * timer runs before the next timer fires.
 */
import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../core/clock.ts';
import { Heap, type HeapNode } from '../../core/heap.ts';

/** The timers that are due at the same time, which is the key. */
interface Moment extends HeapNode {
  readonly timers: Set<{ readonly fn: () => void }>;
}

export class VirtualClock implements Clock {
  #monotonicMs = 0;
  #wallMs: number;
  readonly #moments = new Map<number, Moment>();
  readonly #next = new Heap<Moment>();
  armedCount = 0;

  /** @param startAt - the wall-clock time at the start, in epoch ms. */
  constructor(startAt: number) {
    this.#wallMs = startAt;
  }

  now(): number {
    return this.#wallMs;
  }

  monotonic(): number {
    return this.#monotonicMs;
  }

  after(ms: number, fn: () => void): Disposable {
    // Times are whole ms, as for Node timers. With fractions, a rounding error could make a caller wait for 0 ms again
    // and again.
    const { timers } = this.#momentAt(this.#monotonicMs + Math.max(0, Math.ceil(ms)));
    const timer = { fn };
    timers.add(timer);
    this.armedCount += 1;
    return { [Symbol.dispose]: () => this.#disarm(timers, timer) };
  }

  /** Moves the wall clock by `ms`, as an operator or NTP does. Monotonic time does not change. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  async runUntil(untilMs: number): Promise<void> {
    await setImmediate();
    for (let next = this.#next.first; next !== undefined && next.key <= untilMs; next = this.#next.first) {
      const [timer] = next.timers;
      if (timer === undefined) {
        this.#next.remove(next);
        this.#moments.delete(next.key);
        continue;
      }
      this.#disarm(next.timers, timer);
      this.#moveTo(next.key);
      timer.fn();
      await setImmediate(); // lets all code that waits for this timer run before the next timer fires
    }
    this.#moveTo(untilMs);
  }

  #moveTo(monotonicMs: number): void {
    const step = Math.max(0, monotonicMs - this.#monotonicMs);
    this.#monotonicMs += step;
    this.#wallMs += step;
  }

  #momentAt(key: number): Moment {
    const known = this.#moments.get(key);
    if (known !== undefined) return known;
    const moment: Moment = { key, heapIndex: -1, timers: new Set() };
    this.#moments.set(key, moment);
    this.#next.add(moment);
    return moment;
  }

  #disarm(timers: Moment['timers'], timer: { readonly fn: () => void }): void {
    if (timers.delete(timer)) this.armedCount -= 1;
  }
}
