import { expect, test } from 'vitest';
import { isSame } from '../../src/config/same.ts';
import { Secret } from '../../src/core/secret.ts';

const source = () => ({
  name: 'city',
  key: new Secret('one'),
  params: { count: 5 },
  users: [{ a: 1 }],
  size: undefined,
});

test('same: equal through and through, secrets included', () => {
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
])('same: %s makes a difference', (_, change) => {
  expect(isSame(source(), { ...source(), ...change })).toBe(false);
  expect(isSame({ ...source(), ...change }, source())).toBe(false);
});
