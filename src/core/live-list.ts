/**
 * An unordered collection for open connections, of which thousands are added and removed per second.
 *
 * A Set has the same operations but costs about a tenth of the CPU time of a busy proxy in garbage collection
 * (docs/performance.md). A Set with many writes often replaces its table, and each old table points to the next one.
 * When one of these tables reaches old space, all objects in later tables survive until the next full collection, and
 * young collections keep copying them.
 */

/** An item of a list. It can be in one list at a time. Only the list writes the field. */
export interface Listed {
  /** The index of the item, or -1. */
  listedAt: number;
}

export class LiveList<Item extends Listed> {
  readonly #items: Item[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** Ignored if the item is in the list already. */
  add(item: Item): void {
    if (item.listedAt >= 0) return;
    item.listedAt = this.#items.length;
    this.#items.push(item);
  }

  /** The last item moves to the place of the deleted one. Ignored if the item is not in the list. */
  delete(item: Item): void {
    const { listedAt } = item;
    if (listedAt < 0) return;
    item.listedAt = -1;
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    last.listedAt = listedAt;
    this.#items[listedAt] = last;
  }

  /** Returns a copy, so that the caller can add and remove items while iterating. */
  all(): readonly Item[] {
    return [...this.#items];
  }
}
