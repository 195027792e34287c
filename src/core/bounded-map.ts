/**
 * A Map with a maximum size. When it is full, a new entry replaces the oldest one.
 *
 * Entries are in the order in which they were last set, oldest first. Reading an entry does not change its age.
 */

export class BoundedMap<Key, Value> extends Map<Key, Value> {
  readonly #maxSize: number;

  /** @param maxSize - at least 1. */
  constructor(maxSize: number) {
    super();
    this.#maxSize = maxSize;
  }

  /** Makes `key` the newest entry, also when it exists already. */
  override set(key: Key, value: Value): this {
    if (!this.delete(key) && this.size >= this.#maxSize) this.#deleteOldest();
    return super.set(key, value);
  }

  /** Deletes entries from the oldest on, up to the first one that `isOver` rejects. */
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
