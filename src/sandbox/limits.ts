/**
 * What the service remembers of an instance to enforce its limits: its calls, the exits it handed out, and its client.
 */
import type { Clock } from '../core/clock.ts';
import type { RateLimit } from './operations.ts';
import type { Condition } from './settings.ts';

export const DAY_MS = 86_400_000;
/** The service's time zone is UTC+8; its day begins at midnight there. */
export const ZONE_MS = 8 * 3_600_000;
/** Free product: a call from another address is refused until the last client has been silent for this long. */
const CLIENT_SILENCE_MS = 120_000;

/** Limits the rate of calls, measured from start to start, at the moment when the service sees them arrive. */
export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #clock: Clock;
  #starts: number[] = [];

  constructor(limit: RateLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Counts a call. A call that comes too early is not counted, so that it does not delay the next one. */
  admit(): boolean {
    const now = this.#clock.monotonic();
    this.#starts = this.#starts.filter((start) => now - start < this.#limit.withinMs);
    if (this.#starts.length >= this.#limit.calls) return false;
    this.#starts.push(now);
    return true;
  }
}

/** Counts the distinct exits that were handed out today and in total. */
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

  /** The number of distinct exits on the service's current day. */
  get today(): number {
    this.#startNewDay();
    return this.#today.size;
  }

  /** The number of proxies handed out in total, repeated ones included. */
  get handedOut(): number {
    return this.#handedOut;
  }

  /** How many more distinct exits the instance's accounting allows; infinite if it does not count them. */
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

  /** Records that a proxy was handed out. @returns whether its exit is new today. */
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

/** Makes sure that a free application serves one client address at a time. */
export class ClientLock {
  readonly #clock: Clock;
  #client: string | undefined;
  #seenAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Binds the application to this client, unless another client holds it. @returns that other client. */
  acquire(client: string): string | undefined {
    const now = this.#clock.monotonic();
    const isFree = this.#client === undefined || now - this.#seenAt >= CLIENT_SILENCE_MS;
    if (!isFree && this.#client !== client) return this.#client;
    this.#client = client;
    this.#seenAt = now;
    return undefined;
  }
}
