import { readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { decodeDraw, decodeList } from '../../src/service/decode.ts';
import { FORMATS, OPERATIONS, PRODUCTS } from '../../src/service/operations.ts';
import { GOLDEN, goldenBody } from './golden.ts';
import { reading } from './reading.ts';

describe('golden answers: they are read as the specification defines', () => {
  test.each(GOLDEN.draws)('$file', ({ file, product, format, textLayout, expected }) => {
    const { code, entries, quota, dropped } = decodeDraw(
      goldenBody(file),
      reading({ product, format, textLayout }),
    );
    expect({ code, entries, quota }).toEqual(expected);
    expect(dropped).toEqual({});
  });

  test.each(GOLDEN.lists)('$file', ({ file, list, expected }) => {
    const { code, records } = decodeList(list, goldenBody(file), reading());
    expect({ code, records }).toEqual(expected);
  });
});

test('golden answers: each operation and format has one, with its lines of the specification', () => {
  const written = new Set(GOLDEN.draws.map(({ operation, format }) => `${operation} ${format}`));
  const wanted = PRODUCTS.flatMap((product) =>
    FORMATS.map((format) => `${OPERATIONS[product].number} ${format}`),
  );
  expect(wanted.length).toBe(24);
  expect(wanted.filter((pair) => !written.has(pair))).toEqual([]);
  expect(GOLDEN.lists.map(({ operation }) => operation)).toEqual(expect.arrayContaining([9, 10]));

  const all = [...GOLDEN.draws, ...GOLDEN.lists];
  expect(all.filter(({ specification }) => specification.length === 0)).toEqual([]);
  const listed = all.map(({ file }) => file).sort();
  const there = readdirSync(new URL('../fixtures/service/golden/', import.meta.url)).sort();
  expect(['index.json', ...listed].sort()).toEqual(there);
});
