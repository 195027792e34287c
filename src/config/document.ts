/**
 * The YAML text of a configuration as a tree of texts, and where each of them stands.
 *
 * Scalars are not resolved to YAML's types: an instance of 18 digits, a password of digits and `off` stay the text they
 * are, and the kinds of schema.ts read them. `${NAME}` is replaced in the finished tree, so that a value from the
 * environment can never add to the structure. Aliases and merge keys (`<<`) are followed. Pure.
 */
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Pair,
  parseDocument,
  visit,
  type YAMLMap,
  type YAMLParseError,
  type YAMLSeq,
} from 'yaml';
import { type Environment, substitute } from './environment.ts';
import { wordsForYaml } from './yaml-words.ts';

/** A text, `null` where a key has no value, a list, or a map. */
export type Tree = string | null | readonly Tree[] | TreeMap;

export interface TreeMap {
  readonly [key: string]: Tree;
}

export type Path = readonly (string | number)[];

/** Where a value stands; offsets into the text. */
export interface Place {
  /** Of its key; of the value itself in a list. */
  readonly keyOffset: number;
  readonly valueOffset: number;
  /** The environment variables that are part of it. */
  readonly variables: readonly string[];
}

/** The extent of a value in the text, and the path that it stands at; it occurs again for each alias of it. */
export interface Extent {
  readonly start: number;
  readonly end: number;
  /** Empty for a value that stands nowhere in the tree, such as the second of a key that is given twice. */
  readonly path: string;
  /** Of a scalar, before references are replaced; undefined for a list or a map. */
  readonly text: string | undefined;
}

/** A problem found before any key is looked at. */
export interface SyntaxProblem {
  readonly offset: number;
  readonly path: string;
  readonly message: string;
}

export interface ParsedDocument {
  readonly text: string;
  readonly lines: LineCounter;
  readonly problems: readonly SyntaxProblem[];
  /** `undefined` where the text is no YAML at all: then only `problems` counts. */
  readonly tree: Tree | undefined;
  /** By the path as text. */
  readonly places: ReadonlyMap<string, Place>;
  /** Of every value in the text. */
  readonly extents: readonly Extent[];
}

/** Deeper than any configuration, shallow enough for every stack. */
const MAX_DEPTH = 20;
/** What aliases may unfold to. */
const MAX_NODES = 20_000;

