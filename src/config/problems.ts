import { NoriaError } from '../core/faults.ts';
import { MASK } from '../core/secret.ts';
import type { ParsedDocument, ValuePosition } from './document.ts';
import { shownAs } from './fields.ts';

export interface Problem {
  /** The path of the key, such as `sources[0].interval`; empty for the whole file. */
  readonly path: string;
  /** The line of the problem, counted from 1; 0 if the problem has no position in the file. */
  readonly line: number;
  readonly column: number;
  /** What is wrong, what was expected, and if possible a valid value as an example. Never contains a secret. */
  readonly message: string;
  readonly excerpt: string | undefined;
}

export class ConfigError extends NoriaError {
  readonly problems: readonly Problem[];

  constructor(file: string, problems: readonly Problem[]) {
    super('bad-config', problems.map((problem) => formatProblem(file, problem)).join('\n'), {
      context: { file, problems: problems.length },
    });
    this.problems = problems;
  }
}

export function formatProblem(file: string, { line, column, path, message, excerpt }: Problem): string {
  const position = line === 0 ? file : `${file}:${line}:${column}`;
  const head = [position, path, message].filter((part) => part !== '').join(': ');
  return excerpt === undefined ? head : `${head}\n${excerpt}`;
}

type Side = 'key' | 'value';

const MAX_QUOTED = 60;

export class Problems {
  readonly #document: ParsedDocument;
  readonly #errors: Problem[] = [];
  readonly #warnings: Problem[] = [];
  /** For a "missing key": the paths of the keys that can solve it. One of them is enough. */
  readonly #wanted = new Map<Problem, readonly string[]>();
  readonly #meant: string[] = [];

  constructor(document: ParsedDocument) {
    this.#document = document;
    for (const { offset, path, message } of document.problems)
      this.#errors.push(this.#at(offset, path, message));
  }

  /** Without those about a missing key of which the file probably has a misspelt form. */
  get errors(): readonly Problem[] {
    const isMisspelt = (path: string) => this.#meant.some((meant) => isWithin(path, meant));
    const reported = this.#errors.filter((problem) => !this.#wanted.get(problem)?.some(isMisspelt));
    return reported.toSorted(byPosition);
  }

  get warnings(): readonly Problem[] {
    return this.#warnings.toSorted(byPosition);
  }

  error(path: string, message: string, side: Side = 'value'): void {
    this.#errors.push(this.#at(this.#offset(path, side), path, message));
  }

  missing(
    path: string,
    message: string,
    { wanted = [path], side = 'key' }: { readonly wanted?: readonly string[]; readonly side?: Side } = {},
  ): void {
    const problem = this.#at(this.#offset(path, side), path, message);
    this.#errors.push(problem);
    this.#wanted.set(problem, wanted);
  }

  unknownKey(path: string, message: string, meant: string | undefined): void {
    this.error(path, message, 'key');
    if (meant !== undefined) this.#meant.push(meant);
  }

  duplicates(values: readonly (readonly [path: string, value: string | undefined])[]): void {
    values.forEach(([path, value], index) => {
      const first = values.findIndex(([, other]) => other === value);
      if (value === undefined || first === index || this.has(path)) return;
      this.error(path, `${this.quote(path, value)} is a duplicate of ${values[first]?.[0]}`.trim());
    });
  }

  warn(path: string, message: string, side: Side = 'key'): void {
    this.#warnings.push(this.#at(this.#offset(path, side), path, message));
  }

  hasAt(path: string): boolean {
    return this.#errors.some((problem) => problem.path === path);
  }

  /** Whether there is an error at, above or below this path: a further problem here probably results from it. */
  has(path: string): boolean {
    return this.#errors.some((problem) => isWithin(problem.path, path) || isWithin(path, problem.path));
  }

  isGiven(path: string): boolean {
    return this.#document.positions.has(path);
  }

  get cutOffSecrets(): readonly string[] {
    const positions = [...this.#document.positions];
    return positions.flatMap(([path, { isCutOff }]) =>
      isCutOff === true && shownAs(path, undefined) === 'secret' ? [path] : [],
    );
  }

  isLiteral(path: string): boolean {
    return this.#document.positions.get(path)?.variables.length === 0;
  }

  /** The value in quotation marks, or the names of its environment variables; '' if it may be a secret. */
  quote(path: string, value: string): string {
    const variables = this.#document.positions.get(path)?.variables ?? [];
    if (variables.length > 0) return `the value of ${variables.map((name) => `\${${name}}`).join(' and ')}`;
    if (shownAs(path, value) !== 'itself') return '';
    return JSON.stringify(value.length > MAX_QUOTED ? `${value.slice(0, MAX_QUOTED)}…` : value);
  }

  #offset(path: string, side: Side): number {
    const position = this.#nearestPosition(path);
    if (position === undefined) return 0;
    return side === 'key' || !this.isGiven(path) ? position.keyOffset : position.valueOffset;
  }

  #nearestPosition(path: string): ValuePosition | undefined {
    const position = this.#document.positions.get(path);
    if (position !== undefined || path === '') return position;
    return this.#nearestPosition(path.replace(/(?:\.[^.[\]]*|\[\d+\]|^[^.[\]]*)$/, ''));
  }

  #at(offset: number, path: string, message: string): Problem {
    const { line, col } = this.#document.lines.linePos(offset);
    return { path, line, column: col, message, excerpt: excerptAt(this.#document, offset) };
  }
}

function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`);
}

function byPosition(one: Problem, other: Problem): number {
  return one.line - other.line || one.column - other.column;
}

const MAX_BEFORE = 80;
const MAX_AFTER = 60;
const NUMBER_WIDTH = 5;
/** The key at the start of a line. If the file is not valid YAML, the excerpt shows only this key. */
const FIRST_KEY = /^\s*(?:- +)*["']?[\w.]+["']?\s*:(?=\s|$)/;
/** Characters that take two columns in a terminal. The pointer needs a wide space below each of them. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/g;
const IDEOGRAPHIC_SPACE = '\u3000';

interface Stretch {
  readonly start: number;
  readonly end: number;
  readonly shown: string;
  /** The `^` can then point only at the start of this part. */
  readonly masked?: boolean;
}

/** The line with its number, and a `^` below the offset. Undefined if no part of the line may be shown. */
function excerptAt(document: ParsedDocument, offset: number): string | undefined {
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
