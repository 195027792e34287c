import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import { isKey, keyFromPassword } from '../../src/service/request.ts';

// The keys were computed with md5sum.
test.each([
  ['12345678', '83aa400af464c76d'],
  ['password', '5aa765d61d8327de'],
  ['密码', '604a0b11e916f387'],
])('key: the password %s has the key %s', (password, key) => {
  expect(keyFromPassword(new Secret(password)).reveal()).toBe(key);
});

test('key: the error for a refused MD5 says what to configure instead', () => {
  const refuse = () => {
    throw new Error('error:0308010C:digital envelope routines::unsupported');
  };
  const attempt = () => keyFromPassword(new Secret('hunter2'), refuse);
  expect(attempt).toThrow(NoriaError);
  expect(attempt).toThrow(/refused MD5 \(.*unsupported\).*FIPS.*configure the 16-character key/);
  expect(attempt).not.toThrow(/hunter2/);
});

test.each([
  ['83aa400af464c76d', true],
  ['83AA400AF464C76D', true],
  ['83aa400af464c76', false],
  ['83aa400af464c76d0', false],
  ['25d55ad283aa400af464c76d713c07ad', false],
  ['83aa400af464c76g', false],
  ['83aa400af464c76d\n', false],
  ['', false],
])('key: whether %j looks like a key is %s', (text, is) => {
  expect(isKey(text)).toBe(is);
});
