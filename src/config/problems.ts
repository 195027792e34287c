/** Everything wrong with a configuration, collected, each with its place; and the error that carries it. */
import { NoriaError } from '../core/faults.ts';
import type { Problem } from './config.ts';
import type { ParsedDocument, Place } from './document.ts';
import { excerptAt } from './excerpt.ts';
import { shownAs } from './fields.ts';

/** All that is wrong with one configuration. Code `bad-config`; the message is the whole list, one problem after the other. */
export class ConfigError extends NoriaError {
  readonly problems: readonly Problem[];

  constructor(file: string, problems: readonly Problem[]) {
    super('bad-config', problems.map((problem) => formatProblem(file, problem)).join('\n'), {
      context: { file, problems: problems.length },
    });
    this.problems = problems;
  }
}

/** `noria.yaml:4:3: pool.tarket: unknown key`, and below it the line with a pointer to the place. */
export function formatProblem(file: string, { line, column, path, message, excerpt }: Problem): string {
  const place = line === 0 ? file : `${file}:${line}:${column}`;
  const head = [place, path, message].filter((part) => part !== '').join(': ');
  return excerpt === undefined ? head : `${head}\n${excerpt}`;
}

/** Whether a problem is told at the key of a value or at the value itself. */
type Side = 'key' | 'value';

const MAX_QUOTED = 60;

/** Collects problems about one document. */
export class Problems {
  readonly #document: ParsedDocument;
  readonly #errors: Problem[] = [];
  readonly #warnings: Problem[] = [];
  /** What each error would have wanted to find, where it is about something that is not there. */
  readonly #wanted = new Map<Problem, readonly string[]>();
  /** Paths that unknown keys were probably meant to have. */
  readonly #meant: string[] = [];

  constructor(document: ParsedDocument) {
    this.#document = document;
    for (const { offset, path, message } of document.problems)
      this.#errors.push(this.#at(offset, path, message));
  }

  /** In the order of the file. What is missing is left out where the one key meant for it stands there misspelt. */
  get errors(): readonly Problem[] {
    const isMisspelt = (path: string) => this.#meant.some((meant) => isWithin(path, meant));
    const toTell = this.#errors.filter((problem) => !this.#wanted.get(problem)?.some(isMisspelt));
    return toTell.toSorted(byPlace);
  }

  get warnings(): readonly Problem[] {
    return this.#warnings.toSorted(byPlace);
  }

  /** Adds an error at a path; where nothing stands there, it points to what is nearest above. */
  error(path: string, message: string, side: Side = 'value'): void {
    this.#errors.push(this.#at(this.#offset(path, side), path, message));
  }

  /** Adds an error about something that is not there: any of the paths `wanted` would do, `path` itself where none is told. */
  missing(
    path: string,
    message: string,
    { wanted = [path], side = 'key' }: { readonly wanted?: readonly string[]; readonly side?: Side } = {},
  ): void {
    const problem = this.#at(this.#offset(path, side), path, message);
    this.#errors.push(problem);
    this.#wanted.set(problem, wanted);
  }

  /** Adds an error about a key that there is not, and which path it was probably `meant` for. */
  unknownKey(path: string, message: string, meant: string | undefined): void {
    this.error(path, message, 'key');
    if (meant !== undefined) this.#meant.push(meant);
  }

  /** Adds a warning at a path. */
  warn(path: string, message: string, side: Side = 'key'): void {
    this.#warnings.push(this.#at(this.#offset(path, side), path, message));
  }

  /** Whether an error stands at exactly this path. */
  hasAt(path: string): boolean {
    return this.#errors.some((problem) => problem.path === path);
  }

  /** Whether something at this path, above or below it is wrong, so that what follows from it is not told as well. */
  has(path: string): boolean {
    return this.#errors.some((problem) => isWithin(problem.path, path) || isWithin(path, problem.path));
  }

  /** Whether the file itself says something at this path. */
  isGiven(path: string): boolean {
    return this.#document.places.has(path);
  }

  /** Whether the value stands in the file itself and does not come from the environment. */
  isLiteral(path: string): boolean {
    return this.#document.places.get(path)?.variables.length === 0;
  }

  /** A value for a message: quoted, or by the name of its variable; never one that may be a secret. */
  quote(path: string, value: string): string {
    const variables = this.#document.places.get(path)?.variables ?? [];
    if (variables.length > 0) return `the value of ${variables.map((name) => `\${${name}}`).join(' and ')}`;
    if (shownAs(path, value) !== 'itself') return '';
    return JSON.stringify(value.length > MAX_QUOTED ? `${value.slice(0, MAX_QUOTED)}…` : value);
  }

  #offset(path: string, side: Side): number {
    const place = this.#nearestPlace(path);
    if (place === undefined) return 0;
    return side === 'key' || !this.isGiven(path) ? place.keyOffset : place.valueOffset;
  }

  #nearestPlace(path: string): Place | undefined {
    const place = this.#document.places.get(path);
    if (place !== undefined || path === '') return place;
    return this.#nearestPlace(path.replace(/(?:\.[^.[\]]*|\[\d+\]|^[^.[\]]*)$/, ''));
  }

  #at(offset: number, path: string, message: string): Problem {
    const { line, col } = this.#document.lines.linePos(offset);
    return { path, line, column: col, message, excerpt: excerptAt(this.#document, offset) };
  }
}

function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`);
}

function byPlace(one: Problem, other: Problem): number {
  return one.line - other.line || one.column - other.column;
}
