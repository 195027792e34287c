/**
 * The tree of a file checked against the table: every problem told in words, and what is left when they are taken out.
 *
 * What is wrong is pruned and its default taken, so that the rules about several keys still see the rest of the file and all
 * problems are told at once. Nothing of it is used as long as there is a problem.
 */
import type { z } from 'zod';
import { fieldAt } from './fields.ts';
import { describeTree, tellIssue, tellUnknownKey } from './issues.ts';
import type { Problems } from './problems.ts';
import { LISTENER, type RawConfig, type RawListener, type RawSource, SCHEMA, SOURCE } from './schema.ts';
import { isTreeList, isTreeMap, type Path, pathText, type Tree, type TreeMap, valueAt } from './tree.ts';

/** The file with what is wrong taken out; an entry that is nothing without it is `undefined`. */
export interface CheckedConfig extends Omit<RawConfig, 'sources' | 'listeners'> {
  readonly sources: readonly (RawSource | undefined)[];
  readonly listeners: readonly (RawListener | undefined)[];
}

/** Checks every section and every entry by itself, so that one that is wrong hides no other. */
export function checkTree(tree: Tree, problems: Problems): CheckedConfig {
  const checker = new Checker(settle(tree, [], problems), problems);
  const { service, account, pool, rotation, dial, health, admin, log, state, shutdown, workers } =
    SCHEMA.shape;
  return {
    service: checker.section(service, 'service'),
    account: checker.section(account, 'account'),
    sources: checker.entries(SOURCE.optional(), 'sources', []),
    pool: checker.section(pool, 'pool'),
    rotation: checker.section(rotation, 'rotation'),
    dial: checker.section(dial, 'dial'),
    health: checker.section(health, 'health'),
    listeners: checker.entries(LISTENER.optional(), 'listeners', [{}]),
    admin: checker.section(admin, 'admin'),
    log: checker.section(log, 'log'),
    state: checker.section(state, 'state'),
    shutdown: checker.section(shutdown, 'shutdown'),
    workers: checker.section(workers, 'workers'),
  };
}

class Checker {
  readonly #root: TreeMap;
  readonly #problems: Problems;

  constructor(tree: Tree | undefined, problems: Problems) {
    const names = Object.keys(SCHEMA.shape);
    this.#root = isTreeMap(tree) ? tree : {};
    this.#problems = problems;
    if (!isTreeMap(tree)) {
      problems.error('', `the file is ${describeTree(tree)}; wants a map with the keys ${names.join(', ')}`);
    }
    for (const key of Object.keys(this.#root)) {
      if (!names.includes(key)) tellUnknownKey('', key, names, problems);
    }
  }

  /** @param schema - one that takes `undefined`. */
  section<S extends z.ZodType>(schema: S, name: string): z.output<S> {
    return this.#piece(schema, this.#root[name], [name]);
  }

  /** @param schema - of one entry; takes `undefined`. */
  entries<S extends z.ZodType>(schema: S, name: string, fallback: readonly Tree[]): readonly z.output<S>[] {
    const list = this.#root[name] ?? fallback;
    if (!isTreeList(list)) {
      this.#problems.error(name, `is ${describeTree(list)}; wants a list, each entry behind a dash`);
      return [];
    }
    if (list.length === 0 && fallback.length > 0)
      this.#problems.error(name, 'is empty; wants at least one entry');
    return list.map((entry, index) => this.#piece(schema, entry, [name, index]));
  }

  #piece<S extends z.ZodType>(schema: S, tree: Tree | undefined, path: Path): z.output<S> {
    const first = schema.safeParse(tree);
    if (first.success) return first.data;
    const { issues } = first.error;
    for (const issue of issues) tellIssue(issue, path, tree, this.#problems);
    const second = schema.safeParse(issues.reduce(prune, tree));
    return second.success ? second.data : schema.parse(undefined);
  }
}

/** The tree without keys that have no value: a section without keys is as good as none, a scalar without a value is a problem. */
function settle(tree: Tree, path: Path, problems: Problems): Tree | undefined {
  if (isTreeList(tree)) {
    return tree.map((entry, index) => settle(entry, [...path, index], problems) ?? '');
  }
  if (isTreeMap(tree)) {
    const kept = Object.entries(tree).flatMap(([key, value]): [string, Tree][] => {
      const settled = settle(value, [...path, key], problems);
      return settled === undefined ? [] : [[key, settled]];
    });
    return Object.fromEntries(kept);
  }
  if (tree !== null) return tree;
  const text = pathText(path);
  const { shape, kind } = fieldAt(text) ?? {};
  if (shape === undefined && !text.includes('.params.')) return ''; // an unknown key, and told as one
  if ((shape === 'scalar' || shape === undefined) && !problems.hasAt(text)) {
    problems.error(
      text,
      `has no value; ${kind === undefined ? '' : `wants ${kind.wants}, or `}leave the key out`,
    );
  }
  return undefined;
}

/** Takes out what an issue is about; where something is missing, the map that misses it. A list goes as a whole. */
function prune(tree: Tree | undefined, issue: z.core.$ZodIssue): Tree | undefined {
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
