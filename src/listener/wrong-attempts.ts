/**
 * Counts attempts with wrong credentials by client network and user name, with bounded memory and time.
 *
 * After too many wrong attempts, further wrong attempts get `too-many-requests`. Correct credentials are still
 * accepted, so that one client cannot lock out all other clients behind the same address. Exception: see
 * MAX_WRONG_PER_SECOND.
 */

import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { clientNetwork } from '../core/networks.ts';

/** A wrong attempt: the client's network, and the user name that the client sent. */
export interface WrongAttempt {
  readonly address: string | undefined;
  readonly user: string;
}

/**
 * The maximum number of wrong attempts of one client and user within a minute. The automatic retries of browsers stay
 * far below.
 */
export const MAX_WRONG_ATTEMPTS = 20;
const WINDOW_MS = 60_000;
const MAX_WINDOWS = 10_000;
/**
 * The maximum number of wrong attempts of all clients within a second. Above it, noria no longer checks the credentials
 * of a client that has reached its own maximum: noria refuses this client at once.
 */
const MAX_WRONG_PER_SECOND = 2_000;

interface Window {
  readonly endsAt: number;
  count: number;
}

export class WrongAttempts {
  readonly #clock: Clock;
  /**
   * Maps each client network and user name to a window of one minute, with the number of wrong attempts in it. The
   * first wrong attempt starts the window. So the oldest entry of the map is the window that ends first.
   */
  readonly #windows = new BoundedMap<string, Window>(MAX_WINDOWS);
  #second: Window = { endsAt: 0, count: 0 };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** For how many ms a further wrong attempt of this client and user gets `too-many-requests`; 0 if it does not. */
  retryAfterMs(attempt: WrongAttempt): number {
    const window = this.#windows.get(keyOf(attempt));
    if (window === undefined || window.count < MAX_WRONG_ATTEMPTS) return 0;
    return Math.max(0, window.endsAt - this.#clock.monotonic());
  }

  /** Whether all clients together have sent too many wrong attempts in this second. */
  get isFlooded(): boolean {
    return this.#second.count >= MAX_WRONG_PER_SECOND && this.#second.endsAt > this.#clock.monotonic();
  }

  count(attempt: WrongAttempt): void {
    const key = keyOf(attempt);
    const nowMs = this.#clock.monotonic();
    if (this.#second.endsAt <= nowMs) this.#second = { endsAt: nowMs + SECOND_MS, count: 0 };
    this.#second.count += 1;
    const window = this.#windows.get(key);
    if (window !== undefined && window.endsAt > nowMs) {
      window.count += 1;
      return;
    }
    this.#windows.deleteOldestWhile(({ endsAt }) => endsAt <= nowMs);
    this.#windows.set(key, { endsAt: nowMs + WINDOW_MS, count: 1 });
  }
}

function keyOf({ address, user }: WrongAttempt): string {
  return `${clientNetwork(address ?? '')} ${user}`;
}
