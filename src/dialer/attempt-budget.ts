/**
 * Two limits on attempts. `AttemptBudget` limits how many attempts one dial makes, and how long the dial waits for
 * members. `ClientBudgets` limits the further attempts that the failing requests of one client may cause.
 */

import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { FULL_REPORT_POINTS } from './blame.ts';

export interface AttemptBudgetSettings {
  /**
   * The maximum number of members to try for one client request. Attempts that fail within FAST_FAILURE_MS do not
   * count.
   */
  readonly attempts: number;
  /** The time limit of the whole dial, including the wait for a member. */
  readonly deadlineMs: number;
  readonly waitForMemberMs: number;
}

/** An attempt that fails within this time does not count towards `attempts`: the client hardly notices the delay. */
export const FAST_FAILURE_MS = 100;
/** The maximum number of attempts of a dial, including those that fail fast. */
export const MAX_ATTEMPTS = 10;
/** The dial gives up when this number of members have reported that they cannot reach the target. */
const MIN_REPORTS = 2;
/**
 * Used instead of MIN_REPORTS if a member reached the target recently. A member that does not reach the target is then
 * more likely to be at fault itself, so the dial waits for more reports before it gives up.
 */
const MIN_REPORTS_AFTER_REACHED = 5;
/**
 * Within this time after a member has reached the target, the dial does not give up, however many members report that
 * the target is unreachable.
 */
const JUST_REACHED_MS = 5_000;
/**
 * After the first report that a member cannot reach the target, the dial waits at most this long for another member.
 */
export const SECOND_REPORT_WAIT_MS = 2_000;

export class AttemptBudget {
  readonly #settings: AttemptBudgetSettings;
  #attempts = 0;
  #slowFailures = 0;
  #waitedMs = 0;

  constructor(settings: AttemptBudgetSettings) {
    this.#settings = settings;
  }

  /** The number of attempts so far, including those that failed fast. */
  get attempts(): number {
    return this.#attempts;
  }

  /** The time spent waiting for members so far, in ms. */
  get waitedMs(): number {
    return this.#waitedMs;
  }

  started(): void {
    this.#attempts += 1;
  }

  failed(ms: number): void {
    if (ms >= FAST_FAILURE_MS) this.#slowFailures += 1;
  }

  waited(ms: number): void {
    this.#waitedMs += ms;
  }

  /**
   * Whether another attempt may start.
   * @param reportPoints - how strongly the failures so far show that the target is unreachable (see
   * `DialBlame.reportPoints`).
   * @param sinceReachedMs - the time since a member last reached the target; Infinity if no member reached it recently.
   */
  allowsAnother(running: number, reportPoints: number, sinceReachedMs: number): boolean {
    const left = this.#settings.attempts - this.#slowFailures - running;
    const reports = reportsNeeded(sinceReachedMs);
    return left > 0 && this.#attempts < MAX_ATTEMPTS && reportPoints < reports * FULL_REPORT_POINTS;
  }

  /**
   * How long the dial may wait for its next member.
   * @param elapsedMs - the time since the start of the dial.
   */
  maxWaitMs(elapsedMs: number, reportPoints: number): number {
    const { waitForMemberMs, deadlineMs } = this.#settings;
    const leftMs = Math.max(0, Math.min(waitForMemberMs - this.#waitedMs, deadlineMs - elapsedMs));
    return reportPoints > 0 ? Math.min(leftMs, SECOND_REPORT_WAIT_MS) : leftMs;
  }
}

function reportsNeeded(sinceReachedMs: number): number {
  if (sinceReachedMs <= JUST_REACHED_MS) return Infinity;
  return sinceReachedMs < Infinity ? MIN_REPORTS_AFTER_REACHED : MIN_REPORTS;
}

/** The maximum of a client's budget for further attempts. */
export const CLIENT_BURST = 100;
/** Each second adds this number of further attempts to each client's budget. */
export const CLIENT_ATTEMPTS_PER_SECOND = 10;
/**
 * Each attempt for any client adds this number to the budgets of all clients. So the limit is higher on a busy
 * noria.
 */
const EARNED_PER_ATTEMPT = 0.1;
/** How many clients with failed requests to remember. A forgotten client starts again with a full budget. */
const MAX_CLIENTS = 4_096;

interface ClientBudget {
  left: number;
  at: number;
  /** How many attempts noria had made for all clients by the moment `at`. */
  attempts: number;
}

/**
 * Limits how many further attempts the failing requests of one client may cause. Without the limit, each request for a
 * target that does not exist would occupy several members. The limit applies only to failures that the target can
 * cause. If such a failure occurs when the client's budget is used up, the request tries no further member. Failures
 * that only a member can cause are not limited: for example, noria cannot connect to the member.
 */
export class ClientBudgets {
  readonly #clock: Clock;
  readonly #budgets = new BoundedMap<string, ClientBudget>(MAX_CLIENTS);
  #attempts = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  attempted(): void {
    this.#attempts += 1;
  }

  /** Whether a request of the client may try another member after a failed attempt. */
  allows(client: string): boolean {
    const budget = this.#budgets.get(client);
    return budget === undefined || this.#refill(budget) >= 1;
  }

  /**
   * Takes the further attempts of a failed request from the client's budget.
   * @param attempts - the number of attempts after the first.
   */
  charge(client: string, attempts: number): void {
    if (attempts <= 0) return;
    const budget = this.#budgets.get(client) ?? this.#full();
    this.#refill(budget);
    budget.left = Math.max(0, budget.left - attempts);
    this.#budgets.set(client, budget);
  }

  #full(): ClientBudget {
    return { left: CLIENT_BURST, at: this.#clock.monotonic(), attempts: this.#attempts };
  }

  #refill(budget: ClientBudget): number {
    const now = this.#clock.monotonic();
    const earned =
      ((now - budget.at) / 1_000) * CLIENT_ATTEMPTS_PER_SECOND +
      (this.#attempts - budget.attempts) * EARNED_PER_ATTEMPT;
    budget.left = Math.min(CLIENT_BURST, budget.left + earned);
    budget.at = now;
    budget.attempts = this.#attempts;
    return budget.left;
  }
}
