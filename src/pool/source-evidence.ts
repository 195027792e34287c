/** Counts the successes and failures of all members of a source. The failures of a single member are compared with these counts. */
import { MINUTE_MS } from '../core/duration.ts';

export interface SourceTotals {
  successes: number;
  failures: number;
  /** Monotonic moment of the last success. */
  succeededAt: number;
}

/** How long a success counts as evidence that a client is served. */
const CLIENT_SERVED_MS = 10 * MINUTE_MS;
/**
 * Each new member adds this much to the budget of trials, so trials cause at most a tenth more draws. In a trial, a draw replaces
 * a member that may be good, to find out whether new members work.
 */
const TRIALS_PER_MEMBER = 0.1;

export class SourceEvidence {
  /** A success is an accepted attempt. A failure is an attempt that failed before the member accepted. */
  readonly accepts: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  /** A success is an answer from a target. A failure is a tunnel that the member closed before an answer. */
  readonly answers: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  #trials = Number.POSITIVE_INFINITY;
  /** The client that a target answered last, and when. `#otherAt`: when a target last answered a different client. */
  #latestClient: string | undefined;
  #latestAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  recordAccept(now: number): void {
    this.accepts.successes += 1;
    this.accepts.succeededAt = now;
  }

  recordAnswer(client: string, now: number): void {
    this.answers.successes += 1;
    this.answers.succeededAt = now;
    if (client !== this.#latestClient) {
      this.#otherAt = this.#latestAt;
      this.#latestClient = client;
    }
    this.#latestAt = now;
  }

  /** Whether a target answered another client within CLIENT_SERVED_MS. */
  servedOther(client: string, now: number): boolean {
    const at = client === this.#latestClient ? this.#otherAt : this.#latestAt;
    return now - at <= CLIENT_SERVED_MS;
  }

  /**
   * Counts a new member.
   * @param size - size of the source.
   */
  memberJoined(size: number): void {
    this.#trials += TRIALS_PER_MEMBER;
    this.#limitTrials(size);
  }

  /** Takes one trial from the budget; false if the budget is used up. */
  spendTrial(size: number): boolean {
    this.#limitTrials(size);
    if (this.#trials < 1) return false;
    this.#trials -= 1;
    return true;
  }

  /** Limits the budget to a tenth of the source's size, but at least 1. The budget starts at this limit. */
  #limitTrials(size: number): void {
    this.#trials = Math.min(this.#trials, Math.max(1, size * TRIALS_PER_MEMBER));
  }
}
