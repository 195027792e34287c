/**
 * Checks the tree of a file against the schema. Reports each problem with the value, what was expected, and for a
 * misspelt key the most similar known key.
 *
 * Drops invalid values, so that their defaults apply and the later checks, which compare several keys, can check the
 * rest of the file. The caller uses the result only if there was no problem.
 */
import { z } from 'zod';
import { secretsIn } from '../core/secret.ts';
import { nearest } from '../core/words.ts';
import { fullWidthIn, isTreeList, isTreeMap, type Tree, type TreeMap } from './document.ts';
import { FIELDS, fieldAt } from './fields.ts';
import type { FileReader } from './files.ts';
import { inputOf, isOptionalKey } from './keys.ts';
import type { Problems } from './problems.ts';
import { isScalar } from './scalars.ts';
import { type FileConfig, type FileListener, LISTENER, SCHEMA } from './schema.ts';
import { type FileSource, SOURCE } from './schema-source.ts';

/** A source or listener is `undefined` if one of its required values is invalid or missing. */
export interface CheckedConfig extends Omit<FileConfig, 'sources' | 'listeners'> {
  readonly sources: readonly (FileSource | undefined)[];
  readonly listeners: readonly (FileListener | undefined)[];
}

/** Lists that keep their place for an invalid entry, so that a problem in one entry does not hide problems in another. */
const ENTRIES = ['sources', 'listeners'];

export function checkTree(tree: Tree, files: FileReader): CheckedConfig {
  const cleaned = new Cleaner(files).value(SCHEMA, tree, '') ?? {};
  const { sources = [], listeners = [{}], ...sections } = isTreeMap(cleaned) ? cleaned : {};
  const entries = <S extends z.ZodType>(schema: S, list: Tree): (z.output<S> | undefined)[] =>
    isTreeList(list) ? list.map((entry) => (entry === null ? undefined : schema.parse(entry))) : [];
  return {
    ...SCHEMA.omit({ sources: true, listeners: true }).parse(sections),
    sources: entries(SOURCE, sources),
    listeners: entries(LISTENER, listeners),
  };
}

class Cleaner {
  readonly #files: FileReader;
  readonly #problems: Problems;

  constructor(files: FileReader) {
    this.#files = files;
    this.#problems = files.problems;
  }

  value(schema: unknown, tree: Tree, path: string): Tree | undefined {
    const input = inputOf(schema);
    // each union of the schema has two branches: the first for a text, the second for other values
    if (input instanceof z.ZodUnion)
      return this.value(input.options[typeof tree === 'string' ? 0 : 1], tree, path);
    if (input instanceof z.ZodObject)
      return isTreeMap(tree) ? this.#map(input, tree, path) : this.#wrong(path, tree);
    if (input instanceof z.ZodArray)
      return isTreeList(tree) ? this.#list(input, tree, path) : this.#wrong(path, tree);
    if (input instanceof z.ZodRecord)
      return isTreeMap(tree) ? this.#names(input, tree, path) : this.#wrong(path, tree);
    if (typeof tree !== 'string') return this.#wrong(path, tree);
    const reading = isScalar(input) ? input.scalarType.read(tree) : { value: tree };
    if ('value' in reading) {
      if (secretsIn(reading.value).length > 0) this.#files.noteSecret(path);
      return tree;
    }
    return this.#wrong(path, tree, `${this.#problems.quote(path, tree)} ${reading.wrong}`.trim());
  }

  #map({ shape }: z.ZodObject, tree: TreeMap, path: string): Tree | undefined {
    const known = Object.keys(shape);
    for (const key of Object.keys(tree)) if (!known.includes(key)) this.#unknownKey(key, path, known);
    const kept: [string, Tree][] = [];
    let isComplete = true;
    for (const [key, schema] of Object.entries(shape)) {
      const at = below(path, key);
      const given = Object.hasOwn(tree, key) ? tree[key] : undefined;
      if (given === null) this.#noValue(at);
      const value = given === undefined || given === null ? undefined : this.value(schema, given, at);
      const secret = key.endsWith('File') ? key.slice(0, -'File'.length) : '';
      const type = inputOf(shape[secret]);
      if (typeof value === 'string' && isScalar(type)) {
        const text = this.#files.readSecret(below(path, secret), value, type.scalarType);
        if (text !== undefined) kept.push([secret, text]);
      } else if (value !== undefined) kept.push([key, value]);
      else if (!isOptionalKey(schema)) {
        isComplete = false;
        if ((given ?? null) === null && !this.#problems.hasAt(at))
          this.#problems.missing(at, `is missing; ${expectedAt(at)}`);
      }
    }
    return isComplete ? Object.fromEntries(kept) : undefined;
  }

