/** Plain tables for a terminal or a pipe: columns as wide as their widest cell, two spaces between. */
import { stripVTControlCharacters } from 'node:util';

export interface Column {
  readonly title: string;
  /** Numbers stand to the right. */
  readonly align?: 'left' | 'right';
}

/** The lines of a table, its titles first. A missing cell is empty. */
export function formatTable(columns: readonly Column[], rows: readonly (readonly string[])[]): string[] {
  const widths = columns.map(({ title }, at) =>
    Math.max(...[title, ...rows.map((row) => row[at] ?? '')].map(displayWidth)),
  );
  const line = (cells: readonly string[]) =>
    columns
      .map(({ align }, at) => pad(cells[at] ?? '', widths[at] ?? 0, align ?? 'left'))
      .join('  ')
      .trimEnd();
  return [line(columns.map(({ title }) => title)), ...rows.map(line)];
}

/** Columns that a text takes on a terminal: wide East Asian characters take two. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of stripVTControlCharacters(text)) width += WIDE.test(character) ? 2 : 1;
  return width;
}

/** The text as far as it fits into so many columns; what styles it stays whole. */
export function cutToWidth(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  let width = 0;
  let cut = '';
  for (const [part] of text.matchAll(STYLE_OR_CHARACTER)) {
    width += displayWidth(part); // a style has none
    if (width <= columns || displayWidth(part) === 0) cut += part;
  }
  return cut;
}

/** What sets a style, whole, or one character. */
const STYLE_OR_CHARACTER = /\p{Cc}\[[0-9;]*m|./gsu;

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/;

function pad(text: string, width: number, align: 'left' | 'right'): string {
  const gap = ' '.repeat(Math.max(0, width - displayWidth(text)));
  return align === 'left' ? text + gap : gap + text;
}
