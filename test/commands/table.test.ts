import { expect, test } from 'vitest';
import { cutToWidth, displayWidth, formatTable, wrapText } from '../../src/commands/table.ts';

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

test('table: leaves out optional columns that are empty or do not fit, the last one first', () => {
  const columns = [
    { title: 'NAME', cell: (row: string) => row },
    { title: 'EMPTY', cell: () => '', optional: true },
    { title: 'ONE', cell: () => '111', optional: true },
    { title: 'TWO', cell: () => '222', optional: true },
  ];
  expect(formatTable(['city'], columns, 14)).toEqual(['NAME  ONE  TWO', 'city  111  222']);
  expect(formatTable(['city'], columns, 13)).toEqual(['NAME  ONE', 'city  111']);
  expect(formatTable(['a-long-name'], columns, 8)).toEqual(['NAME', 'a-long-n']);
});

test('table: wraps at spaces, and inside a word that is longer than a line', () => {
  expect(wrapText('the key is wrong', 8)).toEqual(['the key', 'is wrong']);
  expect(wrapText('short', 8)).toEqual(['short']);
  expect(wrapText('a 0123456789abc d', 8)).toEqual(['a', '01234567', '89abc d']);
  expect(wrapText('当前没有任何代理', 6)).toEqual(['当前没', '有任何', '代理']);
  expect(wrapText('', 8)).toEqual(['']);
});
