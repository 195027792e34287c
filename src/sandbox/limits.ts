/**
 * The limits that the service enforces for an instance: the rate of its calls, the number of its distinct exits, and
 * the one client of a free application.
 */

import type { Clock } from '../core/clock.ts';
import { DAY_MS, HOUR_MS } from '../core/duration.ts';
import type { RateLimit } from './operations.ts';
import type { Condition } from './settings.ts';

/** The offset of the service's time zone (UTC+8). The service's day begins at midnight in this zone. */
export const ZONE_MS = 8 * HOUR_MS;
/**
 * A free application serves one client address at a time. It accepts another address once the first address has made no
 * call for this time.
 */
const CLIENT_SILENCE_MS = 120_000;

/** Limits the rate of calls. Counts a call when it arrives at the service. */
export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #clock: Clock;
  #starts: number[] = [];

  constructor(limit: RateLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Returns whether the limit allows a call now. A refused call does not delay the next one. */
  admit(): boolean {
    const now = this.#clock.monotonic();
    this.#starts = this.#starts.filter((start) => now - start < this.#limit.withinMs);
    if (this.#starts.length >= this.#limit.calls) return false;
    this.#starts.push(now);
    return true;
  }
}

/** Remembers the exits of the proxies that an instance has got, today and in total, and counts them. */
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

  /** The number of distinct exits since the service's day began. */
  get today(): number {
    this.#startNewDay();
    return this.#today.size;
  }

  /** The number of proxies handed out in total. A proxy counts each time that it is handed out. */
  get handedOut(): number {
    return this.#handedOut;
  }

  /** The number of distinct exits that the instance may still get; infinite if they are not limited. */
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

  /**
   * Records that a proxy with this exit was handed out.
   * @returns whether the exit is new today.
   */
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
   * @param client - the address of the client; empty if the client disconnected too early. An empty address reserves
   * nothing.
   * @returns undefined on success; if another client has reserved the application, the address of that client.
   */
  acquire(client: string): string | undefined {
    if (client === '') return undefined;
    const now = this.#clock.monotonic();
    const isFree = this.#client === undefined || now - this.#seenAt >= CLIENT_SILENCE_MS;
    if (!isFree && this.#client !== client) return this.#client;
    this.#client = client;
    this.#seenAt = now;
    return undefined;
  }
}
