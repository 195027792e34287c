/**
 * Reads the YAML text of a configuration into a tree of texts, and records the place of each value.
 *
 * It does not convert scalars to YAML's types: an instance id of 18 digits, a numeric password and `off` stay text, and
 * the scalar types of schema.ts read them. It replaces `${NAME}` after parsing, so that a value from the environment
 * can never add keys. It resolves aliases and merge keys (`<<`).
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
import { fullWidthIn, type SyntaxProblem, syntaxProblems } from './syntax.ts';
import { type Path, pathText, type Tree, type TreeMap } from './tree.ts';

/** The position of a value, as offsets into the text of the file. */
export interface ValuePosition {
  /** The offset of the key; for an item of a list, the offset of the value. */
  readonly keyOffset: number;
  readonly valueOffset: number;
  /** The names of the environment variables that the value refers to. */
  readonly variables: readonly string[];
  /**
   * Whether the next text after the value is a `#` that no space follows, as in `abc #def`. YAML reads `#def` as a
   * comment, but the author may have meant it as a part of the value.
   */
  readonly isCutOff?: boolean;
}

/**
 * The start and the end of a value in the text, and a path of the value. Each alias gives the value another path, and
 * therefore another Extent with the same start and end.
 */
interface Extent {
  readonly start: number;
  readonly end: number;
  /**
   * The path of the value. Empty if the tree does not contain the value, for example the second value of a duplicate
   * key.
   */
  readonly path: string;
  /** The text of a scalar before references are replaced; undefined for a list or a map. */
  readonly text: string | undefined;
}

export interface ParsedDocument {
  readonly text: string;
  readonly lines: LineCounter;
  readonly problems: readonly SyntaxProblem[];
  /** The text as a tree. `undefined` if the text is not valid YAML; `problems` then says why. */
  readonly tree: Tree | undefined;
  /** The position of each value, by the path of the value. */
  readonly positions: ReadonlyMap<string, ValuePosition>;
  readonly extents: readonly Extent[];
}

/** Matches a valid key. `<<` is the merge key. */
const WORD = /^(?:[\w-]+|<<)$/;
/** The maximum nesting of maps and lists: more than any real configuration needs, and low enough for the call stack. */
const MAX_DEPTH = 20;
/**
 * The maximum number of values in a document, counted after its aliases are expanded: nested aliases can expand a small
 * file exponentially.
 */
const MAX_NODES = 20_000;

/** Reads the text. Never throws: the problems in the result include the syntax errors. */
export function readDocument(text: string, environment: Environment): ParsedDocument {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    schema: 'failsafe',
    lineCounter: lines,
    prettyErrors: false, // pretty errors quote the text, including secrets
    uniqueKeys: false, // this file reports duplicate keys itself, with both positions
  });
  const problems = syntaxProblems(text, lines, document.errors);
  if (problems.length > 0) {
    return { text, lines, problems, tree: undefined, positions: new Map(), extents: [] };
  }
  return new Composer(document, { text, lines, environment }).compose();
}

class Composer {
  readonly #document: Document;
  readonly #text: string;
  readonly #lines: LineCounter;
  readonly #environment: Environment;
  readonly #problems: SyntaxProblem[] = [];
  readonly #positions = new Map<string, ValuePosition>();
  readonly #extents: Extent[] = [];
  readonly #resolved = new Map<Alias, unknown>();
  readonly #seen = new Set<unknown>();
  /** The nodes whose tag has been reported. If an alias leads to such a node, its tag is not reported again. */
  readonly #refused = new Set<unknown>();
  #nodeCount = 0;
  #tooLarge = false;

  constructor(
    document: Document,
    { text, lines, environment }: { text: string; lines: LineCounter; environment: Environment },
  ) {
    this.#document = document;
    this.#text = text;
    this.#lines = lines;
    this.#environment = environment;
  }

  compose(): ParsedDocument {
    const tree = this.#value(this.#document.contents, [], 0);
    this.#addUnseen();
    return {
      text: this.#text,
      lines: this.#lines,
      problems: this.#problems,
      tree,
      positions: this.#positions,
      extents: this.#extents,
    };
  }

