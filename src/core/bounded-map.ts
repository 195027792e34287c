/**
 * Maps that forget. A BoundedMap has a maximum size: when it is full, a new entry replaces the oldest one. Iteration
 * starts with the entry that was set first. Setting an existing key makes its entry the newest; reading a key does not.
 */
import type { Clock } from './clock.ts';

export class BoundedMap<Key, Value> extends Map<Key, Value> {
  readonly #maxSize: number;

  constructor(maxSize: number) {
    super();
    this.#maxSize = maxSize;
  }

  override set(key: Key, value: Value): this {
    if (!this.delete(key) && this.size >= this.#maxSize) {
      for (const oldest of this.keys()) {
        this.delete(oldest);
        break;
      }
    }
    return super.set(key, value);
  }

  getOrMake(key: Key, make: () => Value): Value {
    const known = this.get(key);
    if (known !== undefined) return known;
    const made = make();
    this.set(key, made);
    return made;
  }

  deleteOldestWhile(isOver: (value: Value) => boolean): void {
    for (const [key, value] of this) {
      if (!isOver(value)) return;
      this.delete(key);
    }
  }
}

/** `renew` does nothing within this time after the same key was set, so that a hot path hardly ever writes. */
const RENEW_INTERVAL_MS = 1_000;

export class AgedMap<Key, Value = true> {
  readonly #clock: Clock;
  readonly #maxAgeMs: number;
  readonly #entries: BoundedMap<Key, { readonly value: Value; readonly at: number }>;

  constructor(clock: Clock, maxAgeMs: number, maxSize: number) {
    this.#clock = clock;
    this.#maxAgeMs = maxAgeMs;
    this.#entries = new BoundedMap(maxSize);
  }

  get size(): number {
    this.#forgetOld();
    return this.#entries.size;
  }

  get(key: Key): Value | undefined {
    const entry = this.#entries.get(key);
    return entry !== undefined && !this.#isOld(entry.at, this.#clock.monotonic()) ? entry.value : undefined;
  }

  has(key: Key): boolean {
    return this.get(key) !== undefined;
  }

  ageMs(key: Key): number {
    const entry = this.#entries.get(key);
    if (entry === undefined) return Number.POSITIVE_INFINITY;
    const now = this.#clock.monotonic();
    return this.#isOld(entry.at, now) ? Number.POSITIVE_INFINITY : now - entry.at;
  }

  set(key: Key, value: Value, now = this.#clock.monotonic()): void {
    this.#entries.set(key, { value, at: now });
  }

  renew(key: Key, value: Value, now = this.#clock.monotonic()): void {
    const before = this.#entries.get(key);
    if (before === undefined || before.value !== value || now - before.at >= RENEW_INTERVAL_MS)
      this.#entries.set(key, { value, at: now });
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }

  clear(): void {
    if (this.#entries.size > 0) this.#entries.clear();
  }

  keys(): Key[] {
    this.#forgetOld();
    return [...this.#entries.keys()];
  }

  values(): Value[] {
    this.#forgetOld();
    return [...this.#entries.values()].map(({ value }) => value);
  }

  #forgetOld(): void {
    if (this.#entries.size === 0) return;
    const now = this.#clock.monotonic();
    this.#entries.deleteOldestWhile(({ at }) => this.#isOld(at, now));
  }

  #isOld(at: number, now: number): boolean {
    return now - at > this.#maxAgeMs;
  }
}
