/**
 * An unordered collection for open connections, of which thousands are added and removed per second.
 *
 * A Set has the same operations but costs about a tenth of the CPU time of a busy proxy in garbage collection
 * (docs/performance.md). A Set that is written all the time replaces its table again and again, and each old table points to
 * the next one. Once one of them is in old space, everything in later tables survives until the next full collection, and
 * young collections keep copying it.
 */

/** An item can be in one list at a time. Only the list writes the field. */
export interface Listed {
  /** The index of the item, or -1. */
  listedAt: number;
}

export class LiveList<Item extends Listed> {
  readonly #items: Item[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** Ignored if it is in the list. */
  add(item: Item): void {
    if (item.listedAt >= 0) return;
    item.listedAt = this.#items.length;
    this.#items.push(item);
  }

  /** The last item takes its place. Ignored if it is not in the list. */
  delete(item: Item): void {
    const { listedAt } = item;
    if (listedAt < 0) return;
    item.listedAt = -1;
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    last.listedAt = listedAt;
    this.#items[listedAt] = last;
  }

  /** A copy, so that items can be added and removed while iterating. */
  all(): readonly Item[] {
    return [...this.#items];
  }
}
