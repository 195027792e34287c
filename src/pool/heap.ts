/**
 * A binary min-heap whose nodes know their place, so that any of them can be moved or taken out in O(log n).
 *
 * Besides the usual it answers questions about the lower end without disturbing it: how many keys lie at or below
 * a moment, which is the next one after it, which is the least one that fits. Each costs as many steps as there are
 * nodes at that end.
 */

/** What can stand in a heap. A node stands in one heap at a time; `place` belongs to the heap. */
export interface HeapNode {
  key: number;
  /** -1 while it stands in none. */
  place: number;
}

/** Nodes by key, the least first; equal keys in no order. */
export class Heap<Node extends HeapNode> {
  readonly #nodes: Node[] = [];

  get size(): number {
    return this.#nodes.length;
  }

  /** The node with the least key. */
  get first(): Node | undefined {
    return this.#nodes[0];
  }

  /** The least key; `Infinity` when the heap is empty. */
  get firstKey(): number {
    const first = this.#nodes[0];
    return first === undefined ? Number.POSITIVE_INFINITY : first.key;
  }

  add(node: Node): void {
    this.#nodes.push(node);
    this.#rise(node, this.#nodes.length - 1);
  }

  /** Takes `node` out; nothing happens when it stands in no heap. */
  remove(node: Node): void {
    const place = node.place;
    if (place < 0) return;
    node.place = -1;
    const last = this.#nodes.pop();
    if (last === undefined || last === node) return;
    this.#settle(last, place);
  }

  /** Gives `node` another key; adds it when it stands in no heap. */
  update(node: Node, key: number): void {
    if (node.place < 0) {
      node.key = key;
      this.add(node);
    } else if (node.key !== key) {
      node.key = key;
      this.#settle(node, node.place);
    }
  }

  /** How many keys are at most `key`. */
  countUpTo(key: number, at = 0): number {
    const node = this.#nodes[at];
    if (node === undefined || node.key > key) return 0;
    return 1 + this.countUpTo(key, 2 * at + 1) + this.countUpTo(key, 2 * at + 2);
  }

  /** The least key above `key`; `Infinity` when there is none. */
  nextAfter(key: number, at = 0): number {
    const node = this.#nodes[at];
    if (node === undefined) return Number.POSITIVE_INFINITY;
    if (node.key > key) return node.key;
    return Math.min(this.nextAfter(key, 2 * at + 1), this.nextAfter(key, 2 * at + 2));
  }

  /** The node with the least key among those that fit: visits only nodes below which none has fitted. */
  leastThat(fits: (node: Node) => boolean, at = 0, best?: Node): Node | undefined {
    const node = this.#nodes[at];
    if (node === undefined || (best !== undefined && node.key >= best.key)) return best;
    if (fits(node)) return node;
    return this.leastThat(fits, 2 * at + 2, this.leastThat(fits, 2 * at + 1, best));
  }

  #settle(node: Node, place: number): void {
    this.#rise(node, place);
    this.#sink(node, node.place);
  }

  #rise(node: Node, from: number): void {
    let place = from;
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = this.#nodes[above];
      if (parent === undefined || parent.key <= node.key) break;
      this.#put(parent, place);
      place = above;
    }
    this.#put(node, place);
  }

  #sink(node: Node, from: number): void {
    let place = from;
    for (;;) {
      let below = 2 * place + 1;
      let child = this.#nodes[below];
      if (child === undefined) break;
      const other = this.#nodes[below + 1];
      if (other !== undefined && other.key < child.key) {
        child = other;
        below += 1;
      }
      if (child.key >= node.key) break;
      this.#put(child, place);
      place = below;
    }
    this.#put(node, place);
  }

  #put(node: Node, place: number): void {
    this.#nodes[place] = node;
    node.place = place;
  }
}
