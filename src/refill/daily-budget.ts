/**
 * Distinct IPs drawn on the service's day, against the most that the operator allows.
 *
 * The day begins at midnight of the service's zone, by the wall clock. A clock that is set back does not begin the
 * day anew; one that was a long way ahead does not stop it for years.
 */
import { SERVICE_ZONE_OFFSET_MS } from '../service/codes.ts';

/** As kept in a snapshot. */
export interface BudgetRecord {
  readonly day: number;
  readonly drawn: readonly string[];
}

const DAY_MS = 24 * 3_600_000;

/** The number of the service's day at epoch ms `wallAt`. */
export function serviceDay(wallAt: number): number {
  return Math.floor((wallAt + SERVICE_ZONE_OFFSET_MS) / DAY_MS);
}

/** Ms from epoch ms `wallAt` to the service's next midnight; more than 0. */
export function untilServiceMidnight(wallAt: number): number {
  return (serviceDay(wallAt) + 1) * DAY_MS - SERVICE_ZONE_OFFSET_MS - wallAt;
}

export class DailyBudget {
  #day: number;
  #drawn: Set<string>;

  constructor(wallAt: number, record?: BudgetRecord) {
    this.#day = record?.day ?? serviceDay(wallAt);
    this.#drawn = new Set(record?.drawn);
  }

  /** Counts what a draw brought: one name for each distinct IP. */
  note(names: Iterable<string>, wallAt: number): void {
    this.#turnDay(wallAt);
    for (const name of names) this.#drawn.add(name);
  }

  /** Distinct IPs drawn today. */
  used(wallAt: number): number {
    this.#turnDay(wallAt);
    return this.#drawn.size;
  }

  record(): BudgetRecord {
    return { day: this.#day, drawn: [...this.#drawn] };
  }

  #turnDay(wallAt: number): void {
    const day = serviceDay(wallAt);
    const isBehind = day === this.#day || day === this.#day - 1;
    if (isBehind) return;
    this.#day = day;
    this.#drawn = new Set();
  }
}
