/**
 * One instance (or free application) of the service: its settings, its state at the service, its members, and the
 * limits that the service enforces for it: the rate of calls, the distinct exits, the one client of a free application.
 */
import { createHash } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import { DAY_MS, HOUR_MS } from '../core/duration.ts';
import type { InstanceMembers } from './members.ts';
import { operationOf, type RateLimit } from './operations.ts';
import { type Condition, type IdentifiedOptions, initialCondition } from './settings.ts';

export type Instance = ReturnType<typeof makeInstance>;

export function makeInstance(options: IdentifiedOptions, clock: Clock, members: InstanceMembers) {
  const { id, product, password, paceMs } = options;
  const operation = operationOf(product);
  return {
    ...{ id, product, operation, options, members, akey: akeyOf(password) },
    condition: initialCondition(options),
    rateLimiter: new RateLimiter(
      paceMs === undefined ? operation.rateLimit : { calls: 1, withinMs: paceMs },
      clock,
    ),
    ledger: new ExitLedger(clock),
    clientLock: new ClientLock(clock),
  };
}

export function akeyOf(password: string): string {
  return createHash('md5').update(password, 'utf8').digest('hex').substring(8, 24);
}

const ZONE_MS = 8 * HOUR_MS;
const CLIENT_SILENCE_MS = 120_000;

/** In China's time zone, as `2026-11-22T10:05:00`. */
export function localTime(epochMs: number): string {
  return new Date(epochMs + ZONE_MS).toISOString().slice(0, 19);
}

export class RateLimiter {
  readonly #limit: RateLimit;
  readonly #clock: Clock;
  #starts: number[] = [];

  constructor(limit: RateLimit, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** A refused call does not delay the next one. */
  admit(): boolean {
    const now = this.#clock.monotonic();
    this.#starts = this.#starts.filter((start) => now - start < this.#limit.withinMs);
    if (this.#starts.length >= this.#limit.calls) return false;
    this.#starts.push(now);
    return true;
  }
}

class ExitLedger {
  handedOut = 0;
  readonly #clock: Clock;
  readonly #ever = new Set<string>();
  #today = new Set<string>();
  #day: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#day = this.#currentDay();
  }

  get today(): number {
    this.#startNewDay();
    return this.#today.size;
  }

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

  record(exit: string): boolean {
    const isNew = !this.wasDrawnToday(exit);
    this.handedOut += 1;
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

export class ClientLock {
  readonly #clock: Clock;
  #client: string | undefined;
  #seenAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

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
