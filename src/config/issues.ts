/** What zod finds wrong with a tree, in words: what it is, what is wanted, and what was probably meant. */
import type { z } from 'zod';
import { nearest } from '../core/nearest.ts';
import { FIELDS, fieldAt } from './fields.ts';
import type { KindNote } from './kinds.ts';
import type { Problems } from './problems.ts';
import { isTreeList, type Path, pathText, type Tree, valueAt } from './tree.ts';

type Issue = z.core.$ZodIssue;

/** Tells one issue. `base` is where `tree`, to which the issue's own path belongs, stands in the file. */
export function tellIssue(issue: Issue, base: Path, tree: Tree | undefined, problems: Problems): void {
  const inner = issue.path.map((part) => (typeof part === 'number' ? part : String(part)));
  const path = pathText([...base, ...inner]);
  const value = valueAt(tree, inner);
  if (issue.code === 'unrecognized_keys') {
    for (const key of issue.keys) tellUnknownKey(path, key, fieldAt(path)?.keys ?? [], problems);
    return;
  }
  if (issue.code === 'invalid_union') {
    // The table writes the word of a choice before its map, and a text before a list of texts.
    const branch = issue.errors[typeof value === 'string' ? 0 : 1] ?? [];
    for (const nested of branch)
      tellIssue({ ...nested, path: [...inner, ...nested.path] }, base, tree, problems);
    return;
  }
  if (problems.hasAt(path)) return; // a reference in it could not be replaced
  if (value === undefined) problems.missing(path, `is missing; ${wishAt(path)}`);
  else problems.error(path, problemWith(issue, path, value, problems));
}

/** Tells a key that is not in the table, with the one that was probably meant. */
export function tellUnknownKey(
  path: string,
  key: string,
  known: readonly string[],
  problems: Problems,
): void {
  const below = (name: string) => (path === '' ? name : `${path}.${name}`);
  const meant = nearest(key, known);
  const advice = meant === undefined ? placeOf(key, known) : `did you mean ${meant}?`;
  problems.unknownKey(below(key), `unknown key; ${advice}`, meant && below(meant));
}

function placeOf(key: string, known: readonly string[]): string {
  const elsewhere = FIELDS.map((field) => field.path).filter((path) => path.endsWith(`.${key}`));
  return elsewhere.length > 0 ? `its place is ${elsewhere.join(' or ')}` : `known here: ${known.join(', ')}`;
}

/** What a tree is, for messages. */
export function describeTree(tree: Tree | undefined): string {
  if (tree === undefined || tree === null || tree === '') return 'empty';
  if (typeof tree === 'string') return 'a text';
  return isTreeList(tree) ? 'a list' : 'a map';
}

/** What a kind of value wants, with an example where it has one. */
function wishOf({ wants, good }: KindNote): string {
  return good === undefined ? `wants ${wants}` : `wants ${wants}, for example ${good}`;
}

function problemWith(issue: Issue, path: string, value: Tree, problems: Problems): string {
  const wanted = wishAt(path);
  if (issue.code === 'too_small') return `is empty; ${wanted}`;
  if (issue.code !== 'custom') return `is ${describeTree(value)}; ${wanted}`;
  const quoted = typeof value === 'string' ? problems.quote(path, value) : '';
  return `${quoted}${quoted === '' ? '' : ' '}${issue.message}; ${wanted}`;
}

function wishAt(path: string): string {
  const field = fieldAt(path);
  if (field === undefined) return 'wants a text or a list of texts'; // below params
  const { kind, keys, shape } = field;
  const map = `a map with the keys ${keys.join(', ')}`;
  const word = kind === undefined ? 'wants a value' : wishOf(kind);
  if (path.endsWith(']')) return shape === 'maps' ? `wants ${map}` : word;
  switch (shape) {
    case 'scalar':
      return word;
    case 'list':
      return `wants a list, each entry ${kind?.wants ?? 'a text'}`;
    case 'map':
      return `wants ${map}`;
    case 'maps':
      return `wants a list, each entry ${map}`;
    case 'choice':
      return `${word}, or ${map}`;
    case 'names':
      return "wants a map of the operation's own parameters";
  }
}
