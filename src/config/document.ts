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
  type YAMLSeq,
} from 'yaml';
import { type Environment, substitute } from './environment.ts';
import { type SyntaxProblem, syntaxProblems } from './syntax.ts';
import { type Path, pathText, type Tree, type TreeMap } from './tree.ts';

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

/** A text, read. */
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

/** What a key looks like; `<<` merges. */
const WORD = /^(?:[\w-]+|<<)$/;
/** Deeper than any configuration, shallow enough for every stack. */
const MAX_DEPTH = 20;
/** What aliases may unfold to. */
const MAX_NODES = 20_000;

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
    const text = isScalar(key) && typeof key.value === 'string' ? key.value : '';
    if (WORD.test(text) && value !== null) return { text, offset };
    // It is not quoted: in `{ name: city, password hunter2 }` it is a secret.
    this.#addExtent(key, []);
    const wrong = text.includes('.')
      ? 'a key with a dot in it; write a map in a map'
      : 'a key that is not a word';
    this.#problem(offset, path, `has ${value === null ? 'a text without a key; write key: value' : wrong}`);
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
