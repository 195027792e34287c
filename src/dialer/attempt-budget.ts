/**
 * What one dial may still spend: tries through members, and time waiting for one.
 */

export interface AttemptBudgetSettings {
  /** Members tried for one client request; those that fail at once do not count. */
  readonly attempts: number;
  /** Everything, waiting for a member included. */
  readonly deadlineMs: number;
  readonly waitForMemberMs: number;
}

/** An attempt that fails sooner cost the client next to nothing: it does not count. */
export const FAST_FAILURE_MS = 100;
/** ...but there are no more than so many in all. */
export const MOST_TRIES = 10;
/** How many members must say that a target is unreachable. */
const OPINIONS = 2;
/** The same where another member reached it a moment ago: likelier than a target that died just now are members that deny it. */
const OPINIONS_OF_A_LIVING_TARGET = 5;
/** How long a client whose first member said "unreachable" waits for another one's opinion, when none is ready. */
export const SECOND_OPINION_WAIT_MS = 2_000;

/** How the dial stands. */
export interface Standing {
  /** Attempts under way. */
  readonly running: number;
  /** Members that said that they cannot reach the target. */
  readonly doubts: number;
}

export class AttemptBudget {
  readonly #settings: AttemptBudgetSettings;
  #triedCount = 0;
  #countedCount = 0;
  #waitedMs = 0;

  constructor(settings: AttemptBudgetSettings) {
    this.#settings = settings;
  }

  /** Members tried so far. */
  get triedCount(): number {
    return this.#triedCount;
  }

  /** Ms spent waiting for members so far. */
  get waitedMs(): number {
    return this.#waitedMs;
  }

  tried(): void {
    this.#triedCount += 1;
  }

  /** A try failed after `ms`. */
  failed(ms: number): void {
    if (ms >= FAST_FAILURE_MS) this.#countedCount += 1;
  }

  waited(ms: number): void {
    this.#waitedMs += ms;
  }

  /** @param reachable - another member reached the target a moment ago: the doubters may be wrong. */
  mayTryAnother({ running, doubts }: Standing, reachable: boolean): boolean {
    const opinions = reachable ? OPINIONS_OF_A_LIVING_TARGET : OPINIONS;
    const triesLeft = this.#settings.attempts - this.#countedCount - running;
    return triesLeft > 0 && this.#triedCount < MOST_TRIES && doubts < opinions;
  }

  /** How long to wait for the next member, `elapsedMs` after the start of the dial. */
  mayWaitMs(elapsedMs: number, { doubts }: Standing): number {
    const { waitForMemberMs, deadlineMs } = this.#settings;
    const mayMs = Math.max(0, Math.min(waitForMemberMs - this.#waitedMs, deadlineMs - elapsedMs));
    return doubts > 0 ? Math.min(mayMs, SECOND_OPINION_WAIT_MS) : mayMs;
  }
}
