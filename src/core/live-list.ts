/**
 * An unordered collection for open connections. A busy noria adds and removes thousands of connections per second.
 *
 * A Set has the same operations, but its garbage costs about a tenth of the CPU time of a busy noria
 * (docs/performance.md). A Set with many writes often replaces its table, and each old table points to the next table.
 * When one of these tables reaches old space, all objects in later tables survive until the next full collection, and
 * young collections keep copying these objects.
 */

/** An item is in at most one list at a time. */
export interface Listed {
  /** -1 while the item is in no list. Only the list writes it. */
  listIndex: number;
}

export class LiveList<Item extends Listed> {
  readonly #items: Item[] = [];

  get size(): number {
    return this.#items.length;
  }

  add(item: Item): void {
    if (item.listIndex >= 0) return;
    item.listIndex = this.#items.length;
    this.#items.push(item);
  }

  delete(item: Item): void {
    const { listIndex } = item;
    if (listIndex < 0) return;
    item.listIndex = -1;
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    last.listIndex = listIndex;
    this.#items[listIndex] = last;
  }

  /** A copy, so that the caller can add and remove items meanwhile. */
  all(): readonly Item[] {
    return [...this.#items];
  }
}
