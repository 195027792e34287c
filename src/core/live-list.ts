/**
 * What is open just now: things that come and go by the thousand a second, counted, found again and walked in no order.
 *
 * A Set would do, if it were not for the garbage collector: a Set or Map that is written to all the time replaces its
 * table again and again, every replaced table points to the next one, and as soon as one of them has become old, all
 * that were ever in the tables after it stay in memory until the next full collection. The young collections then
 * copy what is long over: a tenth of the CPU time of a busy proxy (docs/performance.md).
 */

/** What can be listed, in one list at a time. The field is the list's alone. */
export interface Listed {
  /** Its place while it is listed; -1 otherwise. */
  listedAt: number;
}

export class LiveList<Item extends Listed> {
  readonly #items: Item[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** Ignored for one that is listed already. */
  add(item: Item): void {
    if (item.listedAt >= 0) return;
    item.listedAt = this.#items.length;
    this.#items.push(item);
  }

  /** The last one takes its place. Ignored for one that is not listed. */
  delete(item: Item): void {
    const { listedAt } = item;
    if (listedAt < 0) return;
    item.listedAt = -1;
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    last.listedAt = listedAt;
    this.#items[listedAt] = last;
  }

  /** All that are listed at this moment: what comes and goes during a walk over them changes nothing of it. */
  all(): readonly Item[] {
    return [...this.#items];
  }
}
