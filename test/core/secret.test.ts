import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { MASK, maskSecrets, Secret } from '../../src/core/secret.ts';

test('secret: printing does not show the value', () => {
  const secret = new Secret('hunter2-hunter2');
  const printed = [
    String(secret),
    `${secret}`,
    JSON.stringify({ secret }),
    inspect(secret),
    inspect({ deep: { secret } }, { depth: 9, showHidden: true }),
    Object.entries(secret).join(),
  ];
  for (const text of printed) expect(text).not.toContain('hunter2');
  expect(inspect(secret)).toBe(MASK);
  expect(secret.reveal()).toBe('hunter2-hunter2');
});

test('secret: masks every occurrence in a text, also URL-encoded', () => {
  const secrets = [new Secret('p@ss word'), new Secret('密码密码')];
  const text = `key=p@ss word&key=p%40ss%20word&key=${encodeURIComponent('密码密码')}&end`;
  expect(maskSecrets(text, secrets)).toBe(`key=${MASK}&key=${MASK}&key=${MASK}&end`);
});

test('secret: masks completely if one secret starts with another', () => {
  const secrets = [new Secret('abcd'), new Secret('abcdefgh')];
  expect(maskSecrets('x abcdefgh y abcd z', secrets)).toBe(`x ${MASK} y ${MASK} z`);
});

test('secret: masks values with special characters, and values that contain the mask', () => {
  const secrets = [new Secret('a.c$&(x)[\\'), new Secret('secret')];
  expect(maskSecrets('key a.c$&(x)[\\ abc$&(x) secret', secrets)).toBe(`key ${MASK} abc$&(x) ${MASK}`);
});

test('secret: does not mask values shorter than four characters', () => {
  expect(maskSecrets('a cab', [new Secret('a'), new Secret('')])).toBe('a cab');
});

test('secret: masks a value in upper and lower case', () => {
  expect(maskSecrets('key=ABCD-ef, k=abcd-EF', [new Secret('abcd-ef')])).toBe(`key=${MASK}, k=${MASK}`);
});
