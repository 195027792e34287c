/**
 * Shows one line of a configuration, and below it a pointer to a place in the line, without secrets.
 *
 * Every value that may be a secret is masked, also after a misspelt key such as `pasword:`. Comments are removed,
 * because a comment may contain an old password.
 */
import { MASK } from '../core/secret.ts';
import type { ParsedDocument } from './document.ts';
import { shownAs } from './fields.ts';

const MAX_BEFORE = 80;
const MAX_AFTER = 60;
const NUMBER_WIDTH = 5;
/** The key at the start of a line. If the file is not valid YAML, the excerpt shows only this key. */
const FIRST_KEY = /^\s*(?:- +)*["']?[\w.]+["']?\s*:(?=\s|$)/;
/** Characters that take two columns in a terminal. The pointer needs a wide space below each of them. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/g;
const IDEOGRAPHIC_SPACE = '\u3000';

/** A part of a line, and the text that the excerpt shows for it. The numbers are offsets into the line. */
interface Stretch {
  readonly start: number;
  readonly end: number;
  readonly shown: string;
  /** True if `shown` replaces the text of the file. The `^` can then point only at the start of this part. */
  readonly masked?: boolean;
}

/**
 * @returns two lines: the line that contains the offset, with its line number, and a `^` below the offset. Undefined if
 * no part of the line may be shown.
 */
export function excerptAt(document: ParsedDocument, offset: number): string | undefined {
  const { text, lines } = document;
  const { line } = lines.linePos(offset);
  const start = lines.lineStarts[line - 1] ?? 0;
  const end = lines.lineStarts[line] ?? text.length;
  const whole = text.slice(start, end).trimEnd();
  const stretches = document.tree === undefined ? unparsed(whole) : parsed(document, start, whole);
  const shown = stretches.map((stretch) => stretch.shown).join('');
  if (shown.trim() === '') return undefined;
  return draw(line, shown, columnOf(stretches, offset - start));
}

function draw(line: number, shown: string, column: number): string {
  const from = Math.max(0, column - MAX_BEFORE);
  const before = (from === 0 ? '' : '…') + shown.slice(from, column);
  const after = shown.slice(column);
  const cut = after.length > MAX_AFTER ? `${after.slice(0, MAX_AFTER)}…` : after;
  const gap = before.replace(WIDE, IDEOGRAPHIC_SPACE).replace(/[^\t\u3000]/g, ' ');
  const number = String(line).padStart(NUMBER_WIDTH);
  const content = `${number} | ${before}${cut}`.trimEnd();
  return `${content}\n${' '.repeat(number.length)} | ${gap}^`;
}

/**
 * Converts an offset in the line to a column of the excerpt. An offset inside a masked part becomes the column where
 * that part begins.
 */
function columnOf(stretches: readonly Stretch[], offset: number): number {
  let column = 0;
  for (const { start, end, shown, masked } of stretches) {
    if (offset >= end) column += shown.length;
    else if (offset > start && masked !== true) column += Math.min(offset - start, shown.length);
  }
  return column;
}

function parsed({ extents }: ParsedDocument, lineStart: number, whole: string): Stretch[] {
  const here = extents
    .filter(({ start, end }) => start < lineStart + whole.length && end > lineStart && end > start)
    .map(({ start, end, path, text }) => ({
      start: Math.max(0, start - lineStart),
      end: Math.min(end - lineStart, whole.length),
      isScalar: text !== undefined,
      as: shownAs(path, text),
    }));
  // Each alias of a value gives it another path. The value is masked if one of its paths is the path of a secret.
  const hidden = here
    .filter(({ as }) => as !== 'itself')
    .toSorted((one, other) => one.start - other.start || (one.as === 'secret' ? -1 : 1));
  const stretches: Stretch[] = [];
  let at = 0;
  for (const { start, end, as } of hidden) {
    if (start < at) continue;
    stretches.push({ start: at, end: start, shown: whole.slice(at, start) });
    stretches.push({ start, end, shown: as === 'secret' ? MASK : '…', masked: true });
    at = end;
  }
  const lastEnd = Math.max(0, ...here.filter(({ isScalar }) => isScalar).map(({ end }) => end));
  stretches.push({ start: at, end: whole.length, shown: withoutComment(whole, at, lastEnd) });
  return stretches;
}

/**
 * Returns the line from the offset `from` to its comment. A comment can only begin after the last scalar, which ends at
 * `lastEnd`.
 */
function withoutComment(whole: string, from: number, lastEnd: number): string {
  const comment = /(?:^|\s)#/.exec(whole.slice(lastEnd));
  return whole.slice(from, comment === null ? whole.length : lastEnd + comment.index);
}

function unparsed(whole: string): Stretch[] {
  const end = FIRST_KEY.exec(whole)?.[0].length;
  if (end === undefined) return [];
  return [
    { start: 0, end, shown: whole.slice(0, end) },
    { start: end, end: whole.length, shown: end < whole.length ? ' …' : '', masked: true },
  ];
}
