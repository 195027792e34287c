/** What the service remembers of an instance: when it was called, by whom, and which distinct exits it handed out. */
import type { Clock } from '../core/clock.ts';
import type { RateLimit } from './operations.ts';
import type { Condition } from './settings.ts';

const DAY_MS = 86_400_000;
/** The service's day begins at midnight in its own zone, UTC+8. */
const ZONE_MS = 8 * 3_600_000;
/** Free product: a client address keeps the application to itself until it has been silent for so long. */
const CLIENT_SILENCE_MS = 120_000;

/** At most so many calls within so long, from start to start, as the service sees their arrival. */
export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #clock: Clock;
  #starts: number[] = [];

  constructor(limit: RateLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Notes a call. False when it came too early; such a call does not put off the next one. */
  take(): boolean {
    const now = this.#clock.monotonic();
    this.#starts = this.#starts.filter((start) => now - start < this.#limit.withinMs);
    if (this.#starts.length >= this.#limit.calls) return false;
    this.#starts.push(now);
    return true;
  }
}

/** The distinct exits drawn today and ever. */
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

  /** Distinct exits drawn today, by the service's day. */
  get today(): number {
    this.#turn();
    return this.#today.size;
  }

  /** Distinct exits drawn in all. */
  get ever(): number {
    return this.#ever.size;
  }

  /** Proxies handed out in all, repeated ones too. */
  get handedOut(): number {
    return this.#handedOut;
  }

  /** How many more distinct exits may be drawn: today, in all, or without end, by the instance's accounting. */
  distinctLeft({ accounting, distinctLimit }: Pick<Condition, 'accounting' | 'distinctLimit'>): number {
    if (accounting === 'even') return Number.POSITIVE_INFINITY;
    return Math.max(0, distinctLimit - (accounting === 'pay-per-use' ? this.ever : this.today));
  }

  drawnToday(exit: string): boolean {
    this.#turn();
    return this.#today.has(exit);
  }

  drawnEver(exit: string): boolean {
    return this.#ever.has(exit);
  }

  /** Notes that a proxy was handed out. @returns whether its exit is new today. */
  note(exit: string): boolean {
    const isNew = !this.drawnToday(exit);
    this.#handedOut += 1;
    this.#today.add(exit);
    this.#ever.add(exit);
    return isNew;
  }

  #turn(): void {
    const day = this.#currentDay();
    if (day === this.#day) return;
    this.#day = day;
    this.#today = new Set();
  }

  #currentDay(): number {
    return Math.floor((this.#clock.now() + ZONE_MS) / DAY_MS);
  }
}

/** Which client of a free application is extracting at present. */
export class ClientLock {
  readonly #clock: Clock;
  #client: string | undefined;
  #seenAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Notes a call. @returns the other client that still has the application, if one has. */
  note(client: string): string | undefined {
    const now = this.#clock.monotonic();
    const silent = this.#client === undefined || now - this.#seenAt >= CLIENT_SILENCE_MS;
    if (!silent && this.#client !== client) return this.#client;
    this.#client = client;
    this.#seenAt = now;
    return undefined;
  }
}
