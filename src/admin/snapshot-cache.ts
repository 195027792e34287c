/** Caches for snapshots that many clients may request at once. */
import type { Clock } from '../core/clock.ts';

/** If the creation of a snapshot takes 1 ms, the snapshot is kept for this many ms. */
const KEPT_PER_MS = 50;

/**
 * Caches a snapshot. A large pool has an expensive snapshot, which is kept longer (see KEPT_PER_MS), up to about a
 * second for ten thousand members. So creating snapshots takes at most 2 % of the time.
 */
export class SnapshotCache<T extends object> {
  readonly #clock: Clock;
  readonly #create: () => T;
  #value: T | undefined;
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, create: () => T) {
    this.#clock = clock;
    this.#create = create;
  }

  get(): T {
    const startedAt = this.#clock.monotonic();
    if (this.#value !== undefined && startedAt < this.#freshUntil) return this.#value;
    this.#value = this.#create();
    const endedAt = this.#clock.monotonic();
    this.#freshUntil = endedAt + (endedAt - startedAt) * KEPT_PER_MS;
    return this.#value;
  }

  /** Discards the snapshot. Call it after a change that the next read must show. */
  clear(): void {
    this.#value = undefined;
  }
}

/** A list whose JSON is created only once, even if many clients read it. */
export class JsonList {
  readonly #items: readonly object[];
  readonly #encoded: Uint8Array<ArrayBuffer>;

  constructor(items: readonly object[]) {
    this.#items = items;
    this.#encoded = encodeJson(items);
  }

  /** Returns the JSON of the first `limit` items, or of all items when `limit` is undefined. */
  encode(limit: number | undefined): Uint8Array<ArrayBuffer> {
    if (limit === undefined || limit >= this.#items.length) return this.#encoded;
    return encodeJson(this.#items.slice(0, limit));
  }
}

function encodeJson(items: readonly object[]): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(items));
}
