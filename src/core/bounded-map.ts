/**
 * A Map with a maximum size. When it is full, a new entry replaces the oldest entry. Iteration starts with the entry
 * that was set first. Setting an existing key makes its entry the newest; reading a key does not.
 */

export class BoundedMap<Key, Value> extends Map<Key, Value> {
  readonly #maxSize: number;

  /** @param maxSize - at least 1. */
  constructor(maxSize: number) {
    super();
    this.#maxSize = maxSize;
  }

  override set(key: Key, value: Value): this {
    if (!this.delete(key) && this.size >= this.#maxSize) this.#deleteOldest();
    return super.set(key, value);
  }

  /** Deletes the oldest entry as long as `isOver` returns true for its value. */
  deleteOldestWhile(isOver: (value: Value) => boolean): void {
    for (const [key, value] of this) {
      if (!isOver(value)) return;
      this.delete(key);
    }
  }

  #deleteOldest(): void {
    for (const oldest of this.keys()) {
      this.delete(oldest);
      return;
    }
  }
}
