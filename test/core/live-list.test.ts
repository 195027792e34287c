import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Listed, LiveList } from '../../src/core/live-list.ts';

function make(): Listed {
  return { listIndex: -1 };
}

test('live list: has the same items as a Set after any operations', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), fc.nat(9))), (steps) => {
      const items = Array.from({ length: 10 }, make);
      const list = new LiveList<Listed>();
      const set = new Set<Listed>();
      for (const [comes, which] of steps) {
        const item = items[which] ?? make();
        if (comes) {
          list.add(item);
          set.add(item);
        } else {
          list.delete(item);
          set.delete(item);
        }
        expect(list.size).toBe(set.size);
        expect(new Set(list.all())).toEqual(set);
      }
    }),
  );
});

test('live list: items can be removed while iterating', () => {
  const list = new LiveList<Listed>();
  const items = Array.from({ length: 5 }, make);
  for (const item of items) list.add(item);
  let walked = 0;
  for (const item of list.all()) {
    list.delete(item);
    walked += 1;
  }
  expect(walked).toBe(5);
  expect(list.size).toBe(0);
});

test('live list: young garbage collections free removed items, also of a list in old space', () => {
  setFlagsFromString('--expose-gc');
  const collect: (options: { type: 'minor' | 'major' }) => void = runInNewContext('gc');
  const list = new LiveList<Listed & { payload: number[] }>();
  const churn = () => {
    for (let n = 0; n < 5_000; n += 1) {
      const item = { listIndex: -1, payload: Array.from({ length: 200 }, () => n) };
      list.add(item);
      if (list.size > 64) for (const old of list.all().slice(0, 1)) list.delete(old);
    }
  };
  churn();
  collect({ type: 'major' });
  const before = process.memoryUsage().heapUsed;
  for (let round = 0; round < 4; round += 1) {
    churn();
    collect({ type: 'minor' });
  }
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(4_000_000);
});
