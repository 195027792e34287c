/**
 * A binary min-heap whose nodes know their index, so that any node can be moved or removed in O(log n). A query for the
 * smallest keys does not change the heap, and visits only the nodes of its answer and their children.
 */

/** A node is in at most one heap at a time. */
export interface HeapNode {
  key: number;
  /** -1 while the node is in no heap. Only the heap writes it. */
  heapIndex: number;
}

/** The order of nodes with equal keys is undefined. */
export class Heap<Node extends HeapNode> {
  readonly #nodes: Node[] = [];

  get size(): number {
    return this.#nodes.length;
  }

  get first(): Node | undefined {
    return this.#nodes[0];
  }

  get firstKey(): number {
    const first = this.#nodes[0];
    return first === undefined ? Number.POSITIVE_INFINITY : first.key;
  }

  add(node: Node): void {
    this.#nodes.push(node);
    this.#rise(node, this.#nodes.length - 1);
  }

  remove(node: Node): void {
    const index = node.heapIndex;
    if (index < 0) return;
    node.heapIndex = -1;
    const last = this.#nodes.pop();
    if (last === undefined || last === node) return;
    this.#settle(last, index);
  }

  update(node: Node, key: number): void {
    if (node.heapIndex < 0) {
      node.key = key;
      this.add(node);
    } else if (node.key !== key) {
      node.key = key;
      this.#settle(node, node.heapIndex);
    }
  }

  countUpTo(key: number, index = 0): number {
    const node = this.#nodes[index];
    if (node === undefined || node.key > key) return 0;
    return 1 + this.countUpTo(key, 2 * index + 1) + this.countUpTo(key, 2 * index + 2);
  }

  nextAfter(key: number, index = 0): number {
    const node = this.#nodes[index];
    if (node === undefined) return Number.POSITIVE_INFINITY;
    if (node.key > key) return node.key;
    return Math.min(this.nextAfter(key, 2 * index + 1), this.nextAfter(key, 2 * index + 2));
  }

  firstThat(fits: (node: Node) => boolean, index = 0, best?: Node): Node | undefined {
    const node = this.#nodes[index];
    if (node === undefined || (best !== undefined && node.key >= best.key)) return best;
    if (fits(node)) return node;
    return this.firstThat(fits, 2 * index + 2, this.firstThat(fits, 2 * index + 1, best));
  }

  /** At most `count` nodes, those with the smallest keys, in ascending order of their keys. */
  smallest(count: number): Node[] {
    const found: Node[] = [];
    const open = this.#nodes.slice(0, 1);
    while (found.length < count) {
      const next = open.reduce<Node | undefined>(
        (best, node) => (best === undefined || node.key < best.key ? node : best),
        undefined,
      );
      if (next === undefined) break;
      found.push(next);
      const childIndex = 2 * next.heapIndex + 1;
      open.splice(open.indexOf(next), 1, ...this.#nodes.slice(childIndex, childIndex + 2));
    }
    return found;
  }

  #settle(node: Node, index: number): void {
    this.#rise(node, index);
    this.#sink(node, node.heapIndex);
  }

  #rise(node: Node, from: number): void {
    let index = from;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = this.#nodes[parentIndex];
      if (parent === undefined || parent.key <= node.key) break;
      this.#put(parent, index);
      index = parentIndex;
    }
    this.#put(node, index);
  }

  #sink(node: Node, from: number): void {
    let index = from;
    for (;;) {
      let childIndex = 2 * index + 1;
      let child = this.#nodes[childIndex];
      if (child === undefined) break;
      const right = this.#nodes[childIndex + 1];
      if (right !== undefined && right.key < child.key) {
        child = right;
        childIndex += 1;
      }
      if (child.key >= node.key) break;
      this.#put(child, index);
      index = childIndex;
    }
    this.#put(node, index);
  }

  #put(node: Node, index: number): void {
    this.#nodes[index] = node;
    node.heapIndex = index;
  }
}
