/**
 * A Clock for simulations. Its time jumps from one armed timer to the next.
 *
 * Timers that are due at the same time fire in the order in which they were armed. The code that waits for a fired
 * timer runs before the next timer fires.
 */
import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../core/clock.ts';

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
  /** The timers as a binary heap, with the next timer first. Disposed timers stay in the heap until they are due. */
  readonly #heap: Timer[] = [];

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
    this.#made += 1;
    // Times are whole ms, as for Node timers. With fractions, a rounding error could make a caller wait for 0 ms again
    // and again.
    const dueAt = this.#monotonicMs + Math.max(0, Math.ceil(ms));
    const timer = { dueAt, order: this.#made, fn, armed: true };
    this.#armedCount += 1;
    this.#push(timer);
    return { [Symbol.dispose]: () => this.#disarm(timer) };
  }

  get armedCount(): number {
    return this.#armedCount;
  }

  /** Moves the wall clock by `ms`, as an operator or NTP does. Monotonic time does not change. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  async runUntil(untilMs: number): Promise<void> {
    await setImmediate();
    for (let next = this.#heap[0]; next !== undefined && next.dueAt <= untilMs; next = this.#heap[0]) {
      this.#pop();
      if (!next.armed) continue;
      this.#disarm(next);
      this.#moveTo(next.dueAt);
      next.fn();
      await setImmediate(); // lets all code that waits for this timer run before the next timer fires
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
    let index = heap.length;
    heap.push(timer);
    for (;;) {
      const above = (index - 1) >> 1;
      const parent = heap[above];
      if (index === 0 || parent === undefined || isBefore(parent, timer)) break;
      heap[index] = parent;
      index = above;
    }
    heap[index] = timer;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let index = 0;
    for (;;) {
      const left = heap[2 * index + 1];
      const right = heap[2 * index + 2];
      if (left === undefined) break;
      const isRight = right !== undefined && isBefore(right, left);
      const below = isRight ? right : left;
      if (isBefore(last, below)) break;
      heap[index] = below;
      index = 2 * index + (isRight ? 2 : 1);
    }
    heap[index] = last;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.dueAt < b.dueAt || (a.dueAt === b.dueAt && a.order < b.order);
}
