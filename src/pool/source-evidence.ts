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
/** Trial evictions that each new member adds: they cost at most a tenth more members. */
const TRIAL_EVICTIONS_PER_MEMBER = 0.1;

export class SourceEvidence {
  /** Accepted attempts, and failures before the member accepted. */
  readonly accepts: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  /** Answers of targets, and tunnels that the member closed without one. */
  readonly answers: SourceTotals = { successes: 0, failures: 0, succeededAt: Number.NEGATIVE_INFINITY };
  #trialEvictions = Number.POSITIVE_INFINITY;
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
    this.#trialEvictions += TRIAL_EVICTIONS_PER_MEMBER;
    this.#limitTrialEvictions(size);
  }

  /** Takes one trial eviction; false if they are used up. */
  spendTrialEviction(size: number): boolean {
    this.#limitTrialEvictions(size);
    if (this.#trialEvictions < 1) return false;
    this.#trialEvictions -= 1;
    return true;
  }

  /** At most a tenth of the source's size at once, and at the start. */
  #limitTrialEvictions(size: number): void {
    this.#trialEvictions = Math.min(this.#trialEvictions, Math.max(1, size * TRIAL_EVICTIONS_PER_MEMBER));
  }
}
