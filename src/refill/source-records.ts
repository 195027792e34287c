/** What a source has drawn and what came of it, what the service said about quotas, and what was learned on the way. */
import type { Quota } from '../service/answer.ts';
import { type BudgetRecord, DailyBudget } from './daily-budget.ts';

/** Counts since the state folder was new. */
export interface Counts {
  /** Members that draws brought: those that the pool took, and those that noria may not use. */
  drawn: number;
  /** Of those that are gone, how many were used, and how many never were. */
  used: number;
  unused: number;
  /** Accepted tunnels and requests of members that are gone: what the drawn ones were for. */
  tunnels: number;
}

/** As kept in a snapshot. */
export interface SourceRecordsSnapshot extends Counts {
  readonly codes: Readonly<Record<string, number>>;
  readonly quota: Quota;
  readonly budget: BudgetRecord;
  /** The most to ask for in one call, as learned from refusals; absent: nothing was learned. */
  readonly learnedMost?: number;
}

/** A first guess at how long a call takes, until one was measured. */
export const GUESSED_LATENCY_MS = 1_000;
/** How much a new measurement counts. */
const LATENCY_WEIGHT = 0.3;

export class SourceRecords {
  readonly counts: Counts;
  readonly codes: Map<string, number>;
  readonly budget: DailyBudget;
  quota: Quota;
  learnedMost: number;
  #latencyMs: number | undefined;

  constructor(wallAt: number, record: SourceRecordsSnapshot | undefined) {
    const { drawn = 0, used = 0, unused = 0, tunnels = 0 } = record ?? {};
    this.counts = { drawn, used, unused, tunnels };
    this.codes = new Map(Object.entries(record?.codes ?? {}));
    this.budget = new DailyBudget(wallAt, record?.budget);
    this.quota = record?.quota ?? {};
    this.learnedMost = record?.learnedMost ?? Infinity;
  }

  /** How long calls usually take, sending to landing. */
  get latencyMs(): number {
    return this.#latencyMs ?? GUESSED_LATENCY_MS;
  }

  /** Distinct IPs that the budget and the service's quota still allow. */
  allowance(dailyBudget: number | undefined, wallAt: number): number {
    const left = dailyBudget === undefined ? Infinity : dailyBudget - this.budget.used(wallAt);
    // "0 left" was answered with a rest; when that is over the service is asked again, not the old number.
    const { remaining = 0 } = this.quota;
    return remaining > 0 ? Math.min(left, remaining) : left;
  }

  noteCall(code: string, tookMs: number | undefined): void {
    this.codes.set(code, (this.codes.get(code) ?? 0) + 1);
    if (tookMs === undefined) return;
    this.#latencyMs =
      this.#latencyMs === undefined ? tookMs : this.#latencyMs + (tookMs - this.#latencyMs) * LATENCY_WEIGHT;
  }

  /** A member that was drawn is gone, after `uses` accepted tunnels. */
  noteGone(uses: number): void {
    if (uses > 0) this.counts.used += 1;
    else this.counts.unused += 1;
    this.counts.tunnels += uses;
  }

  /** So many were drawn that noria may not use: as good as gone, and never used. */
  noteForbidden(count: number): void {
    this.counts.drawn += count;
    this.counts.unused += count;
  }

  /** Another instance is drawn from now: what was learned of the one before says nothing about it. */
  forgetInstance(): void {
    this.learnedMost = Infinity;
    this.quota = {};
  }

  record(): SourceRecordsSnapshot {
    const learned = this.learnedMost === Infinity ? {} : { learnedMost: this.learnedMost };
    return {
      ...this.counts,
      codes: Object.fromEntries(this.codes),
      quota: this.quota,
      budget: this.budget.record(),
      ...learned,
    };
  }
}

/** A record out of a snapshot; whatever is missing or not what it should be counts as never written. */
export function readLedger(value: unknown): SourceRecordsSnapshot | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const raw = value as Partial<Record<keyof SourceRecordsSnapshot, unknown>>;
  const most = whole(raw.learnedMost);
  return {
    drawn: whole(raw.drawn) ?? 0,
    used: whole(raw.used) ?? 0,
    unused: whole(raw.unused) ?? 0,
    tunnels: whole(raw.tunnels) ?? 0,
    codes: wholes(raw.codes),
    quota: wholes(raw.quota),
    budget: readBudget(raw.budget),
    ...(most === undefined || most < 1 ? {} : { learnedMost: most }),
  };
}

function readBudget(value: unknown): BudgetRecord {
  const { day, drawn } = (typeof value === 'object' && value !== null ? value : {}) as Record<
    string,
    unknown
  >;
  const names = Array.isArray(drawn) ? drawn.filter((name): name is string => typeof name === 'string') : [];
  return { day: whole(day) ?? 0, drawn: names };
}

function wholes(value: unknown): Record<string, number> {
  if (typeof value !== 'object' || value === null) return {};
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, raw]) => {
      const number = whole(raw);
      return number === undefined ? [] : [[name, number]];
    }),
  );
}

function whole(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
