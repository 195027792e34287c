/**
 * A Clock for simulations. Its time jumps from one armed timer to the next.
 *
 * Timers that are due at the same time fire in the order in which they were armed. Before the next timer fires, all
 * promises that a timer resolved have continued.
 */
import { setImmediate } from 'node:timers/promises';
import type { Clock } from './clock.ts';

interface Timer {
  readonly dueAt: number;
  readonly order: number;
  readonly fn: () => void;
  armed: boolean;
}

export class VirtualClock implements Clock {
  #monotonicMs = 0;
  #wallMs: number;
  #made = 0;
  #armedCount = 0;
  /** The armed timers as a binary heap, the next timer first. Disposed timers stay in it until they are due. */
  readonly #heap: Timer[] = [];

  /** @param startAt - the first moment, in epoch ms. */
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
    this.#made += 1;
    // Whole ms, like timers of the runtime. With fractions, a rounding error in a sum could cause a wait that never
    // ends.
    const dueAt = this.#monotonicMs + Math.max(0, Math.ceil(ms));
    const timer = { dueAt, order: this.#made, fn, armed: true };
    this.#armedCount += 1;
    this.#push(timer);
    return { [Symbol.dispose]: () => this.#disarm(timer) };
  }

  /** The number of armed timers; 0 at the end of a simulation. */
  get armedCount(): number {
    return this.#armedCount;
  }

  /** Sets the wall clock, like an operator or NTP. Monotonic time does not change. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  /** Advances to monotonic `untilMs` and fires what is due. */
  async runUntil(untilMs: number): Promise<void> {
    await setImmediate();
    for (let next = this.#heap[0]; next !== undefined && next.dueAt <= untilMs; next = this.#heap[0]) {
      this.#pop();
      if (!next.armed) continue;
      this.#disarm(next);
      this.#moveTo(next.dueAt);
      next.fn();
      await setImmediate(); // lets promises that wait for this moment continue, at any depth
    }
    this.#moveTo(untilMs);
  }

  #moveTo(monotonicMs: number): void {
    const step = Math.max(0, monotonicMs - this.#monotonicMs);
    this.#monotonicMs += step;
    this.#wallMs += step;
  }

  #disarm(timer: Timer): void {
    if (timer.armed) this.#armedCount -= 1;
    timer.armed = false;
  }

  #push(timer: Timer): void {
    const heap = this.#heap;
    let place = heap.length;
    heap.push(timer);
    for (;;) {
      const above = (place - 1) >> 1;
      const parent = heap[above];
      if (place === 0 || parent === undefined || isBefore(parent, timer)) break;
      heap[place] = parent;
      place = above;
    }
    heap[place] = timer;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let place = 0;
    for (;;) {
      const left = heap[2 * place + 1];
      const right = heap[2 * place + 2];
      if (left === undefined) break;
      const isRight = right !== undefined && isBefore(right, left);
      const below = isRight ? right : left;
      if (isBefore(last, below)) break;
      heap[place] = below;
      place = 2 * place + (isRight ? 2 : 1);
    }
    heap[place] = last;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.dueAt < b.dueAt || (a.dueAt === b.dueAt && a.order < b.order);
}
