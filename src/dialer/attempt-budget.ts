/** Limits what one dial may spend: attempts through members, and time spent waiting for a member. */

import { FULL_REPORT } from './blame.ts';

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
/** How many members must report that they cannot reach the target before the dial gives up. */
const REPORTS = 2;
/** Replaces REPORTS when a member reached the target recently: reports are then more likely to be wrong. */
const REPORTS_AFTER_REACHED = 5;
/** For this time after a member has reached the target, reports do not end the dial, however many there are. */
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

  /** Records that an attempt failed after `ms`. */
  failed(ms: number): void {
    if (ms >= FAST_FAILURE_MS) this.#slowFailures += 1;
  }

  waited(ms: number): void {
    this.#waitedMs += ms;
  }

  /**
   * Whether another attempt may start.
   * @param reportPoints - the sum of the points for reports that the target is unreachable (see
   *   `DialBlame.reportPoints`).
   * @param sinceReachedMs - the time since a member last reached the target; Infinity if no member reached it recently.
   */
  allowsAnother(running: number, reportPoints: number, sinceReachedMs: number): boolean {
    const left = this.#settings.attempts - this.#slowFailures - running;
    const reports = reportsNeeded(sinceReachedMs);
    return left > 0 && this.#attempts < MAX_ATTEMPTS && reportPoints < reports * FULL_REPORT;
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
  return sinceReachedMs < Infinity ? REPORTS_AFTER_REACHED : REPORTS;
}
