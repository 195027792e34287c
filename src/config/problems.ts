/** Collects the problems of a configuration with their positions in the file. */
import { NoriaError } from '../core/faults.ts';
import type { ParsedDocument, ValuePosition } from './document.ts';
import { excerptAt } from './excerpt.ts';
import { shownAs } from './fields.ts';

/** An error in a configuration, or a warning about it. */
export interface Problem {
  /** The path of the key, such as `sources[0].interval`; empty for the whole file. */
  readonly path: string;
  /** The line of the problem, counted from 1; 0 if the problem has no position in the file. */
  readonly line: number;
  /** The column of the problem, counted in characters from 1. */
  readonly column: number;
  /** What is wrong, what was expected, and if possible a valid value as an example. Never contains a secret. */
  readonly message: string;
  /** The line of the file with masked secrets, and below it a pointer to the position. */
  readonly excerpt: string | undefined;
}

/** Reports all problems of one configuration, with the code `bad-config`. The message lists the problems. */
export class ConfigError extends NoriaError {
  readonly problems: readonly Problem[];

  constructor(file: string, problems: readonly Problem[]) {
    super('bad-config', problems.map((problem) => formatProblem(file, problem)).join('\n'), {
      context: { file, problems: problems.length },
    });
    this.problems = problems;
  }
}

/** Formats a problem as `noria.yaml:4:3: pool.tarket: unknown key`, with the excerpt on the next lines. */
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
  /** For each problem "missing key": the paths of the keys that can solve it. One of these keys is enough. */
  readonly #wanted = new Map<Problem, readonly string[]>();
  /** The paths of the known keys that noria suggests in place of unknown keys. */
  readonly #meant: string[] = [];

  constructor(document: ParsedDocument) {
    this.#document = document;
    for (const { offset, path, message } of document.problems)
      this.#errors.push(this.#at(offset, path, message));
  }

  /**
   * The errors in the order of the file. An error about a missing key is omitted if the file probably has a misspelt
   * form of that key.
   */
  get errors(): readonly Problem[] {
    const isMisspelt = (path: string) => this.#meant.some((meant) => isWithin(path, meant));
    const reported = this.#errors.filter((problem) => !this.#wanted.get(problem)?.some(isMisspelt));
    return reported.toSorted(byPosition);
  }

  get warnings(): readonly Problem[] {
    return this.#warnings.toSorted(byPosition);
  }

  /**
   * Adds an error. If the file does not contain `path`, the error points at the nearest path above it that the file
   * contains.
   */
  error(path: string, message: string, side: Side = 'value'): void {
    this.#errors.push(this.#at(this.#offset(path, side), path, message));
  }

  /** @param wanted - the paths of all keys that can solve the problem. One of them is enough. Default: `path`. */
  missing(
    path: string,
    message: string,
    { wanted = [path], side = 'key' }: { readonly wanted?: readonly string[]; readonly side?: Side } = {},
  ): void {
    const problem = this.#at(this.#offset(path, side), path, message);
    this.#errors.push(problem);
    this.#wanted.set(problem, wanted);
  }

  /** @param meant - the path of the known key that is probably meant. */
  unknownKey(path: string, message: string, meant: string | undefined): void {
    this.error(path, message, 'key');
    if (meant !== undefined) this.#meant.push(meant);
  }

  /** Reports each value that is equal to an earlier value. */
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

  /** Whether there is an error at exactly this path. */
  hasAt(path: string): boolean {
    return this.#errors.some((problem) => problem.path === path);
  }

  /**
   * Whether there is an error at this path, or at a path above or below it. If so, a further problem at this path is
   * probably a result of that error.
   */
  has(path: string): boolean {
    return this.#errors.some((problem) => isWithin(problem.path, path) || isWithin(path, problem.path));
  }

  isGiven(path: string): boolean {
    return this.#document.positions.has(path);
  }

  /** The paths of secrets that may be incomplete: YAML reads a `#` after them as the start of a comment. */
  get cutOffSecrets(): readonly string[] {
    const positions = [...this.#document.positions];
    return positions.flatMap(([path, { isCutOff }]) =>
      isCutOff === true && shownAs(path, undefined) === 'secret' ? [path] : [],
    );
  }

  /** Whether the file contains the whole value, without a reference to the environment. */
  isLiteral(path: string): boolean {
    return this.#document.positions.get(path)?.variables.length === 0;
  }

  /**
   * Returns the text that a message shows for the value: the value in quotation marks, or the names of the environment
   * variables that it comes from. Returns '' if the value may be a secret.
   */
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
