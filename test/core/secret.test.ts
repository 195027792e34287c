import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { MASK, maskSecrets, Secret } from '../../src/core/secret.ts';

test('secret: no way of printing it shows it', () => {
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

test('secret: masked in a text wherever it stands, also URL-encoded', () => {
  const secrets = [new Secret('p@ss word'), new Secret('密码密码')];
  const text = `key=p@ss word&key=p%40ss%20word&key=${encodeURIComponent('密码密码')}&end`;
  expect(maskSecrets(text, secrets)).toBe(`key=${MASK}&key=${MASK}&key=${MASK}&end`);
});

test('secret: one that begins like another leaves no end of it behind', () => {
  const secrets = [new Secret('abcd'), new Secret('abcdefgh')];
  expect(maskSecrets('x abcdefgh y abcd z', secrets)).toBe(`x ${MASK} y ${MASK} z`);
});

test('secret: one with characters that mean something in a pattern, or with the word of the mask', () => {
  const secrets = [new Secret('a.c$&(x)[\\'), new Secret('secret')];
  expect(maskSecrets('key a.c$&(x)[\\ abc$&(x) secret', secrets)).toBe(`key ${MASK} abc$&(x) ${MASK}`);
});

test('secret: one too short to tell from ordinary text is left', () => {
  expect(maskSecrets('a cab', [new Secret('a'), new Secret('')])).toBe('a cab');
});
