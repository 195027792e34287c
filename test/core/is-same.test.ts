import { expect, test } from 'vitest';
import { isSame } from '../../src/core/is-same.ts';
import { Secret } from '../../src/core/secret.ts';

const source = () => ({
  name: 'city',
  key: new Secret('one'),
  params: { count: 5 },
  users: [{ a: 1 }],
  size: undefined,
});

test('is same: compares at every depth, secrets by what they hold', () => {
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
])('is same: %s makes a difference', (_, change) => {
  expect(isSame(source(), { ...source(), ...change })).toBe(false);
  expect(isSame({ ...source(), ...change }, source())).toBe(false);
});
