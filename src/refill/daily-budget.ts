/**
 * Counts the distinct IPs drawn on one day of the service, for the `dailyBudget` of a source.
 *
 * The day begins at midnight in the service's time zone, by the wall clock. If the clock is set back across one
 * midnight, no new day starts. A larger step back starts a new day, so that a clock that was years ahead does not block
 * the budget.
 */
import { SERVICE_ZONE_OFFSET_MS } from '../service/codes.ts';

/** The budget as stored in the snapshot. */
export interface BudgetRecord {
  readonly day: number;
  readonly drawn: readonly string[];
}

/** The number of distinct IPs that all norias of a fleet have drawn today. */
export interface SharedCount {
  add(ips: readonly string[]): void;
  /** Returns the last known number. */
  used(): number;
}

const DAY_MS = 24 * 3_600_000;

/** The number of the service's day at epoch ms `wallAt`. */
export function serviceDay(wallAt: number): number {
  return Math.floor((wallAt + SERVICE_ZONE_OFFSET_MS) / DAY_MS);
}

/** Ms from epoch ms `wallAt` to the service's next midnight; always positive. */
export function untilServiceMidnight(wallAt: number): number {
  return (serviceDay(wallAt) + 1) * DAY_MS - SERVICE_ZONE_OFFSET_MS - wallAt;
}

export class DailyBudget {
  #day: number;
  #drawn: Set<string>;
  readonly #shared: SharedCount | undefined;

  constructor(wallAt: number, record?: BudgetRecord, shared?: SharedCount) {
    this.#shared = shared;
    this.#day = record?.day ?? serviceDay(wallAt);
    this.#drawn = new Set(record?.drawn);
  }

  /** Counts drawn IPs. Each IP counts once a day. */
  add(ips: Iterable<string>, wallAt: number): void {
    this.#startDay(wallAt);
    for (const ip of ips) this.#drawn.add(ip);
    this.#shared?.add([...ips]);
  }

  /** The number of distinct IPs drawn today. */
  used(wallAt: number): number {
    this.#startDay(wallAt);
    return Math.max(this.#drawn.size, this.#shared?.used() ?? 0);
  }

  record(): BudgetRecord {
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
