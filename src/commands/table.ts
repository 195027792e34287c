/** Formats text tables and wraps text. */
import { stripVTControlCharacters } from 'node:util';

export interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => string;
  readonly align?: 'left' | 'right';
  /** Left out if all its cells are empty; and if the table is too wide, the rightmost optional column first. */
  readonly optional?: boolean;
}

export function numbers<Row>(
  title: string,
  value: (row: Row) => string | number,
  optional = false,
): Column<Row> {
  return { title, align: 'right', cell: (row) => String(value(row)), optional };
}

interface FormattedColumn {
  readonly width: number;
  readonly cells: readonly string[];
  readonly optional: boolean;
}

const GAP = '  ';

/** The first line has the titles. Lines that are too wide even without optional columns are cut. */
export function formatTable<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  width = Number.POSITIVE_INFINITY,
): string[] {
  const formatted = columns.flatMap((column) => formatColumn(rows, column));
  while (widthOf(formatted) > width) {
    const last = formatted.findLastIndex(({ optional }) => optional);
    if (last < 0) break;
    formatted.splice(last, 1);
  }
  return ['', ...rows].map((_, line) => {
    const text = formatted.map(({ cells }) => cells[line]).join(GAP);
    return cutToWidth(text.trimEnd(), width);
  });
}

function formatColumn<Row>(
  rows: readonly Row[],
  { title, cell, align = 'left', optional = false }: Column<Row>,
): FormattedColumn[] {
  const content = rows.map(cell);
  if (optional && content.every((text) => text === '')) return [];
  const cells = [title, ...content];
  const width = Math.max(...cells.map(displayWidth));
  return [{ width, cells: cells.map((text) => pad(text, width, align)), optional }];
}

function widthOf(columns: readonly FormattedColumn[]): number {
  return columns.reduce((sum, { width }) => sum + width + GAP.length, -GAP.length);
}

export function wrapText(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (displayWidth(longer) <= width) {
      line = longer;
      continue;
    }
    if (line !== '') lines.push(line);
    line = word;
    while (displayWidth(line) > width) {
      const head = cutToWidth(line, width);
      lines.push(head);
      line = line.slice(head.length);
    }
  }
  return [...lines, line];
}

export function displayWidth(text: string): number {
  let width = 0;
  for (const character of stripVTControlCharacters(text)) width += WIDE.test(character) ? 2 : 1;
  return width;
}

/** Cuts a text to at most `columns` terminal columns. Keeps all escape sequences, which set colours and styles. */
export function cutToWidth(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  let width = 0;
  let cut = '';
  for (const [part] of text.matchAll(STYLE_OR_CHARACTER)) {
    width += displayWidth(part); // an escape sequence is invisible
    if (width <= columns || displayWidth(part) === 0) cut += part;
  }
  return cut;
}

const STYLE_OR_CHARACTER = /\p{Cc}\[[0-9;]*m|./gsu;

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]/;

function pad(text: string, width: number, align: 'left' | 'right'): string {
  const gap = ' '.repeat(Math.max(0, width - displayWidth(text)));
  return align === 'left' ? text + gap : gap + text;
}