  #value(node: unknown, path: Path, keyOffset: number): Tree {
    this.#nodeCount += 1;
    if (path.length > MAX_DEPTH || this.#nodeCount > MAX_NODES) {
      if (!this.#tooLarge)
        this.#problem(
          keyOffset,
          path,
          `is nested deeper than ${MAX_DEPTH} levels, or aliases expand it to more than ${MAX_NODES} values`,
        );
      this.#tooLarge = true;
      return null;
    }
    if (isAlias(node)) {
      const target = this.#resolve(node);
      if (target !== undefined) return this.#value(target, path, keyOffset);
      this.#problem(
        offsetOf(node),
        path,
        `the alias *${node.source} has no anchor; add &${node.source} to the value it refers to`,
      );
      return null;
    }
    this.#positions.set(pathText(path), { keyOffset, valueOffset: offsetOf(node, keyOffset), variables: [] });
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
        this.#problem(key.offset, [...path, key.text], `is a duplicate of the key in line ${line}`);
        continue;
      }
      own.set(key.text, key.offset);
      merged.set(key.text, this.#value(pair.value, [...path, key.text], key.offset));
    }
    return Object.fromEntries(merged);
  }

  /**
   * Returns the keys and values that `<<` merges. They come from one map, or from a list of maps.
   *
   * The caller lets later keys overwrite earlier ones. But in YAML the first map of the list has priority, so the
   * result has the maps in reverse order.
   */
  #merged(pair: Pair, path: Path): readonly (readonly [string, Tree])[] {
    const from = isAlias(pair.value) ? this.#resolve(pair.value) : pair.value;
    const sources = isSeq(from) ? from.items.toReversed() : [from];
    return sources.flatMap((each) => {
      const map = isAlias(each) ? this.#resolve(each) : each;
      if (isMap(map)) return Object.entries(this.#map(map, path));
      this.#problem(offsetOf(pair.key), [...path, '<<'], 'expected an alias of a map, for example *name');
      return [];
    });
  }

  /** Returns the node of an alias. The nodes are cached, because the library searches the whole document for each alias. */
  #resolve(alias: Alias): unknown {
    if (!this.#resolved.has(alias)) this.#resolved.set(alias, alias.resolve(this.#document));
    return this.#resolved.get(alias);
  }

  #key(pair: Pair, path: Path): { readonly text: string; readonly offset: number } | undefined {
    const { key, value } = pair;
    const offset = offsetOf(key);
    const text = isScalar(key) && typeof key.value === 'string' ? key.value : '';
    if (WORD.test(text) && value !== null) return { text, offset };
    // The message does not quote the key, which may contain a secret, as in `{ name: city, password hunter2 }`.
    this.#addExtent(key, []);
    const wide = fullWidthIn(text);
    if (wide !== undefined) {
      this.#problem(offset + wide.index, path, wide.message);
      return undefined;
    }
    const wrong = text.includes('.')
      ? 'a key with a dot; write nested maps'
      : 'a key that is not a word of letters, digits, _ and -';
    this.#problem(
      offset,
      path,
      `contains ${value === null ? 'a text without a key; write key: value' : wrong}`,
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
    const quote = node.type === 'PLAIN' && /^[“”‘’]/.test(node.value) ? fullWidthIn(node.value) : undefined;
    if (quote !== undefined) this.#problem(start, path, quote.message);
    const isCutOff = node.type === 'PLAIN' && /^[ \t]+#\S/.test(this.#text.slice(node.range?.[1]));
    this.#positions.set(pathText(path), { keyOffset, valueOffset: start, variables, isCutOff });
    return text;
  }

  #addExtent(node: unknown, path: Path): void {
    if (!(isScalar(node) || isMap(node) || isSeq(node)) || !node.range) return;
    this.#seen.add(node);
    const [start, end] = node.range;
    const text = isScalar(node) ? String(node.value) : undefined;
    this.#extents.push({ start, end, path: pathText(path), text });
  }

  /**
   * Records the start and the end of each scalar without a path, for example of the scalars in a map that is used as a
   * key. Messages mask these scalars, because any of them may be a secret.
   */
  #addUnseen(): void {
    visit(this.#document, {
      Scalar: (key, node) => {
        if (key !== 'key' && !this.#seen.has(node)) this.#addExtent(node, []);
      },
    });
  }

  #refuseTag(tag: string | undefined, node: unknown, path: Path): void {
    if (tag === undefined || tag.startsWith('tag:yaml.org,2002:') || this.#refused.has(node)) return;
    this.#refused.add(node);
    this.#problem(offsetOf(node), path, `has the YAML tag ${tag}; tags are not supported`);
  }

  #problem(offset: number, path: Path, message: string): void {
    this.#problems.push({ offset, path: pathText(path), message });
  }
}

/** Returns the offset at which a node starts, or `otherwise` for an empty value, which has no text. */
function offsetOf(node: unknown, otherwise = 0): number {
  const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
  return range?.[0] ?? otherwise;
}
