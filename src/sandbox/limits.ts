/**
 * The limits that the service enforces for each instance: the rate of its calls, the exits that it may get, and its one
 * client.
 */

import type { Clock } from '../core/clock.ts';
import { DAY_MS, HOUR_MS } from '../core/duration.ts';
import type { RateLimit } from './operations.ts';
import type { Condition } from './settings.ts';

/** UTC+8, the service's time zone. The service's day begins at midnight in this zone. */
export const ZONE_MS = 8 * HOUR_MS;
/** How long after its client's last call a free application refuses clients with other addresses. */
const CLIENT_SILENCE_MS = 120_000;

/** Limits the rate of calls, by the times at which they arrive at the service. */
export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #clock: Clock;
  #starts: number[] = [];

  constructor(limit: RateLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Returns whether the limit allows a call now. A call that comes too early does not delay the next call. */
  admit(): boolean {
    const now = this.#clock.monotonic();
    this.#starts = this.#starts.filter((start) => now - start < this.#limit.withinMs);
    if (this.#starts.length >= this.#limit.calls) return false;
    this.#starts.push(now);
    return true;
  }
}

/** Counts the exits that an instance has got, today and in total. */
export class ExitLedger {
  readonly #clock: Clock;
  readonly #ever = new Set<string>();
  #today = new Set<string>();
  #day: number;
  #handedOut = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#day = this.#currentDay();
  }

  /** The number of distinct exits on the current day of the service. */
  get today(): number {
    this.#startNewDay();
    return this.#today.size;
  }

  /** The number of proxies handed out in total. A proxy counts each time that it is handed out. */
  get handedOut(): number {
    return this.#handedOut;
  }

  /**
   * The number of distinct exits that the instance may still get; infinite if the instance is not limited by distinct
   * exits.
   */
  distinctLeft({ accounting, distinctLimit }: Pick<Condition, 'accounting' | 'distinctLimit'>): number {
    if (accounting === 'even') return Number.POSITIVE_INFINITY;
    return Math.max(0, distinctLimit - (accounting === 'pay-per-use' ? this.#ever.size : this.today));
  }

  wasDrawnToday(exit: string): boolean {
    this.#startNewDay();
    return this.#today.has(exit);
  }

  wasDrawn(exit: string): boolean {
    return this.#ever.has(exit);
  }

  /** Records that a proxy with this exit was handed out. @returns whether the exit is new today. */
  record(exit: string): boolean {
    const isNew = !this.wasDrawnToday(exit);
    this.#handedOut += 1;
    this.#today.add(exit);
    this.#ever.add(exit);
    return isNew;
  }

  #startNewDay(): void {
    const day = this.#currentDay();
    if (day === this.#day) return;
    this.#day = day;
    this.#today = new Set();
  }

  #currentDay(): number {
    return Math.floor((this.#clock.now() + ZONE_MS) / DAY_MS);
  }
}

/** Lets a free application serve only one client address at a time. */
export class ClientLock {
  readonly #clock: Clock;
  #client: string | undefined;
  #seenAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Reserves the application for this client.
   * @returns the address of another client if that client has reserved the application; otherwise undefined.
   */
  acquire(client: string): string | undefined {
    const now = this.#clock.monotonic();
    const isFree = this.#client === undefined || now - this.#seenAt >= CLIENT_SILENCE_MS;
    if (!isFree && this.#client !== client) return this.#client;
    this.#client = client;
    this.#seenAt = now;
    return undefined;
  }
}
