/**
 * What a source learns from its draws: how many members it drew, used and wasted, the distinct IPs of the service's day, the
 * service's quota, the usual duration of calls, and how many members are dead on arrival. The counts, the quota and the share of
 * dead members survive a restart.
 */
import { z } from 'zod';
import { DAY_MS } from '../core/duration.ts';
import type { Quota } from '../service/answer.ts';
import { SERVICE_ZONE_OFFSET_MS } from '../service/codes.ts';

export const DEFAULT_LATENCY_MS = 1_000;
const LATENCY_WEIGHT = 0.3;
/** Until the first draw, and while the service tells no lifetimes. */
const DEFAULT_LIFETIME_MS = 60_000;
const LIFETIME_WEIGHT = 0.2;
/** After this number of draws in a row that added no usable member, the time between draws grows. One is normal. */
const MAX_FRUITLESS_DRAWS = 3;
const DISTRUST_AFTER = 10;
/** Higher, because most free proxies do not work. */
const DISTRUST_AFTER_UNPROVEN = 100;
const MAX_SPACING_MS = 120_000;
const DEAD_WEIGHT = 0.05;
const MAX_DEAD_SHARE = 0.8;

const count = z.int().nonnegative();

/** An invalid field counts as missing. */
const snapshotSchema = z.object({
  drawn: count.catch(0),
  used: count.catch(0),
  unused: count.catch(0),
  quota: z.record(z.string(), count).catch({}),
  budget: z.object({ day: count, drawn: z.array(z.string()).readonly() }).catch({ day: 0, drawn: [] }),
  /** The maximum count per call that noria learned from refusals (12003); absent: unknown. */
  learnedMost: count.min(1).optional().catch(undefined),
  deadShare: z.number().min(0).max(1).optional().catch(undefined),
});

export type StatisticsSnapshot = z.infer<typeof snapshotSchema>;

const snapshotsSchema = z.record(z.string(), snapshotSchema.optional().catch(undefined)).catch({});

/** By the name of the source; undefined if unreadable. */
export function readStatistics(value: unknown): ReadonlyMap<string, StatisticsSnapshot | undefined> {
  return new Map(Object.entries(snapshotsSchema.parse(value)));
}

/** The distinct IPs that all norias of a fleet have drawn today. */
export interface SharedCount {
  add(ips: readonly string[]): void;
  /** The number that this noria last read from the fleet's store. Others may have drawn more IPs since then. */
  used(): number;
}

/**
 * While draws bring no members, or only members that fail before their first use, the time between draws grows. So even a
 * whole day of fruitless draws costs only a few hundred calls and members.
 */
export class SourceStatistics {
  /** Members that the pool accepted, plus proxies that noria must not use: both cost money. Since the state folder was created. */
  drawn: number;
  used: number;
  /** Removed members that no client had used, plus proxies that noria must not use. */
  unused: number;
  readonly budget: DailyBudget;
  quota: Quota;
  learnedMax: number;
  /** The usual time in ms from the start of a call until its members are usable. */
  latencyMs = DEFAULT_LATENCY_MS;
  #hasLatency = false;
  /** How long a drawn member usually lives from its draw, in ms. */
  lifetimeMs = DEFAULT_LIFETIME_MS;
  #hasLifetime = false;
  /** The share of the latest members that failed before their first use. */
  deadShare: number;
  failedInARow = 0;
  readonly #distrustAfter: number;
  #fruitlessDraws = 0;
  #distrustedDraws = 0;
  #notBeforeAt = 0;

  constructor(
    wallAt: number,
    snapshot: StatisticsSnapshot | undefined,
    { unproven, shared }: { readonly unproven: boolean; readonly shared?: SharedCount | undefined },
  ) {
    this.drawn = snapshot?.drawn ?? 0;
    this.used = snapshot?.used ?? 0;
    this.unused = snapshot?.unused ?? 0;
    this.budget = new DailyBudget(wallAt, snapshot?.budget, shared);
    this.quota = snapshot?.quota ?? {};
    this.learnedMax = snapshot?.learnedMost ?? Infinity;
    this.deadShare = snapshot?.deadShare ?? 0;
    this.#distrustAfter = unproven ? DISTRUST_AFTER_UNPROVEN : DISTRUST_AFTER;
  }

  get isDistrusted(): boolean {
    return this.failedInARow >= this.#distrustAfter;
  }

  get isPromising(): boolean {
    return this.#fruitlessDraws === 0 && !this.isDistrusted;
  }

