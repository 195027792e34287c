/**
 * What opening a connection to the members of one source costs, and how long they keep one that is not used. It decides
 * whether to open connections ahead of the tunnels that need them.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/** Shorter than the time that usual proxies give a client for its first request. */
export const MAX_KEEP_MS = 10_000;
/** Members that must have closed a connection which was not used, before the source is known to close them. */
export const MEMBERS_THAT_CLOSE = 3;
/** Of the time after which members have closed it. */
const KEEP_SHARE = 0.8;
/** What members have shown counts for this long. */
const RELEARN_MS = 10 * 60_000;
const MAX_MEMBERS = 16;
/** Weight of the latest sample in the average. */
const SAMPLE_WEIGHT = 0.1;
/** The least time rises by this factor with each sample, so that it follows a source whose members change. */
const LEAST_GROWTH = 1.02;

export class OpeningTimes {
  readonly #clock: Clock;
  #averageMs: number | undefined;
  #leastMs = Number.POSITIVE_INFINITY;
  readonly #closings = new BoundedMap<string, { readonly afterMs: number; readonly at: number }>(MAX_MEMBERS);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A connection was established after `ms`. */
  opened(ms: number): void {
    this.#averageMs =
      this.#averageMs === undefined ? ms : this.#averageMs + SAMPLE_WEIGHT * (ms - this.#averageMs);
    this.#leastMs = Math.min(ms, this.#leastMs * LEAST_GROWTH);
  }

  /** Undefined until one was opened. */
  get averageMs(): number | undefined {
    return this.#averageMs;
  }

  /** The least of the latest times. Work on this machine delays most connections, but not all. */
  get leastMs(): number {
    return this.#leastMs;
  }

  /** The member closed a connection that had not been used for `afterMs`. */
  closedUnused(member: string, afterMs: number): void {
    this.#closings.set(member, { afterMs, at: this.#clock.monotonic() });
  }

  /** How long to keep a connection that is not used. */
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
