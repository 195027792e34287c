/** What one dial may still spend: attempts through members, and time waiting for one. */

import { FULL_REPORT } from './blame.ts';

export interface AttemptBudgetSettings {
  /** Members tried for one client request; fast failures do not count. */
  readonly attempts: number;
  /** For the whole dial, including the wait for a member. */
  readonly deadlineMs: number;
  readonly waitForMemberMs: number;
}

/** A failure within this time costs the client next to nothing, so the attempt does not count. */
export const FAST_FAILURE_MS = 100;
/** Limit for all attempts of a dial, including those that do not count. */
export const MAX_ATTEMPTS = 10;
/** Members that must report a target as unreachable before the dial gives up. */
const REPORTS = 2;
/** The same for a target that another member reached recently: then wrong reports are likelier than a dead target. */
const REPORTS_AFTER_REACHED = 5;
/** So soon after a member has reached the target, no number of reports ends the dial. */
const JUST_REACHED_MS = 5_000;
/** Limit of the wait for a member after a first report that the target is unreachable. */
export const SECOND_REPORT_WAIT_MS = 2_000;

export class AttemptBudget {
  readonly #settings: AttemptBudgetSettings;
  #attempts = 0;
  #slowFailures = 0;
  #waitedMs = 0;

  constructor(settings: AttemptBudgetSettings) {
    this.#settings = settings;
  }

  /** Attempts so far, including those that do not count. */
  get attempts(): number {
    return this.#attempts;
  }

  /** Ms spent waiting for members so far. */
  get waitedMs(): number {
    return this.#waitedMs;
  }

  started(): void {
    this.#attempts += 1;
  }

  /** An attempt failed after `ms`. */
  failed(ms: number): void {
    if (ms >= FAST_FAILURE_MS) this.#slowFailures += 1;
  }

  waited(ms: number): void {
    this.#waitedMs += ms;
  }

  /**
   * Whether another attempt may start.
   *
   * @param reportPoints - the sum over the reports that the target is unreachable; `FULL_REPORT` for a full one.
   * @param sinceReachedMs - since a member last reached the target; Infinity if that was not recent.
   */
  allowsAnother(running: number, reportPoints: number, sinceReachedMs: number): boolean {
    const left = this.#settings.attempts - this.#slowFailures - running;
    const reports = reportsNeeded(sinceReachedMs);
    return left > 0 && this.#attempts < MAX_ATTEMPTS && reportPoints < reports * FULL_REPORT;
  }

  /** How long the dial may wait for its next member. @param elapsedMs - since the start of the dial. */
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
