/**
 * Counts the distinct IPs that a source draws on one day of the service, for the `dailyBudget` of the source.
 *
 * The day begins at midnight in the service's time zone, by the wall clock. If the wall clock moves back to the
 * previous day, the count continues. If it moves back further, a new count starts, so that a wall clock that was years
 * ahead does not block the budget for years.
 */
import { DAY_MS } from '../core/duration.ts';
import { SERVICE_ZONE_OFFSET_MS } from '../service/codes.ts';

interface BudgetRecord {
  readonly day: number;
  readonly drawn: readonly string[];
}

/** The number of distinct IPs that all norias of a fleet have drawn today. */
export interface SharedCount {
  add(ips: readonly string[]): void;
  /**
   * Returns the number that this noria last read from the fleet's store. Other norias may have drawn more IPs since
   * then.
   */
  used(): number;
}

/** Returns the day of the service at `wallAt` (epoch ms), as a number of days since 1970. */
export function serviceDay(wallAt: number): number {
  return Math.floor((wallAt + SERVICE_ZONE_OFFSET_MS) / DAY_MS);
}

/** The time in ms from the moment `wallAt` (epoch ms) to the service's next midnight; above 0. */
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

  /** Counts drawn IPs. An IP counts only once a day. */
  add(ips: Iterable<string>, wallAt: number): void {
    this.#startDay(wallAt);
    for (const ip of ips) this.#drawn.add(ip);
    this.#shared?.add([...ips]);
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