  #list(schema: z.ZodArray, list: readonly Tree[], path: string): Tree | undefined {
    if (list.length === 0 && !schema.safeParse([]).success) return this.#wrong(path, '');
    const cleaned = list.map((entry, index) => this.value(schema.element, entry ?? '', `${path}[${index}]`));
    if (ENTRIES.includes(path)) return cleaned.map((entry) => entry ?? null);
    return cleaned.every((entry) => entry !== undefined) ? cleaned : undefined;
  }

  #names(schema: z.ZodRecord, tree: TreeMap, path: string): Tree {
    const kept = Object.entries(tree).flatMap(([key, given]): [string, Tree][] => {
      const at = below(path, key);
      if (given === null) this.#noValue(at);
      const value = given === null ? undefined : this.value(schema.valueType, given, at);
      return value === undefined ? [] : [[key, value]];
    });
    return Object.fromEntries(kept);
  }

  /** Reports a scalar without a value. A section or a list without a value has its defaults. */
  #noValue(path: string): void {
    const { shape = 'scalar', type } = fieldAt(path) ?? {};
    if (shape !== 'scalar' || this.#problems.hasAt(path)) return;
    const expected = type === undefined ? 'remove the key' : `expected ${type.expected}, or remove the key`;
    this.#problems.error(path, `has no value; ${expected}`);
  }

  #wrong(path: string, tree: Tree, predicate = `is ${describe(tree)}`): undefined {
    if (this.#problems.hasAt(path)) return; // a value with an error, such as an invalid reference, gets no second error
    // a full-width character in a value is often typed by mistake
    const wide = typeof tree === 'string' ? fullWidthIn(tree) : undefined;
    const advice =
      wide === undefined || fieldAt(path)?.type?.quoted === 'never' ? '' : `; it ${wide.message}`;
    const where = path === '' ? 'the file ' : '';
    this.#problems.error(path, `${where}${predicate}; ${expectedAt(path, tree)}${advice}`);
  }

  #unknownKey(key: string, path: string, known: readonly string[]): void {
    const meant = nearest(key, known);
    const elsewhere = FIELDS.map((field) => field.path).filter((each) => each.endsWith(`.${key}`));
    const advice =
      meant !== undefined
        ? `did you mean ${meant}?`
        : elsewhere.length > 0
          ? `did you mean ${elsewhere.join(' or ')}?`
          : `known keys: ${known.join(', ')}`;
    this.#problems.unknownKey(below(path, key), `unknown key; ${advice}`, meant && below(path, meant));
  }
}

function below(path: string, key: string): string {
  return path === '' ? key : `${path}.${key}`;
}

export function expectedAt(path: string, tree?: Tree): string {
  if (path === '') return `expected a map with the keys ${Object.keys(SCHEMA.shape).join(', ')}`;
  const field = fieldAt(path);
  if (field === undefined) return isHeader(path) ? 'expected a text' : 'expected a text or a list of texts';
  const { type, keys, shape } = field;
  const word = `${type?.expected}`;
  const example = type?.example === undefined ? '' : `, for example ${type.example}`;
  const map = `a map with the keys ${keys.join(', ')}`;
  const isEntry = path.endsWith(']');
  const maps = !ENTRIES.includes(path)
    ? `a list, each entry ${map}`
    : tree === ''
      ? 'at least one entry'
      : 'a list, each entry after a dash';
  const expected = {
    scalar: word + example,
    list: isEntry ? word + example : `a list, each entry ${word}`,
    map,
    maps: isEntry ? map : maps,
    choice: `${word}${example}, or ${map}`,
    names: isHeader(`${path}.`)
      ? 'a map with header names and their values'
      : 'a map with the parameters of the operation',
  };
  return `expected ${expected[shape]}`;
}

function isHeader(path: string): boolean {
  return path.includes('.headers.');
}

function describe(tree: Tree): string {
  if (tree === null || tree === '') return 'empty';
  if (typeof tree === 'string') return 'a text';
  return isTreeList(tree) ? 'a list' : 'a map';
}
