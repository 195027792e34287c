import fc from 'fast-check';
import { expect, test } from 'vitest';
import { randomBelow, shuffled, systemRandom } from '../../src/core/random.ts';

test('random: a number is from 0 to one below the limit', () => {
  expect(randomBelow(() => 0, 6)).toBe(0);
  expect(randomBelow(() => 1 - Number.EPSILON / 2, 6)).toBe(5);
  expect(randomBelow(() => 0.5, 1)).toBe(0);
  for (let index = 0; index < 100; index += 1) {
    expect([0, 1, 2]).toContain(randomBelow(systemRandom, 3));
  }
});

test('random: a shuffle keeps every item, depends on the given numbers, and does not change its input', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer()),
      fc.infiniteStream(fc.double({ min: 0, max: 0.999, noNaN: true })),
      (items, numbers) => {
        const before = [...items];
        const result = shuffled(() => numbers.next().value ?? 0, items);
        expect([...result].sort()).toEqual([...before].sort());
        expect(items).toEqual(before);
      },
    ),
  );
  const numbers = [0.9, 0.1, 0.5];
  expect(shuffled(() => numbers.shift() ?? 0, ['a', 'b', 'c'])).toEqual(['b', 'c', 'a']);
});
