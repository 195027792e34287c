import { expect, test } from 'vitest';
import { cutToWidth, displayWidth, formatTable } from '../../src/commands/table.ts';

test('table: columns are as wide as their widest cell, numbers are right-aligned, no line ends in spaces', () => {
  const rows = [
    { name: 'city', count: 7, why: 'fine' },
    { name: 'harbour', count: 120, why: '' },
  ];
  const lines = formatTable(rows, [
    { title: 'NAME', cell: ({ name }) => name },
    { title: 'N', align: 'right', cell: ({ count }) => String(count) },
    { title: 'WHY', cell: ({ why }) => why },
  ]);
  expect(lines).toEqual(['NAME       N  WHY', 'city       7  fine', 'harbour  120']);
});

test('table: an East Asian character takes two columns, a style sequence none', () => {
  expect(displayWidth('广东 电信')).toBe(9);
  expect(displayWidth('\u001b[31mred\u001b[0m')).toBe(3);
  expect(
    formatTable(
      ['广东 x', 'ab y'],
      [
        { title: 'A', cell: (row) => row.split(' ')[0] ?? '' },
        { title: 'B', cell: (row) => row.split(' ')[1] ?? '' },
      ],
    ),
  ).toEqual(['A     B', '广东  x', 'ab    y']);
});

test('table: without rows only the titles are printed', () => {
  expect(formatTable([], [{ title: 'NAME', cell: String }])).toEqual(['NAME']);
});

test('table: a line is cut to the given columns, wide characters and styles respected', () => {
  expect(cutToWidth('abcdef', 6)).toBe('abcdef');
  expect(cutToWidth('abcdef', 4)).toBe('abcd');
  expect(cutToWidth('上海市', 5)).toBe('上海');
  expect(cutToWidth('\u001b[31mabcdef\u001b[39m', 2)).toBe('\u001b[31mab\u001b[39m');
});
