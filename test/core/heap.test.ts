import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Heap, type HeapNode } from '../../src/core/heap.ts';

const keys = fc.array(fc.integer({ min: 0, max: 50 }), { maxLength: 60 });

function filled(keysOfNodes: readonly number[]): { heap: Heap<HeapNode>; nodes: HeapNode[] } {
  const heap = new Heap<HeapNode>();
  const nodes = keysOfNodes.map((key) => ({ key, heapIndex: -1 }));
  for (const node of nodes) heap.add(node);
  return { heap, nodes };
}

test('heap: nodes are removed in order, after any updates and removals', () => {
  const changes = fc.array(fc.tuple(fc.nat(), fc.integer({ min: -1, max: 50 })), { maxLength: 60 });
  fc.assert(
    fc.property(keys, changes, (ofNodes, moves) => {
      const { heap, nodes } = filled(ofNodes);
      for (const [index, key] of moves) {
        const node = nodes[index % Math.max(1, nodes.length)];
        if (node === undefined) continue;
        if (key < 0) heap.remove(node);
        else heap.update(node, key);
      }
      const inside = nodes.filter(({ heapIndex }) => heapIndex >= 0).map(({ key }) => key);
      const out: number[] = [];
      for (let first = heap.first; first !== undefined; first = heap.first) {
        expect(heap.firstKey).toBe(first.key);
        out.push(first.key);
        heap.remove(first);
      }
      expect(out).toEqual(inside.sort((a, b) => a - b));
      expect(heap.firstKey).toBe(Number.POSITIVE_INFINITY);
    }),
  );
});

test('heap: its queries return what a search of all nodes returns', () => {
  fc.assert(
    fc.property(
      keys,
      fc.integer({ min: -1, max: 51 }),
      fc.integer({ min: 1, max: 5 }),
      (ofNodes, key, step) => {
        const { heap } = filled(ofNodes);
        expect(heap.countUpTo(key)).toBe(ofNodes.filter((other) => other <= key).length);
        expect(heap.nextAfter(key)).toBe(Math.min(...ofNodes.filter((other) => other > key)));
        const fitting = ofNodes.filter((other) => other % step === 0);
        const inOrder = [...ofNodes].sort((a, b) => a - b);
        expect(heap.smallest(step).map((node) => node.key)).toEqual(inOrder.slice(0, step));
        const least = heap.firstThat((node) => node.key % step === 0)?.key;
        expect(least ?? Number.POSITIVE_INFINITY).toBe(Math.min(...fitting));
      },
    ),
  );
});
