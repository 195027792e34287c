/**
 * Checks the tree of a file against the schema. Reports each problem with the value, what was expected, and for a
 * misspelt key the most similar known key.
 *
 * Then replaces invalid values with their defaults, so that the later checks, which compare several keys, can check
 * the rest of the file. The caller uses the result only if there was no problem.
 */
import type { z } from 'zod';
import { nearest } from '../core/nearest.ts';
import { FIELDS, fieldAt } from './fields.ts';
import type { Problems } from './problems.ts';
import { type FileConfig, type FileListener, LISTENER, SCHEMA } from './schema.ts';
import { type FileSource, SOURCE } from './schema-source.ts';
import { fullWidthIn } from './syntax.ts';
import { isTreeList, isTreeMap, type Path, pathText, type Tree, type TreeMap, valueAt } from './tree.ts';

/**
 * A file without its invalid values. A source or listener is `undefined` if one of its required values is invalid or
 * missing.
 */
export interface CheckedConfig extends Omit<FileConfig, 'sources' | 'listeners'> {
  readonly sources: readonly (FileSource | undefined)[];
  readonly listeners: readonly (FileListener | undefined)[];
}

type Issue = z.core.$ZodIssue;

/**
 * Checks every section and every list entry separately, so that a problem in one does not hide problems in another.
 */
export function checkTree(tree: Tree, problems: Problems): CheckedConfig {
  const file = readRoot(dropEmptyKeys(tree, [], problems), problems);
  const { sources: _sources, listeners: _listeners, ...sections } = SCHEMA.shape;
  const checked = Object.entries(sections).map(([name, schema]) => [
    name,
    checkPart(schema, { tree: file[name], path: [name] }, problems),
  ]);
  return {
    // `checkPart` has checked each key, so the cast is safe
    ...(Object.fromEntries(checked) as Omit<FileConfig, 'sources' | 'listeners'>),
    sources: checkEntries(SOURCE, { name: 'sources', list: file['sources'] ?? [] }, problems),
    listeners: checkEntries(LISTENER, { name: 'listeners', list: file['listeners'] ?? [{}] }, problems),
  };
}

function readRoot(tree: Tree | undefined, problems: Problems): TreeMap {
  const names = Object.keys(SCHEMA.shape);
  if (!isTreeMap(tree)) {
    const expected = `expected a map with the keys ${names.join(', ')}`;
    problems.error('', `the file is ${describe(tree)}; ${expected}${typingAdvice('', tree)}`);
    return {};
  }
  for (const key of Object.keys(tree))
    if (!names.includes(key)) reportUnknownKey(key, { path: '', known: names }, problems);
  return tree;
}

function checkEntries<S extends z.ZodType>(
  schema: S,
  { name, list }: { readonly name: 'sources' | 'listeners'; readonly list: Tree },
  problems: Problems,
): readonly (z.output<S> | undefined)[] {
  if (!isTreeList(list)) {
    problems.error(name, `is ${describe(list)}; expected a list, each entry after a dash`);
    return [];
  }
  if (list.length === 0 && name === 'listeners')
    problems.error(name, 'is empty; expected at least one entry');
  return list.map((entry, index) =>
    checkPart(schema.optional(), { tree: entry, path: [name, index] }, problems),
  );
}

interface TreePart {
  readonly tree: Tree | undefined;
  /** The path of `tree` in the file. */
  readonly path: Path;
}

/**
 * Checks one section, or one item of a list. Returns it without its invalid values. If the rest is invalid too, returns
 * the defaults of the section; for an item of a list, returns `undefined`.
 */
function checkPart<S extends z.ZodType>(schema: S, part: TreePart, problems: Problems): z.output<S> {
  const first = schema.safeParse(part.tree);
  if (first.success) return first.data;
  const { issues } = first.error;
  for (const issue of issues) reportIssue(issue, part, problems);
  const second = schema.safeParse(issues.reduce(prune, part.tree));
  return second.success ? second.data : schema.parse(undefined);
}

/**
 * Returns the tree without the keys that have no value. A section or a list without a value later gets its defaults.
 * Reports an error for a scalar without a value.
 */
function dropEmptyKeys(tree: Tree, path: Path, problems: Problems): Tree | undefined {
  if (isTreeList(tree)) {
    return tree.map((entry, index) => dropEmptyKeys(entry, [...path, index], problems) ?? '');
  }
  if (isTreeMap(tree)) {
    const kept = Object.entries(tree).flatMap(([key, value]): [string, Tree][] => {
      const inner = dropEmptyKeys(value, [...path, key], problems);
      return inner === undefined ? [] : [[key, inner]];
    });
    return Object.fromEntries(kept);
  }
  if (tree !== null) return tree;
  const text = pathText(path);
  const { shape, type } = fieldAt(text) ?? {};
  const isFreeName = fieldAt(text.slice(0, text.lastIndexOf('.')))?.shape === 'names';
  if (shape === undefined && !isFreeName) return ''; // keeps unknown keys, because the caller reports them
  if ((shape === 'scalar' || shape === undefined) && !problems.hasAt(text)) {
    const expected = type === undefined ? 'remove the key' : `expected ${type.expected}, or remove the key`;
    problems.error(text, `has no value; ${expected}`);
  }
  return undefined;
}