/** A `${` without quotes inside a map or a list in one line, where YAML takes its brace for a map; what comes before it. */
const BARE_REFERENCE = /^([^#]*[{[,][^#]*[\s:,{[])\$\{/;

/** `sources[0].params.adr`. */
export function pathText(path: Path): string {
  return path
    .map((part, index) => (typeof part === 'number' ? `[${part}]` : index === 0 ? part : `.${part}`))
    .join('');
}

export function isTreeList(tree: Tree | undefined): tree is readonly Tree[] {
  return Array.isArray(tree);
}

export function isTreeMap(tree: Tree | undefined): tree is TreeMap {
  return typeof tree === 'object' && tree !== null && !isTreeList(tree);
}

/** What stands at a path of a tree, if anything. */
export function valueAt(tree: Tree | undefined, path: readonly PropertyKey[]): Tree | undefined {
  return path.reduce<Tree | undefined>((at, key) => {
    if (isTreeList(at)) return at[Number(key)];
    return isTreeMap(at) && Object.hasOwn(at, key) ? at[String(key)] : undefined;
  }, tree);
}

/** Reads a text. Never throws. */
export function readDocument(text: string, environment: Environment): ParsedDocument {
  const lines = new LineCounter();
  // Keys given twice are told by ourselves, with both places.
  const document = parseDocument(text, {
    schema: 'failsafe',
    lineCounter: lines,
    prettyErrors: false, // they would quote the text, secrets and all
    uniqueKeys: false,
  });
  const problems = syntaxProblems(text, lines, document.errors);
  if (problems.length > 0) {
    return { text, lines, problems, tree: undefined, places: new Map(), extents: [] };
  }
  return new Composer(document, lines, environment).compose(text);
}

/**
 * One problem for each line that has any: what follows the first in a line mostly follows from it. Where a reference has
 * upset the braces, the rest follows from that.
 */
function syntaxProblems(
  text: string,
  lines: LineCounter,
  errors: readonly YAMLParseError[],
): SyntaxProblem[] {
  const byLine = new Map<number, SyntaxProblem>();
  const references = new Map<number, SyntaxProblem>();
  for (const { code, pos } of errors) {
    const [offset] = pos;
    const { line } = lines.linePos(offset);
    if (byLine.has(line)) continue;
    byLine.set(line, { offset, path: '', message: wordsForYaml(code) });
    const start = lines.lineStarts[line - 1] ?? 0;
    const before = BARE_REFERENCE.exec(text.slice(start, lines.lineStarts[line]))?.[1];
    if (before === undefined) continue;
    const message = 'inside { } or [ ] a reference needs quotes: write "${NAME}"';
    references.set(line, { offset: start + before.length, path: '', message });
  }
  return [...(references.size > 0 ? references : byLine).values()];
}

class Composer {
  readonly #document: Document;
  readonly #lines: LineCounter;
  readonly #environment: Environment;
  readonly #problems: SyntaxProblem[] = [];
  readonly #places = new Map<string, Place>();
  readonly #extents: Extent[] = [];
  readonly #resolved = new Map<Alias, unknown>();
  readonly #seen = new Set<unknown>();
  /** Nodes whose tag was refused: through an alias they come again. */
  readonly #told = new Set<unknown>();
  #nodeCount = 0;
  #tooLarge = false;

  constructor(document: Document, lines: LineCounter, environment: Environment) {
    this.#document = document;
    this.#lines = lines;
    this.#environment = environment;
  }

  compose(text: string): ParsedDocument {
    const tree = this.#value(this.#document.contents, [], 0);
    this.#addUnseen();
    return {
      text,
      lines: this.#lines,
      problems: this.#problems,
      tree,
      places: this.#places,
      extents: this.#extents,
    };
  }

  #value(node: unknown, path: Path, keyOffset: number): Tree {
    this.#nodeCount += 1;
    if (path.length > MAX_DEPTH || this.#nodeCount > MAX_NODES) {
      if (!this.#tooLarge) this.#problem(keyOffset, path, 'is nested too deeply, or unfolds to too much');
      this.#tooLarge = true;
      return null;
    }
    if (isAlias(node)) {
      const target = this.#resolve(node);
      if (target !== undefined) return this.#value(target, path, keyOffset);
      this.#problem(offsetOf(node), path, `the anchor of *${node.source} is not there`);
      return null;
    }
    this.#places.set(pathText(path), { keyOffset, valueOffset: offsetOf(node, keyOffset), variables: [] });
    this.#addExtent(node, path);
    if (isMap(node)) return this.#map(node, path);
    if (isSeq(node)) return this.#list(node, path);
    return this.#scalar(node, path, keyOffset);
  }

  #list(list: YAMLSeq, path: Path): Tree {
    this.#refuseTag(list.tag, list, path);
    return list.items.map((item, index) => this.#value(item, [...path, index], offsetOf(item)));
  }

  #map(map: YAMLMap, path: Path): TreeMap {
    this.#refuseTag(map.tag, map, path);
    const merged = new Map<string, Tree>();
    const own = new Map<string, number>();
    for (const pair of map.items) {
      const key = this.#key(pair, path);
      if (key === undefined) continue;
      if (key.text === '<<') {
        for (const [name, value] of this.#merged(pair, path)) if (!own.has(name)) merged.set(name, value);
        continue;
      }
      const first = own.get(key.text);
      if (first !== undefined) {
        const { line } = this.#lines.linePos(first);
        this.#problem(
          key.offset,
          [...path, key.text],
          `is given twice; the first one stands in line ${line}`,
        );
        continue;
      }
      own.set(key.text, key.offset);
      merged.set(key.text, this.#value(pair.value, [...path, key.text], key.offset));
    }
    return Object.fromEntries(merged);
  }

  /** What `<<` brings: one map or a list of maps, of which the earlier ones win. */
  #merged(pair: Pair, path: Path): readonly (readonly [string, Tree])[] {
    const from = isAlias(pair.value) ? this.#resolve(pair.value) : pair.value;
    const sources = isSeq(from) ? from.items.toReversed() : [from];
    return sources.flatMap((each) => {
      const map = isAlias(each) ? this.#resolve(each) : each;
      if (isMap(map)) return Object.entries(this.#map(map, path));
      this.#problem(offsetOf(pair.key), [...path, '<<'], 'wants an alias of a map, such as *name');
      return [];
    });
  }

  /** The library walks the whole document for each alias. */
  #resolve(alias: Alias): unknown {
    if (!this.#resolved.has(alias)) this.#resolved.set(alias, alias.resolve(this.#document));
    return this.#resolved.get(alias);
  }

  #key(pair: Pair, path: Path): { readonly text: string; readonly offset: number } | undefined {
    const { key, value } = pair;
    const offset = offsetOf(key);
    if (isScalar(key) && typeof key.value === 'string' && /^\S+$/.test(key.value) && value !== null) {
      return { text: key.value, offset };
    }
    // It is not quoted: in `{ name: city, password hunter2 }` it is a secret.
    this.#addExtent(key, []);
    this.#problem(
      offset,
      path,
      value === null ? 'has a text without a key; write key: value' : 'has a key that is not a word',
    );
    return undefined;
  }

  #scalar(node: unknown, path: Path, keyOffset: number): Tree {
    if (!isScalar(node) || typeof node.value !== 'string') return null;
    this.#refuseTag(node.tag, node, path);
    const start = offsetOf(node, keyOffset);

    if (node.type === 'PLAIN' && /^(?:~|null|)$/.test(node.value)) return null;
    const { text, variables, problems } = substitute(node.value, this.#environment);
    for (const problem of problems) this.#problem(start, path, problem);
    this.#places.set(pathText(path), { keyOffset, valueOffset: start, variables });
    return text;
  }

  #addExtent(node: unknown, path: Path): void {
    if (!(isScalar(node) || isMap(node) || isSeq(node)) || !node.range) return;
    this.#seen.add(node);
    const [start, end] = node.range;
    const text = isScalar(node) ? String(node.value) : undefined;
    this.#extents.push({ start, end, path: pathText(path), text });
  }

  /** The scalars that did not make it into the tree, which nobody knows anything about. */
  #addUnseen(): void {
    visit(this.#document, {
      Scalar: (key, node) => {
        if (key !== 'key' && !this.#seen.has(node)) this.#addExtent(node, []);
      },
    });
  }

  #refuseTag(tag: string | undefined, node: unknown, path: Path): void {
    if (tag === undefined || tag.startsWith('tag:yaml.org,2002:') || this.#told.has(node)) return;
    this.#told.add(node);
    this.#problem(offsetOf(node), path, `has the tag ${tag}; tags are not used here`);
  }

  #problem(offset: number, path: Path, message: string): void {
    this.#problems.push({ offset, path: pathText(path), message });
  }
}

/** Where a node begins; nodes that were never written down (an empty value) are where `otherwise` says. */
function offsetOf(node: unknown, otherwise = 0): number {
  const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
  return range?.[0] ?? otherwise;
}
