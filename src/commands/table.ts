/** Text tables: each column is as wide as its widest cell, with two spaces between columns. */
import { stripVTControlCharacters } from 'node:util';

export interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => string;
  readonly align?: 'left' | 'right';
}

/** The lines of a table, starting with the titles. */
export function formatTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string[] {
  const formatted = columns.map(({ title, cell, align = 'left' }) => {
    const cells = [title, ...rows.map(cell)];
    const width = Math.max(...cells.map(displayWidth));
    return cells.map((text) => pad(text, width, align));
  });
  return ['', ...rows].map((_, line) =>
    formatted
      .map((cells) => cells[line])
      .join('  ')
      .trimEnd(),
  );
}

/** The number of terminal columns that a text takes. Wide East Asian characters take two. */
export function displayWidth(text: string): number {
  let width = 0;
  for (const character of stripVTControlCharacters(text)) width += WIDE.test(character) ? 2 : 1;
  return width;
}

/** Cuts a text to at most `columns` terminal columns. Keeps all style sequences. */
export function cutToWidth(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  let width = 0;
  let cut = '';
  for (const [part] of text.matchAll(STYLE_OR_CHARACTER)) {
    width += displayWidth(part); // a style sequence has width 0
    if (width <= columns || displayWidth(part) === 0) cut += part;
  }
  return cut;
}

/** A whole style sequence, or one character. */
const STYLE_OR_CHARACTER = /\p{Cc}\[[0-9;]*m|./gsu;

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/;

function pad(text: string, width: number, align: 'left' | 'right'): string {
  const gap = ' '.repeat(Math.max(0, width - displayWidth(text)));
  return align === 'left' ? text + gap : gap + text;
}
