/** What the members of one source did together: what a failure of one of them is compared with. */

/** Successes and suspect failures of all members of a source, since its start. */
export interface SourceTotals {
  successes: number;
  failures: number;
  /** Monotonic moment of the last success. */
  succeededAt: number;
}

/** How long a client counts as served after a success. */
const CLIENT_SERVED_MS = 10 * 60_000;
/** Trials that each new member adds: they cost at most a tenth more members. */
const TRIALS_PER_MEMBER = 0.1;

export class SourceEvidence {
  /** Accepted attempts, and failures before the member accepted. */
  readonly accepts: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  /** Answers of targets, and tunnels that the member closed without one. */
  readonly answers: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  #trials = Number.POSITIVE_INFINITY;
  /** The client served last. The two times, of this client and of any other, answer `servedOther` for every client. */
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

  /** A member joined a source of this size. */
  memberJoined(size: number): void {
    this.#trials += TRIALS_PER_MEMBER;
    this.#limitTrials(size);
  }

  /** Takes one trial; false if they are used up. */
  spendTrial(size: number): boolean {
    this.#limitTrials(size);
    if (this.#trials < 1) return false;
    this.#trials -= 1;
    return true;
  }

  /** At most a tenth of the source's size at once, and at the start. */
  #limitTrials(size: number): void {
    this.#trials = Math.min(this.#trials, Math.max(1, size * TRIALS_PER_MEMBER));
  }
}
