/**
 * Answers that would keep a careless decoder busy for long, or would change its objects. noria decodes each of them, or
 * refuses it because of a limit. A decoder without limits would exceed the timeout of the test.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import type { LinkRules } from '../../../src/service/link/rules.ts';
import { runsOf } from '../../support/properties.ts';
import { decode } from './decode.ts';

const MIB = 1_048_576;

const fill = (before: string, unit: string, after = '') =>
  before + unit.repeat(Math.floor((MIB - before.length - after.length) / unit.length)) + after;
const LAYOUT: Partial<LinkRules> = { address: '{a},{b},{ip}:{port},{c}' };

test.each<[name: string, body: string, rules: Partial<LinkRules>]>([
  ['100,000 lines', '192.0.2.1:80\n'.repeat(80_000), {}],
  ['100,000 addresses in one line', fill('', '192.0.2.1:80,'), {}],
  ['addresses without separators', fill('', '192.0.2.1:80x'), {}],
  ['digits and dots', fill('', '1.'), {}],
  ['colons', fill('', 'a:'), {}],
  ['at signs', fill('a:', 'b@'), {}],
  ['separators inside an entry', fill('1.2.3.4:80', ' ', 'x'), {}],
  ['separators inside every entry', fill('', `1.2.3.4:80${',;| '.repeat(5_000)}x`), {}],
  ['separators in a text in JSON', `{"data":"1.2.3.4:80${';'.repeat(MIB - 100)}x"}`, {}],
  ['brackets', fill('', '[::'), {}],
  ['separators before a layout', fill('', `${','.repeat(500)}\n`), LAYOUT],
  ['deep lists', '['.repeat(MIB / 2) + ']'.repeat(MIB / 2), {}],
  ['deep objects', `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`, {}],
  ['many objects', fill('[', '{},', '{}]'), {}],
  ['a long text in JSON', `{"data":"${'1.2.3.4 '.repeat(100_000)}"}`, {}],
  ['a long key', `{"${'k'.repeat(MIB - 20)}":[{}]}`, {}],
  ['an entry with many fields', `[{${Array.from({ length: 30_000 }, (_, n) => `"f${n}":1`).join()}}]`, {}],
  [
    'many entries with many fields',
    `[${Array.from({ length: 400 }, () => `{${Array.from({ length: 70 }, (_, n) => `"k${n}":"1"`).join()}}`).join()}]`,
    {},
  ],
])('link: reads or refuses %s ', (_name, body, rules) => {
  try {
    expect(decode(body, rules).entries.length).toBeLessThanOrEqual(1_000);
  } catch (error) {
    expect(error).toBeInstanceOf(NoriaError);
    expect(String(error).length).toBeLessThan(500);
  }
});

test('link: keeps 1,000 entries and counts the rest', () => {
  const list = Array.from({ length: 3_000 }, (_, n) => `192.0.${n >> 8}.${n & 255}:80`);
  const { entries, dropped } = decode(list);
  expect([entries.length, dropped]).toEqual([1_000, { excess: 2_000 }]);
});

test('link: names of the prototype are ordinary names', () => {
  const text =
    '{"__proto__":{"code":"0"},"constructor":{"x":1},"data":[{"__proto__":{"ip":"192.0.2.1","port":1}}]}';
  expect(decode(text).entries).toMatchObject([{ host: '192.0.2.1' }]);
  const code = { field: 'constructor.name', is: ['Object'] };
  expect(decode('{"data":[]}', { ok: code }).code).toBe('refused');
  expect(decode('{"code":1}', { ok: { field: '__proto__.code', is: ['0'] } }).code).toBe('refused');
  expect(() => decode('{"code":1}', { list: '__proto__' })).toThrow(/no list at __proto__/);
  expect(Object.prototype).not.toHaveProperty('code');
});

const pathText = fc.constantFrom('data', 'code', '.', 'a.b', '__proto__', '0', 'list');
const rules = fc.record(
  {
    list: pathText,
    address: fc.constantFrom('{ip}:{port}', '{a}', '{ip},{port},{seconds}', '{__proto__}'),
    expiry: fc.record({
      field: pathText,
      as: fc.constantFrom('seconds' as const, 'minutes' as const, 'datetime' as const, 'epoch' as const),
      zone: fc.constantFrom('+08:00', 'Z'),
    }),
    exitIp: pathText,
    location: fc.array(pathText, { maxLength: 3 }),
    ok: fc.record({ field: pathText, is: fc.constant(['0']) }),
  },
  { requiredKeys: [] },
);
const leaf = fc.oneof(
  fc.constantFrom(
    '192.0.2.1:80',
    '192.0.2.1',
    'u:p@192.0.2.1:80',
    '2026-11-22 10:00:01',
    80,
    '80',
    -1,
    1e15,
    null,
  ),
  fc.string({ maxLength: 20 }),
  fc.double(),
  fc.boolean(),
);
const name = fc.constantFrom(
  'ip',
  'port',
  'data',
  'list',
  'code',
  'expire_time',
  '__proto__',
  'toString',
  'city',
);
const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { depthSize: 'small' },
    leaf,
    fc.array(tie('json'), { maxLength: 5 }),
    fc.array(fc.tuple(name, tie('json')), { maxLength: 6 }).map((pairs) => Object.fromEntries(pairs)),
  ),
}));
const body = fc.oneof(
  json.map((value) => JSON.stringify(value)),
  fc
    .array(fc.oneof(leaf.map(String), fc.constantFrom(',', '\n', ':', '@', '<br>', '|')), { maxLength: 30 })
    .map((parts) => parts.join('')),
  fc.string(),
);

test('link: every answer is decoded to valid entries or is a NoriaError, with any rules', () => {
  fc.assert(
    fc.property(body, rules, (text, given) => {
      try {
        for (const entry of decode(text, given).entries) {
          expect(entry.port).toBeGreaterThan(0);
          expect(entry.host).toMatch(/^[0-9a-f.:]+$/);
          const { lifetimeMs } = entry;
          if (typeof lifetimeMs === 'number') expect(lifetimeMs).toBeGreaterThan(0);
        }
      } catch (error) {
        if (!(error instanceof NoriaError)) throw error;
      }
    }),
    { numRuns: runsOf(2_000) },
  );
});
