import { expect, test } from 'vitest';
import { BoundedMap } from '../../src/core/bounded-map.ts';

function filled(maxSize: number, keys: string): BoundedMap<string, number> {
  const map = new BoundedMap<string, number>(maxSize);
  for (const [index, key] of [...keys].entries()) map.set(key, index);
  return map;
}

test('bounded map: a new entry replaces the oldest one when the map is full', () => {
  const map = filled(3, 'abcde');
  expect([...map]).toEqual([
    ['c', 2],
    ['d', 3],
    ['e', 4],
  ]);
});

test('bounded map: setting a key again makes it the newest and removes nothing', () => {
  const map = filled(3, 'abca');
  expect([...map.keys()]).toEqual(['b', 'c', 'a']);
  expect(map.get('a')).toBe(3);
});

test('bounded map: reading does not keep an entry', () => {
  const map = filled(2, 'ab');
  map.get('a');
  map.set('c', 2);
  expect([...map.keys()]).toEqual(['b', 'c']);
});

test('bounded map: a deleted entry makes room', () => {
  const map = filled(2, 'ab');
  map.delete('b');
  map.set('c', 2);
  expect([...map.keys()]).toEqual(['a', 'c']);
});

test('bounded map: deletes the oldest entries up to the first that is not over', () => {
  const map = filled(10, 'abcd');
  map.deleteOldestWhile((value) => value < 2);
  expect([...map.keys()]).toEqual(['c', 'd']);
  map.deleteOldestWhile((value) => value === 3);
  expect([...map.keys()]).toEqual(['c', 'd']);
  map.deleteOldestWhile(() => true);
  expect(map.size).toBe(0);
});
