import { expect, test } from 'vitest';
import { AgedMap, BoundedMap } from '../../src/core/bounded-map.ts';
import { ManualClock } from '../support/manual-clock.ts';

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

test('aged map: forgets each entry some time after it was set, and the oldest when it is full', () => {
  const clock = new ManualClock();
  const map = new AgedMap<string, number>(clock, 1_000, 2);
  map.set('a', 1);
  clock.advance(600);
  map.set('b', 2);
  expect([map.get('a'), map.ageMs('a'), map.size]).toEqual([1, 600, 2]);
  clock.advance(401);
  expect([map.get('a'), map.has('a'), map.ageMs('a')]).toEqual([undefined, false, Infinity]);
  expect([map.keys(), map.values(), map.size]).toEqual([['b'], [2], 1]);
  map.set('c', 3);
  map.set('d', 4);
  expect(map.keys()).toEqual(['c', 'd']);
  map.delete('c');
  map.clear();
  expect([map.size, map.has('d')]).toEqual([0, false]);
});

test('aged map: renews an equal value at most once a second, and another value at once', () => {
  const clock = new ManualClock();
  const map = new AgedMap<string, string>(clock, 10_000, 2);
  map.renew('a', 'x');
  clock.advance(999);
  map.renew('a', 'x');
  expect(map.ageMs('a')).toBe(999);
  map.renew('a', 'y');
  expect([map.get('a'), map.ageMs('a')]).toEqual(['y', 0]);
  clock.advance(1_000);
  map.renew('a', 'y');
  expect(map.ageMs('a')).toBe(0);
});
