/**
 * Counts what a source has drawn, used and wasted. Also keeps the service's quota and the usual duration of calls.
 * The counts and the quota survive a restart.
 */
import { z } from 'zod';
import type { Quota } from '../service/answer.ts';
import { DailyBudget, type SharedCount } from './daily-budget.ts';

/** Counts since the state folder was created. */
export interface Counts {
  /**
   * The number of members that the pool accepted, plus the number of proxies that noria must not use. Both cost money.
   */
  drawn: number;
  /** The number of removed members that clients had used. */
  used: number;
  /** The number of removed members that no client had used, plus the number of proxies that noria must not use. */
  unused: number;
}

export const DEFAULT_LATENCY_MS = 1_000;
/** The weight of the latest call in the moving average of the duration of calls. */
const LATENCY_WEIGHT = 0.3;

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
});

export type StatisticsSnapshot = z.infer<typeof snapshotSchema>;

const snapshotsSchema = z.record(z.string(), snapshotSchema.optional().catch(undefined)).catch({});

/**
 * Returns the statistics by the name of the source. The statistics of a source are undefined if they are unreadable.
 */
export function readStatistics(value: unknown): ReadonlyMap<string, StatisticsSnapshot | undefined> {
  return new Map(Object.entries(snapshotsSchema.parse(value)));
}

export class SourceStatistics {
  readonly counts: Counts;
  readonly budget: DailyBudget;
  quota: Quota;
  learnedMax: number;
  #latencyMs: number | undefined;

  constructor(wallAt: number, snapshot: StatisticsSnapshot | undefined, shared?: SharedCount) {
    const { drawn = 0, used = 0, unused = 0 } = snapshot ?? {};
    this.counts = { drawn, used, unused };
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

  /** Records the duration of an answered call, in ms. */
  recordLatency(tookMs: number): void {
    this.#latencyMs =
      this.#latencyMs === undefined ? tookMs : this.#latencyMs + (tookMs - this.#latencyMs) * LATENCY_WEIGHT;
  }

  countRemoved(wasUsed: boolean): void {
    if (wasUsed) this.counts.used += 1;
    else this.counts.unused += 1;
  }

  countForbidden(forbidden: number): void {
    this.counts.drawn += forbidden;
    this.counts.unused += forbidden;
  }

  /**
   * Removes the values that apply only to the old instance. Called after a reload has changed the instance of the
   * source.
   */
  forgetInstance(): void {
    this.learnedMax = Infinity;
    this.quota = {};
  }

  snapshot(): StatisticsSnapshot {
    return {
      ...this.counts,
      quota: { ...this.quota },
      budget: this.budget.record(),
      ...(this.learnedMax === Infinity ? {} : { learnedMost: this.learnedMax }),
    };
  }
}
