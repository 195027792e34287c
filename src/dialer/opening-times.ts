/**
 * Measures, for the members of one source, how long opening a connection takes, and how long a member keeps an unused
 * connection.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/**
 * The maximum time to keep an unused connection. Common proxies wait longer than this for the first request of a
 * client.
 */
export const MAX_KEEP_MS = 10_000;
/** When this number of members have closed an unused connection, noria assumes that all members of the source do so. */
export const MIN_CLOSING_MEMBERS = 3;
/** Members close an unused connection after some time. noria keeps an unused connection for this share of that time. */
const KEEP_SHARE = 0.8;
/** After this time, noria forgets that a member closed an unused connection. */
const RELEARN_MS = 10 * 60_000;
const MAX_MEMBERS = 16;
/** The weight of the latest sample in the moving average of the opening time. */
const SAMPLE_WEIGHT = 0.1;
/**
 * With each sample, the recorded minimum of the opening time grows by this factor. So an old minimum fades when the
 * members of a source change.
 */
const MIN_GROWTH = 1.02;

export class OpeningTimes {
  readonly #clock: Clock;
  #averageMs: number | undefined;
  #minMs = Number.POSITIVE_INFINITY;
  readonly #closings = new BoundedMap<string, { readonly afterMs: number; readonly at: number }>(MAX_MEMBERS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Records that a connection was established after `ms`. */
  opened(ms: number): void {
    this.#averageMs =
      this.#averageMs === undefined ? ms : this.#averageMs + SAMPLE_WEIGHT * (ms - this.#averageMs);
    this.#minMs = Math.min(ms, this.#minMs * MIN_GROWTH);
  }

  /** The moving average of the opening time in ms; undefined before the first connection. */
  get averageMs(): number | undefined {
    return this.#averageMs;
  }

  /**
   * The shortest time in ms that opening a connection took recently. Unlike the average, this time hardly depends on
   * the load of this machine.
   */
  get minMs(): number {
    return this.#minMs;
  }

  /** Records that `member` closed a connection that was unused for `afterMs`. */
  closedUnused(member: string, afterMs: number): void {
    this.#closings.set(member, { afterMs, at: this.#clock.monotonic() });
  }

  /** How long to keep an unused connection. */
  get keepMs(): number {
    if (this.#closings.size < MIN_CLOSING_MEMBERS) return MAX_KEEP_MS;
    const now = this.#clock.monotonic();
    this.#closings.deleteOldestWhile(({ at }) => now - at > RELEARN_MS);
    if (this.#closings.size < MIN_CLOSING_MEMBERS) return MAX_KEEP_MS;
    const sorted = [...this.#closings.values()].map(({ afterMs }) => afterMs).sort((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)] ?? MAX_KEEP_MS;
    return Math.min(MAX_KEEP_MS, KEEP_SHARE * median);
  }
}
