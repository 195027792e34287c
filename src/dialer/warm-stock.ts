/** Computes how many warm connections to hold for a stream of tunnels. */

/**
 * If opening a connection takes less than this, noria opens no warm connections, because clients would not notice the
 * difference.
 */
export const LEAST_GAIN_MS = 2;
/**
 * The rate is the larger of two averages. The average over the long window detects a slow stream. The average over the
 * short window follows a sudden rise.
 */
const LONG_WINDOW_MS = 5_000;
const SHORT_WINDOW_MS = 500;
/** The minimum number of tunnels in the long window that form a stream. A single tunnel is no stream. */
const LEAST_TUNNELS = 1.5;
/**
 * The reserve, in standard deviations of the number of tunnels that arrive while a connection opens. With 2, about 2 %
 * of the tunnels find no open connection.
 */
const DEVIATIONS = 2;
/**
 * noria holds warm connections only if a tunnel takes all of them, on average, within this share of the time for which
 * members keep an unused connection.
 */
const USE_SHARE = 0.5;

/** The rate of tunnels, as an average with exponential decay. */
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

  /** Tunnels per ms at the time of the latest tunnel; 0 if there are too few tunnels for a stream. */
  get perMs(): number {
    if (this.#long < LEAST_TUNNELS) return 0;
    // The latest tunnel itself is not counted: it only marks the end of the window.
    return Math.max(this.#long / LONG_WINDOW_MS, (this.#short - 1) / SHORT_WINDOW_MS);
  }
}

export interface StockTerms {
  readonly perMs: number;
  /** How long it takes to open a connection. */
  readonly openingMs: number;
  /** How long members keep an unused connection. */
  readonly keepMs: number;
}

/**
 * The number of connections to hold: rate × opening time, plus a reserve for irregular arrivals. Returns 0 if tunnels
 * would not use all of them within USE_SHARE of `keepMs`.
 */
export function stockFor({ perMs, openingMs, keepMs }: StockTerms): number {
  const duringOpening = perMs * openingMs;
  const stock = Math.max(1, Math.ceil(duringOpening + DEVIATIONS * Math.sqrt(duringOpening)));
  return stock <= perMs * keepMs * USE_SHARE ? stock : 0;
}
