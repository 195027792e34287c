import { expect, test } from 'vitest';
import { nodesOf, valueAtPath } from '../../../src/service/link/rules.ts';

test('json path: reads own properties of objects and lists only', () => {
  const answer: unknown = JSON.parse('{"a":{"b":[{"c":1}]},"__proto__":{"d":2}}');
  expect(valueAtPath(answer, '.')).toBe(answer);
  expect(valueAtPath(answer, 'a.b.0.c')).toBe(1);
  expect(valueAtPath(answer, '__proto__.d')).toBe(2);
  for (const path of ['a.__proto__', 'a.constructor', 'toString', 'a.b.map', 'a.b.1', 'a.b.0.c.x', '']) {
    expect(valueAtPath(answer, path), path).toBeUndefined();
  }
});

test('json path: the nodes are those outside of lists, and the first entry of each list', () => {
  const nodes = nodesOf({ a: [{ b: 1 }, { c: 2 }], d: 'x' });
  expect(nodes.map(({ path, isInList }) => [path, isInList])).toEqual([
    ['.', false],
    ['a', false],
    ['d', false],
    ['a.0', true],
    ['a.0.b', true],
  ]);
});