/** Reports an issue of zod. The path in the issue is relative to `part.tree`. */
function reportIssue(issue: Issue, part: TreePart, problems: Problems): void {
  const inner = issue.path.map((part) => (typeof part === 'number' ? part : String(part)));
  const path = pathText([...part.path, ...inner]);
  const value = valueAt(part.tree, inner);
  if (issue.code === 'unrecognized_keys') {
    for (const key of issue.keys) reportUnknownKey(key, { path, known: fieldAt(path)?.keys ?? [] }, problems);
    return;
  }
  if (issue.code === 'invalid_union') {
    // Each union of the schema has two branches: the first for a text, the second for other values. Reports only the
    // issues of the branch for this value.
    const branch = issue.errors[typeof value === 'string' ? 0 : 1] ?? [];
    for (const nested of branch) reportIssue({ ...nested, path: [...inner, ...nested.path] }, part, problems);
    return;
  }
  if (problems.hasAt(path)) return; // a value with an error, such as an invalid reference, gets no second error
  if (value === undefined) problems.missing(path, `is missing; ${expectedAt(path)}`);
  else {
    const wrong = predicateOf(issue, { path, value }, problems);
    problems.error(path, `${wrong}; ${expectedAt(path)}${typingAdvice(path, value)}`);
  }
}

/** The advice for a value that contains a full-width character, which is often typed by mistake. */
function typingAdvice(path: string, value: Tree | undefined): string {
  const wide = typeof value === 'string' ? fullWidthIn(value) : undefined;
  return wide === undefined || fieldAt(path)?.type?.quoted === 'never' ? '' : `; it ${wide.message}`;
}

/** Reports an unknown key of the map at `path`. The map may have only the `known` keys. */
function reportUnknownKey(
  key: string,
  { path, known }: { readonly path: string; readonly known: readonly string[] },
  problems: Problems,
): void {
  const below = (name: string) => (path === '' ? name : `${path}.${name}`);
  const meant = nearest(key, known);
  const elsewhere = FIELDS.map((field) => field.path).filter((each) => each.endsWith(`.${key}`));
  const advice =
    meant !== undefined
      ? `did you mean ${meant}?`
      : elsewhere.length > 0
        ? `did you mean ${elsewhere.join(' or ')}?`
        : `known keys: ${known.join(', ')}`;
  problems.unknownKey(below(key), `unknown key; ${advice}`, meant && below(meant));
}

function predicateOf(
  issue: Issue,
  { path, value }: { readonly path: string; readonly value: Tree },
  problems: Problems,
): string {
  if (issue.code === 'too_small') return 'is empty';
  if (issue.code !== 'custom') return `is ${describe(value)}`;
  const quoted = typeof value === 'string' ? problems.quote(path, value) : '';
  return `${quoted} ${issue.message}`.trim();
}

/** Describes a valid value for the path: `expected a duration, for example 10s`. */
export function expectedAt(path: string): string {
  const field = fieldAt(path);
  if (field === undefined) return isHeader(path) ? 'expected a text' : 'expected a text or a list of texts';
  const { type, keys } = field;
  const shape = path.endsWith(']') ? entryShape(field.shape) : field.shape;
  const map = `a map with the keys ${keys.join(', ')}`;
  const example = type?.example === undefined ? '' : `, for example ${type.example}`;
  switch (shape) {
    case 'scalar':
      return `expected ${type?.expected}${example}`;
    case 'list':
      return `expected a list, each entry ${type?.expected}`;
    case 'map':
      return `expected ${map}`;
    case 'maps':
      return `expected a list, each entry ${map}`;
    case 'choice':
      return `expected ${type?.expected}${example}, or ${map}`;
    case 'names':
      return isHeader(`${path}.`)
        ? 'expected a map with header names and their values'
        : 'expected a map with the parameters of the operation';
  }
}

function isHeader(path: string): boolean {
  return path.includes('.headers.');
}

function entryShape(list: 'scalar' | 'map' | 'choice' | 'list' | 'maps' | 'names'): 'scalar' | 'map' {
  return list === 'maps' ? 'map' : 'scalar';
}

function describe(tree: Tree | undefined): string {
  if (tree === undefined || tree === null || tree === '') return 'empty';
  if (typeof tree === 'string') return 'a text';
  return isTreeList(tree) ? 'a list' : 'a map';
}

/**
 * Returns the tree without the invalid value. If an item of a list is invalid, removes the whole list. If a map lacks a
 * required key, removes the whole map.
 */
function prune(tree: Tree | undefined, issue: Issue): Tree | undefined {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.reduce<Tree | undefined>((left, key) => without(left, [...issue.path, key]), tree);
  }
  const isMissing = issue.path.length > 0 && valueAt(tree, issue.path) === undefined;
  return without(tree, isMissing ? issue.path.slice(0, -1) : issue.path);
}

function without(tree: Tree | undefined, path: readonly PropertyKey[]): Tree | undefined {
  const [key, ...rest] = path;
  if (key === undefined || !isTreeMap(tree)) return undefined;
  const { [String(key)]: inner, ...others } = tree;
  const left = without(inner, rest);
  return left === undefined ? others : { ...others, [String(key)]: left };
}
