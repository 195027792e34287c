/**
 * Measures, for the members of one source, how long it takes to open a connection, and how long a member keeps an
 * unused connection. These times decide whether noria opens connections before tunnels need them.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/**
 * The maximum time to keep an unused connection. Common proxies wait longer than this for the first request of a
 * client.
 */
export const MAX_KEEP_MS = 10_000;
/** When this number of members have closed an unused connection, noria assumes that all members of the source do so. */
export const MEMBERS_THAT_CLOSE = 3;
/** noria keeps an unused connection for this share of the time after which members close an unused connection. */
const KEEP_SHARE = 0.8;
/** After this time, noria forgets that a member closed an unused connection. */
const RELEARN_MS = 10 * 60_000;
const MAX_MEMBERS = 16;
/** The weight of the latest sample in the moving average. */
const SAMPLE_WEIGHT = 0.1;
/** The minimum grows by this factor with each sample, so that old samples fade when the members of a source change. */
const LEAST_GROWTH = 1.02;

export class OpeningTimes {
  readonly #clock: Clock;
  #averageMs: number | undefined;
  #leastMs = Number.POSITIVE_INFINITY;
  readonly #closings = new BoundedMap<string, { readonly afterMs: number; readonly at: number }>(MAX_MEMBERS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Records that a connection was established after `ms`. */
  opened(ms: number): void {
    this.#averageMs =
      this.#averageMs === undefined ? ms : this.#averageMs + SAMPLE_WEIGHT * (ms - this.#averageMs);
    this.#leastMs = Math.min(ms, this.#leastMs * LEAST_GROWTH);
  }

  /** The moving average; undefined before the first connection. */
  get averageMs(): number | undefined {
    return this.#averageMs;
  }

  /** The recent minimum. Unlike the average, it hardly depends on the load of this machine. */
  get leastMs(): number {
    return this.#leastMs;
  }

  /** Records that `member` closed a connection that was unused for `afterMs`. */
  closedUnused(member: string, afterMs: number): void {
    this.#closings.set(member, { afterMs, at: this.#clock.monotonic() });
  }

  /** How long to keep an unused connection. */
  get keepMs(): number {
    if (this.#closings.size < MEMBERS_THAT_CLOSE) return MAX_KEEP_MS;
    const now = this.#clock.monotonic();
    this.#closings.deleteOldestWhile(({ at }) => now - at > RELEARN_MS);
    if (this.#closings.size < MEMBERS_THAT_CLOSE) return MAX_KEEP_MS;
    const sorted = [...this.#closings.values()].map(({ afterMs }) => afterMs).sort((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? MAX_KEEP_MS;
    return Math.min(MAX_KEEP_MS, KEEP_SHARE * median);
  }
}
