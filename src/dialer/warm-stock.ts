/**
 * Computes how many warm connections to hold for a stream of tunnels: the tunnels of one session, or of one set of
 * routing options. The number depends on the rate of the tunnels, on the time that opening a connection takes, and on
 * how long members keep an unused connection.
 */

/**
 * If opening a connection takes less than this, noria opens no warm connections, because clients would not notice the
 * difference.
 */
export const MIN_GAIN_MS = 2;
/**
 * noria averages the rate of tunnels over both windows, and uses the larger average. The long window shows low rates,
 * such as a few tunnels per second. The short window soon shows a sudden rise.
 */
const LONG_WINDOW_MS = 5_000;
const SHORT_WINDOW_MS = 500;
/**
 * With fewer tunnels than this in the long window, the rate is 0, because a single tunnel does not show that more
 * tunnels follow.
 */
const MIN_TUNNELS = 1.5;
/**
 * The reserve of warm connections, in standard deviations of the number of tunnels that arrive while a connection
 * opens. With 2, about 2 % of the tunnels find no open connection.
 */
const DEVIATIONS = 2;
/**
 * noria holds warm connections only if tunnels are expected to use all of them within this share of `keepMs`.
 */
const USE_SHARE = 0.5;

/** Measures the rate of tunnels. The latest tunnels count most. */
export class TunnelRate {
  #long = 0;
  #short = 0;
  #at = Number.NEGATIVE_INFINITY;

  add(now: number): void {
    const passedMs = now - this.#at;
    this.#long = this.#long * Math.exp(-passedMs / LONG_WINDOW_MS) + 1;
    this.#short = this.#short * Math.exp(-passedMs / SHORT_WINDOW_MS) + 1;
    this.#at = now;
  }

  /** Tunnels per ms at the time of the latest tunnel; 0 if there were too few tunnels to estimate a rate. */
  get perMs(): number {
    if (this.#long < MIN_TUNNELS) return 0;
    // The latest tunnel does not count: the short window ends exactly at this tunnel, so counting it would make a low
    // rate too high.
    return Math.max(this.#long / LONG_WINDOW_MS, (this.#short - 1) / SHORT_WINDOW_MS);
  }
}

interface StockTerms {
  readonly perMs: number;
  readonly openingMs: number;
  /** How long noria keeps an unused connection. */
  readonly keepMs: number;
}

/**
 * The number of connections to hold: rate × opening time, plus a reserve for irregular arrivals. 0 if tunnels would
 * need longer than USE_SHARE × `keepMs` to use all these connections.
 */
export function stockFor({ perMs, openingMs, keepMs }: StockTerms): number {
  const duringOpening = perMs * openingMs;
  const stock = Math.max(1, Math.ceil(duringOpening + DEVIATIONS * Math.sqrt(duringOpening)));
  return stock <= perMs * keepMs * USE_SHARE ? stock : 0;
}
