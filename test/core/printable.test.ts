import fc from 'fast-check';
import { expect, test } from 'vitest';
import { escapeAll, escapeFormat, escapeForTerminal } from '../../src/core/printable.ts';
import { ANY_TEXT } from '../support/properties.ts';

test('printable: ordinary text in any language stays as it is', () => {
  for (const text of ['', 'plain', '广东 电信', 'müller', '€ 😀', 'a\\u009b']) {
    expect(escapeAll(text)).toBe(text);
    expect(escapeForTerminal(text)).toBe(text);
  }
});

test('printable: the terminal keeps lines, tabs and styles, and no other sequence', () => {
  expect(escapeForTerminal('a\tb\n\u001b[1;31mred\u001b[0m')).toBe('a\tb\n\u001b[1;31mred\u001b[0m');
  expect(escapeForTerminal('\u001b]0;title\u0007\u001b[2J\r\u001b')).toBe(
    String.raw`\u001b]0;title\u0007\u001b[2J\u000d\u001b`,
  );
  expect(escapeForTerminal('\u009b2J\u202e')).toBe(String.raw`\u009b2J\u202e`);
});

test('printable: escapes of JSON text parse to the same value', () => {
  const units = fc.array(fc.integer({ min: 0, max: 0xffff })).map((list) => String.fromCharCode(...list));
  fc.assert(
    fc.property(fc.oneof(units, ANY_TEXT), (value) => {
      expect(JSON.parse(escapeFormat(JSON.stringify(value)))).toBe(value);
      expect(escapeAll(value)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
    }),
  );
});
