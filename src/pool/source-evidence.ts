/** What the members of one source did together, as the standard of comparison for the failures of a single member. */

/** Counts of all members of a source since the process started. */
export interface SourceTotals {
  successes: number;
  failures: number;
  /** Monotonic moment of the last success. */
  succeededAt: number;
}

/** For how long a success counts as evidence that a client is served. */
const CLIENT_SERVED_MS = 10 * 60_000;
/** Each new member adds this many replacements on trial, so trials draw at most a tenth more members. */
const TRIALS_PER_MEMBER = 0.1;

export class SourceEvidence {
  /** Successes: accepted attempts. Failures: attempts that failed before the member accepted. */
  readonly accepts: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  /** Successes: answers of targets. Failures: tunnels that the member closed before an answer. */
  readonly answers: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  #trials = Number.POSITIVE_INFINITY;
  /** The client served last. With the two moments below, `servedOther` can answer for any client. */
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

  /** Whether a target answered another client recently. */
  servedOther(client: string, now: number): boolean {
    const at = client === this.#latestClient ? this.#otherAt : this.#latestAt;
    return now - at <= CLIENT_SERVED_MS;
  }

  /**
   * Counts a new member.
   * @param size - of the source.
   */
  memberJoined(size: number): void {
    this.#trials += TRIALS_PER_MEMBER;
    this.#limitTrials(size);
  }

  /** Takes one replacement on trial from the budget; false if the budget is used up. */
  spendTrial(size: number): boolean {
    this.#limitTrials(size);
    if (this.#trials < 1) return false;
    this.#trials -= 1;
    return true;
  }

  /** The most trials at once, and the number at the start: a tenth of the source's size. */
  #limitTrials(size: number): void {
    this.#trials = Math.min(this.#trials, Math.max(1, size * TRIALS_PER_MEMBER));
  }
}
