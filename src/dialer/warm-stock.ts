/** How many connections to hold ready for a stream of tunnels. */

/** Below this, a connection opened ahead saves nothing that a client notices, and members on this machine need none. */
export const LEAST_GAIN_MS = 2;
/** The rate is the larger one over about these times: one to see a slow stream, the other to follow a rise. */
const LONG_WINDOW_MS = 5_000;
const SHORT_WINDOW_MS = 500;
/** Tunnels within the long window that are a stream. A single one is not. */
const LEAST_TUNNELS = 1.5;
/** Standard deviations of the number of tunnels that come while a connection is opened: 2 % find none. */
const DEVIATIONS = 2;
/** The part of the time that members keep a connection in which it must find its use. */
const USE_SHARE = 0.5;

/** The rate of tunnels, with exponentially decreasing weight of older ones. */
export class TunnelRate {
  #long = 0;
  #short = 0;
  #at = Number.NEGATIVE_INFINITY;

  /** A tunnel comes. */
  add(now: number): void {
    const passedMs = now - this.#at;
    this.#long = this.#long * Math.exp(-passedMs / LONG_WINDOW_MS) + 1;
    this.#short = this.#short * Math.exp(-passedMs / SHORT_WINDOW_MS) + 1;
    this.#at = now;
  }

  /** Tunnels per ms, at the moment of the latest one; 0 if it came alone. */
  get perMs(): number {
    if (this.#long < LEAST_TUNNELS) return 0;
    // The latest tunnel itself says nothing about the rate of those before it.
    return Math.max(this.#long / LONG_WINDOW_MS, (this.#short - 1) / SHORT_WINDOW_MS);
  }
}

export interface StockTerms {
  readonly perMs: number;
  /** How long it takes to open one. */
  readonly openingMs: number;
  /** How long members keep one that is not used. */
  readonly keepMs: number;
}

/** Rate × opening time, and a reserve for the irregularity of clients. 0 if members would close most before their use. */
export function stockFor({ perMs, openingMs, keepMs }: StockTerms): number {
  const duringOpening = perMs * openingMs;
  const stock = Math.max(1, Math.ceil(duringOpening + DEVIATIONS * Math.sqrt(duringOpening)));
  return stock <= perMs * keepMs * USE_SHARE ? stock : 0;
}
