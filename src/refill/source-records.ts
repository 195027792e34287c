/**
 * Counts what a source has drawn, used and wasted. Also keeps its quota at the service and the usual duration of its
 * calls. The records survive restarts.
 */
import { z } from 'zod';
import type { Quota } from '../service/answer.ts';
import { DailyBudget, type SharedCount } from './daily-budget.ts';

/** Counts since the state folder was created. */
export interface Counts {
  /** Members that the pool accepted, and proxies that noria may not use. All of them cost money. */
  drawn: number;
  /** Removed members that clients used. */
  used: number;
  /** Removed members that no client used. */
  unused: number;
  /** Tunnels and requests that removed members accepted. */
  tunnels: number;
}

/** The first estimate of how long a call takes. */
export const DEFAULT_LATENCY_MS = 1_000;
/** The weight of a new measurement in the moving average. */
const LATENCY_WEIGHT = 0.3;

const count = z.int().nonnegative();

/** A missing or invalid field counts as not stored. */
const snapshotSchema = z.object({
  drawn: count.catch(0),
  used: count.catch(0),
  unused: count.catch(0),
  tunnels: count.catch(0),
  codes: z.record(z.string(), count).catch({}),
  quota: z.record(z.string(), count).catch({}),
  budget: z.object({ day: count, drawn: z.array(z.string()).readonly() }).catch({ day: 0, drawn: [] }),
  /** The maximum per call that noria learned from refusals (12003); absent: unknown. */
  learnedMost: count.min(1).optional().catch(undefined),
});

/** The records as stored in the snapshot file. */
export type SourceRecordsSnapshot = z.infer<typeof snapshotSchema>;

const snapshotsSchema = z.record(z.string(), snapshotSchema.optional().catch(undefined)).catch({});

/** Reads the records of all sources, by name. Leaves out unreadable records. */
export function readRecords(value: unknown): ReadonlyMap<string, SourceRecordsSnapshot | undefined> {
  return new Map(Object.entries(snapshotsSchema.parse(value)));
}

export class SourceRecords {
  readonly counts: Counts;
  readonly codes: Map<string, number>;
  readonly budget: DailyBudget;
  quota: Quota;
  /** The maximum per call that noria learned from refusals (12003). */
  learnedMax: number;
  #latencyMs: number | undefined;

  constructor(wallAt: number, snapshot: SourceRecordsSnapshot | undefined, shared?: SharedCount) {
    const { drawn = 0, used = 0, unused = 0, tunnels = 0 } = snapshot ?? {};
    this.counts = { drawn, used, unused, tunnels };
    this.codes = new Map(Object.entries(snapshot?.codes ?? {}));
    this.budget = new DailyBudget(wallAt, snapshot?.budget, shared);
    this.quota = snapshot?.quota ?? {};
    this.learnedMax = snapshot?.learnedMost ?? Infinity;
  }

  /** The usual time from the start of a call until its members are usable. */
  get latencyMs(): number {
    return this.#latencyMs ?? DEFAULT_LATENCY_MS;
  }

  /** How many distinct IPs the daily budget and the service's quota still allow. */
  quotaLeft(dailyBudget: number | undefined, wallAt: number): number {
    const budgetLeft = dailyBudget === undefined ? Infinity : dailyBudget - this.budget.used(wallAt);
    // "0 left" already paused the source. After the pause noria asks the service again, so the old count must not limit
    // the draw.
    const { remaining = 0 } = this.quota;
    return remaining > 0 ? Math.min(budgetLeft, remaining) : budgetLeft;
  }

  /** @param tookMs - undefined when no answer came, because that says nothing about the latency. */
  countCall(code: string, tookMs: number | undefined): void {
    this.codes.set(code, (this.codes.get(code) ?? 0) + 1);
    if (tookMs === undefined) return;
    this.#latencyMs =
      this.#latencyMs === undefined ? tookMs : this.#latencyMs + (tookMs - this.#latencyMs) * LATENCY_WEIGHT;
  }

  /** @param uses - the tunnels and requests that the removed member accepted. */
  countRemoved(uses: number): void {
    if (uses > 0) this.counts.used += 1;
    else this.counts.unused += 1;
    this.counts.tunnels += uses;
  }

  /** Counts drawn proxies that noria may not use but that cost money. */
  countForbidden(forbidden: number): void {
    this.counts.drawn += forbidden;
    this.counts.unused += forbidden;
  }

  /** Removes what applies only to the old instance, after the configuration names another one. */
  forgetInstance(): void {
    this.learnedMax = Infinity;
    this.quota = {};
  }

  snapshot(): SourceRecordsSnapshot {
    return {
      ...this.counts,
      codes: Object.fromEntries(this.codes),
      quota: { ...this.quota },
      budget: this.budget.record(),
      ...(this.learnedMax === Infinity ? {} : { learnedMost: this.learnedMax }),
    };
  }
}
