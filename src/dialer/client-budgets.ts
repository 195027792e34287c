/**
 * Limits how many further attempts the failing requests of one client may cause. Without the limit, each request for a
 * target that does not exist would occupy several members. The limit applies to failures that the target can cause:
 * when the budget of the client is used up, a request with such a failure tries no further member. Failures that only
 * members can cause, such as a refused connection, are not limited.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/** How many further attempts a client's failed requests may make in a burst, and per second. */
export const BURST = 100;
export const PER_SECOND = 10;
/** Each attempt of any client adds this number of attempts to every client's budget. */
const SHARE = 0.1;
/** How many clients with failed requests to remember. A forgotten client starts again with a full budget. */
const MAX_CLIENTS = 4_096;

interface Budget {
  left: number;
  at: number;
  /** The number of attempts of all clients up to the moment `at`. */
  attempts: number;
}

export class ClientBudgets {
  readonly #clock: Clock;
  readonly #budgets = new BoundedMap<string, Budget>(MAX_CLIENTS);
  #attempts = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts an attempt of any client. */
  attempted(): void {
    this.#attempts += 1;
  }

  /** Whether a failing request of the client may try another member. */
  allows(client: string): boolean {
    const budget = this.#budgets.get(client);
    return budget === undefined || this.#refill(budget) >= 1;
  }

  /**
   * Charges a failed request to the client.
   * @param attempts - the number of attempts of the request, without the first.
   */
  charge(client: string, attempts: number): void {
    if (attempts <= 0) return;
    const budget = this.#budgets.get(client) ?? this.#full();
    this.#refill(budget);
    budget.left = Math.max(0, budget.left - attempts);
    this.#budgets.set(client, budget);
  }

  #full(): Budget {
    return { left: BURST, at: this.#clock.monotonic(), attempts: this.#attempts };
  }

  #refill(budget: Budget): number {
    const now = this.#clock.monotonic();
    const earned = ((now - budget.at) / 1_000) * PER_SECOND + (this.#attempts - budget.attempts) * SHARE;
    budget.left = Math.min(BURST, budget.left + earned);
    budget.at = now;
    budget.attempts = this.#attempts;
    return budget.left;
  }
}
