import { expect, test } from 'vitest';
import { isSame, Secret } from '../../src/core/secret.ts';

const source = () => ({
  name: 'city',
  key: new Secret('one'),
  params: { count: 5 },
  users: [{ a: 1 }],
  limits: new Map([['city', { count: 5 }]]),
  size: undefined,
});

test('is same: compares at every depth, and compares secrets by their values', () => {
  expect(isSame(source(), source())).toBe(true);
});

test.each([
  ['a text', { name: 'town' }],
  ['a secret', { key: new Secret('two') }],
  ['a secret and its mask', { key: '[secret]' }],
  ['something inside', { params: { count: 6 } }],
  ['one entry more', { users: [{ a: 1 }, { a: 1 }] }],
  ['a list and a map', { users: { 0: { a: 1 } } }],
  ['one key more', { more: 1 }],
  ['nothing and something', { size: 1 }],
  ['nothing and null', { size: null }],
  ['an entry of a Map', { limits: new Map([['city', { count: 6 }]]) }],
  ['a key of a Map', { limits: new Map([['town', { count: 5 }]]) }],
  ['a Map and an empty object', { limits: {} }],
  ['another kind of object', { limits: new Set(['city']) }],
])('is same: %s makes a difference', (_, change) => {
  expect(isSame(source(), { ...source(), ...change })).toBe(false);
  expect(isSame({ ...source(), ...change }, source())).toBe(false);
});

test('is same: an object that is not plain data equals only itself', () => {
  const names = new Set(['city']);
  expect(isSame({ names }, { names })).toBe(true);
  expect(isSame(new Set(['city']), new Set(['town']))).toBe(false);
  expect(isSame(new Date(1), new Date(2))).toBe(false);
});