  quotaLeft(dailyBudget: number | undefined, wallAt: number): number {
    const budgetLeft = dailyBudget === undefined ? Infinity : dailyBudget - this.budget.used(wallAt);
    // A reported quota of 0 does not prevent the next draw: only a draw can find out whether IPs are left again. After
    // such a report, noria suspends the source for some time, so draws are rare.
    const { remaining = 0 } = this.quota;
    return remaining > 0 ? Math.min(budgetLeft, remaining) : budgetLeft;
  }

  /** An urgent draw starts at once, unless noria distrusts the source: its new members would probably fail. */
  notBeforeAt(urgent: boolean): number {
    return urgent && !this.isDistrusted ? 0 : this.#notBeforeAt;
  }

  /**
   * @param gained - how many more members are usable because of the draw.
   * @param gapMs - from the answer of one call to the next call.
   */
  recordDraw(gained: number, now: number, gapMs: number): void {
    this.#fruitlessDraws = gained > 0 ? 0 : this.#fruitlessDraws + 1;
    this.#distrustedDraws = this.isDistrusted ? this.#distrustedDraws + 1 : 0;
    const doublings = Math.max(this.#fruitlessDraws - MAX_FRUITLESS_DRAWS + 1, this.#distrustedDraws);
    this.#notBeforeAt = doublings > 0 ? now + Math.min(MAX_SPACING_MS, gapMs * 2 ** doublings) : 0;
  }

  recordLatency(tookMs: number): void {
    this.latencyMs = this.#hasLatency ? this.latencyMs + (tookMs - this.latencyMs) * LATENCY_WEIGHT : tookMs;
    this.#hasLatency = true;
  }

  /** In ms; Infinity if unknown. */
  recordLifetimes(lifetimes: readonly number[]): void {
    const known = lifetimes.filter((ms) => ms > 0 && ms < Infinity);
    if (known.length === 0) return;
    const mean = known.reduce((sum, ms) => sum + ms, 0) / known.length;
    this.lifetimeMs = this.#hasLifetime ? this.lifetimeMs + (mean - this.lifetimeMs) * LIFETIME_WEIGHT : mean;
    this.#hasLifetime = true;
  }

  /** Runs for every tunnel, so it must be fast. */
  recordUse(): void {
    if (this.failedInARow === 0) return;
    if (this.isDistrusted) this.#notBeforeAt = 0;
    this.failedInARow = 0;
    this.#distrustedDraws = 0;
  }

  /** @returns whether noria now begins to distrust the source. */
  recordRemoval(
    uses: number,
    { hasFailed, isOwn }: { readonly hasFailed: boolean; readonly isOwn: boolean },
  ): boolean {
    // `drawn` counts the draws of this noria, so members that other norias of the fleet drew count there
    if (isOwn && uses > 0) this.used += 1;
    else if (isOwn) this.unused += 1;
    if (uses > 0) this.deadShare -= this.deadShare * DEAD_WEIGHT;
    if (!hasFailed || uses > 0) return false;
    this.deadShare += (MAX_DEAD_SHARE - this.deadShare) * DEAD_WEIGHT;
    this.failedInARow += 1;
    return this.failedInARow === this.#distrustAfter;
  }

  forgetInstance(): void {
    this.learnedMax = Infinity;
    this.quota = {};
  }

  forgetDraws(): void {
    this.#fruitlessDraws = 0;
    this.failedInARow = 0;
    this.#distrustedDraws = 0;
    this.#notBeforeAt = 0;
  }

  snapshot(): StatisticsSnapshot {
    const { drawn, used, unused, learnedMax, deadShare } = this;
    return {
      ...{ drawn, used, unused },
      quota: { ...this.quota },
      budget: this.budget.record(),
      ...(learnedMax === Infinity ? {} : { learnedMost: learnedMax }),
      ...(deadShare > 0 && { deadShare }),
    };
  }
}

/** The day of the service, as a number of days since 1970. */
export function serviceDay(wallAt: number): number {
  return Math.floor((wallAt + SERVICE_ZONE_OFFSET_MS) / DAY_MS);
}

export function untilServiceMidnight(wallAt: number): number {
  return (serviceDay(wallAt) + 1) * DAY_MS - SERVICE_ZONE_OFFSET_MS - wallAt;
}

/**
 * The distinct IPs of one day of the service. If the wall clock moves back to the previous day, the count continues; further
 * back, a new one starts, so that a wall clock that was years ahead does not block the budget for years.
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
