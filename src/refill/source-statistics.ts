/**
 * Counts what a source has drawn, used and wasted, and the distinct IPs of the service's day. Also keeps the service's
 * quota and the usual duration of calls. The counts and the quota survive a restart.
 */
import { z } from 'zod';
import { DAY_MS } from '../core/duration.ts';
import type { Quota } from '../service/answer.ts';
import { SERVICE_ZONE_OFFSET_MS } from '../service/codes.ts';

export const DEFAULT_LATENCY_MS = 1_000;
/** The weight of the latest call in the moving average of the duration of calls. */
const LATENCY_WEIGHT = 0.3;
/** Until the first draw, and while the service tells no lifetimes. */
const DEFAULT_LIFETIME_MS = 60_000;
const LIFETIME_WEIGHT = 0.2;

const count = z.int().nonnegative();

/** The statistics as the snapshot file stores them. An invalid field counts as missing. */
const snapshotSchema = z.object({
  drawn: count.catch(0),
  used: count.catch(0),
  unused: count.catch(0),
  quota: z.record(z.string(), count).catch({}),
  budget: z.object({ day: count, drawn: z.array(z.string()).readonly() }).catch({ day: 0, drawn: [] }),
  /** The maximum count per call that noria learned from refusals (12003); absent: unknown. */
  learnedMost: count.min(1).optional().catch(undefined),
  /** The share of the latest members that failed before their first use; absent: unknown. */
  deadShare: z.number().min(0).max(1).optional().catch(undefined),
});

export type StatisticsSnapshot = z.infer<typeof snapshotSchema>;

const snapshotsSchema = z.record(z.string(), snapshotSchema.optional().catch(undefined)).catch({});

/**
 * Returns the statistics by the name of the source. The statistics of a source are undefined if they are unreadable.
 */
export function readStatistics(value: unknown): ReadonlyMap<string, StatisticsSnapshot | undefined> {
  return new Map(Object.entries(snapshotsSchema.parse(value)));
}

/** The number of distinct IPs that all norias of a fleet have drawn today. */
export interface SharedCount {
  add(ips: readonly string[]): void;
  /** The number that this noria last read from the fleet's store. Others may have drawn more IPs since then. */
  used(): number;
}

export class SourceStatistics {
  /** Members that the pool accepted, plus proxies that noria must not use: both cost money. Since the state folder was created. */
  drawn: number;
  /** Removed members that clients had used. */
  used: number;
  /** Removed members that no client had used, plus proxies that noria must not use. */
  unused: number;
  #hasLifetime = false;
  readonly budget: DailyBudget;
  quota: Quota;
  learnedMax: number;
  #latencyMs: number | undefined;
  /** How long a drawn member usually lives from its draw, in ms. */
  lifetimeMs = DEFAULT_LIFETIME_MS;

  constructor(wallAt: number, snapshot: StatisticsSnapshot | undefined, shared?: SharedCount) {
    this.drawn = snapshot?.drawn ?? 0;
    this.used = snapshot?.used ?? 0;
    this.unused = snapshot?.unused ?? 0;
    this.budget = new DailyBudget(wallAt, snapshot?.budget, shared);
    this.quota = snapshot?.quota ?? {};
    this.learnedMax = snapshot?.learnedMost ?? Infinity;
  }

  /** The usual time in ms from the start of a call until its members are usable. */
  get latencyMs(): number {
    return this.#latencyMs ?? DEFAULT_LATENCY_MS;
  }

  /** How many distinct IPs the daily budget and the service's quota still allow. */
  quotaLeft(dailyBudget: number | undefined, wallAt: number): number {
    const budgetLeft = dailyBudget === undefined ? Infinity : dailyBudget - this.budget.used(wallAt);
    // A reported quota of 0 does not prevent the next draw: only a draw can find out whether IPs are left again. After
    // such a report, noria suspends the source for some time, so draws are rare.
    const { remaining = 0 } = this.quota;
    return remaining > 0 ? Math.min(budgetLeft, remaining) : budgetLeft;
  }

  recordLatency(tookMs: number): void {
    this.#latencyMs =
      this.#latencyMs === undefined ? tookMs : this.#latencyMs + (tookMs - this.#latencyMs) * LATENCY_WEIGHT;
  }

  /** Records how long the members of a draw will live, in ms; Infinity if that is unknown. */
  recordLifetimes(lifetimes: readonly number[]): void {
    const known = lifetimes.filter((ms) => ms > 0 && ms < Infinity);
    if (known.length === 0) return;
    const mean = known.reduce((sum, ms) => sum + ms, 0) / known.length;
    this.lifetimeMs = this.#hasLifetime ? this.lifetimeMs + (mean - this.lifetimeMs) * LIFETIME_WEIGHT : mean;
    this.#hasLifetime = true;
  }

  countForbidden(forbidden: number): void {
    this.drawn += forbidden;
    this.unused += forbidden;
  }

  /** Removes the values that apply only to the old instance, after a reload has changed the instance of the source. */
  forgetInstance(): void {
    this.learnedMax = Infinity;
    this.quota = {};
  }

  snapshot(): StatisticsSnapshot {
    const { drawn, used, unused } = this;
    return {
      ...{ drawn, used, unused },
      quota: { ...this.quota },
      budget: this.budget.record(),
      ...(this.learnedMax === Infinity ? {} : { learnedMost: this.learnedMax }),
    };
  }
}

/** The day of the service at `wallAt` (epoch ms), as a number of days since 1970. */
export function serviceDay(wallAt: number): number {
  return Math.floor((wallAt + SERVICE_ZONE_OFFSET_MS) / DAY_MS);
}

/** The time in ms from the moment `wallAt` (epoch ms) to the service's next midnight; above 0. */
export function untilServiceMidnight(wallAt: number): number {
  return (serviceDay(wallAt) + 1) * DAY_MS - SERVICE_ZONE_OFFSET_MS - wallAt;
}

/**
 * Counts the distinct IPs of one day of the service. If the wall clock moves back to the previous day, the count
 * continues. If it moves back further, a new count starts, so that a wall clock that was years ahead does not block the
 * budget for years.
 */
export class DailyBudget {
  #day: number;
  #drawn: Set<string>;
  readonly #shared: SharedCount | undefined;

  constructor(wallAt: number, record?: StatisticsSnapshot['budget'], shared?: SharedCount) {
    this.#shared = shared;
    this.#day = record?.day ?? serviceDay(wallAt);
    this.#drawn = new Set(record?.drawn);
  }

  add(ips: readonly string[], wallAt: number): void {
    this.#startDay(wallAt);
    for (const ip of ips) this.#drawn.add(ip);
    this.#shared?.add(ips);
  }

  /** Adds all IPs of today to the shared count again. Call it when the fleet's store may have lost some of them. */
  shareAgain(wallAt: number): void {
    this.#startDay(wallAt);
    if (this.#drawn.size > 0) this.#shared?.add([...this.#drawn]);
  }

  used(wallAt: number): number {
    this.#startDay(wallAt);
    return Math.max(this.#drawn.size, this.#shared?.used() ?? 0);
  }

  record(): StatisticsSnapshot['budget'] {
    return { day: this.#day, drawn: [...this.#drawn] };
  }

  #startDay(wallAt: number): void {
    const day = serviceDay(wallAt);
    const isSameDayOrSetBack = day === this.#day || day === this.#day - 1;
    if (isSameDayOrSetBack) return;
    this.#day = day;
    this.#drawn = new Set();
  }
}
