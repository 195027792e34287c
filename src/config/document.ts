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
  type ErrorCode,
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

export interface ValuePosition {
  readonly keyOffset: number;
  readonly valueOffset: number;
  readonly variables: readonly string[];
  /** As in `abc #def`: YAML reads `#def` as a comment, but the author may have meant it as a part of the value. */
  readonly isCutOff?: boolean;
}

/** The place of a value in the text. A value with aliases has an Extent for each of its paths. */
interface Extent {
  readonly start: number;
  readonly end: number;
  /** Empty if the tree does not contain the value, for example the second value of a duplicate key. */
  readonly path: string;
  readonly text: string | undefined;
}

const WORD = /^(?:[\w-]+|<<)$/;
const MAX_DEPTH = 20;
/** Nested aliases can expand a small file exponentially. */
const MAX_NODES = 20_000;

export class ParsedDocument {
  readonly text: string;
  readonly lines = new LineCounter();
  readonly problems: SyntaxProblem[];
  /** Undefined if the text is not YAML. */
  readonly tree: Tree | undefined;
  readonly positions = new Map<string, ValuePosition>();
  readonly extents: Extent[] = [];
  readonly #document: Document;
  readonly #environment: Environment;
  readonly #resolved = new Map<Alias, unknown>();
  readonly #seen = new Set<unknown>();
  readonly #refused = new Set<unknown>();
  #nodeCount = 0;
  #tooLarge = false;

  constructor(text: string, environment: Environment) {
    this.text = text;
    this.#environment = environment;
    this.#document = parseDocument(text, {
      schema: 'failsafe',
      lineCounter: this.lines,
      prettyErrors: false, // pretty errors quote the text, including secrets
      uniqueKeys: false, // this file reports duplicate keys itself, with both positions
    });
    this.problems = syntaxProblems(text, this.lines, this.#document.errors);
    if (this.problems.length > 0) return;
    this.tree = this.#value(this.#document.contents, [], 0);
    this.#addUnseen();
  }

  #value(node: unknown, path: Path, keyOffset: number): Tree {
    this.#nodeCount += 1;
    if (path.length > MAX_DEPTH || this.#nodeCount > MAX_NODES) {
      const message = `is nested deeper than ${MAX_DEPTH} levels, or aliases expand it to more than ${MAX_NODES} values`;
      if (!this.#tooLarge) this.#problem(keyOffset, path, message);
      this.#tooLarge = true;
      return null;
    }
    if (isAlias(node)) {
      const target = this.#resolve(node);
      if (target !== undefined) return this.#value(target, path, keyOffset);
      const message = `the alias *${node.source} has no anchor; add &${node.source} to the value it refers to`;
      this.#problem(offsetOf(node), path, message);
      return null;
    }
    this.positions.set(pathText(path), { keyOffset, valueOffset: offsetOf(node, keyOffset), variables: [] });
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
        const { line } = this.lines.linePos(first);
        this.#problem(key.offset, [...path, key.text], `is a duplicate of the key in line ${line}`);
        continue;
      }
      own.set(key.text, key.offset);
      merged.set(key.text, this.#value(pair.value, [...path, key.text], key.offset));
    }
    return Object.fromEntries(merged);
  }

  /** In YAML the first map of the list has priority, and the caller lets later keys overwrite earlier ones. */
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
    const wrong =
      value === null
        ? 'a text without a key; write key: value'
        : text.includes('.')
          ? 'a key with a dot; write nested maps'
          : 'a key that is not a word of letters, digits, _ and -';
    this.#problem(offset, path, `contains ${wrong}`);
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
    const isCutOff = node.type === 'PLAIN' && /^[ \t]+#\S/.test(this.text.slice(node.range?.[1]));
    this.positions.set(pathText(path), { keyOffset, valueOffset: start, variables, isCutOff });
    return text;
  }

  #addExtent(node: unknown, path: Path): void {
    if (!(isScalar(node) || isMap(node) || isSeq(node)) || !node.range) return;
    this.#seen.add(node);
    const [start, end] = node.range;
    const text = isScalar(node) ? String(node.value) : undefined;
    this.extents.push({ start, end, path: pathText(path), text });
  }

  /** Messages mask scalars without a path, for example in a map that is used as a key: any of them may be a secret. */
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
    this.problems.push({ offset, path: pathText(path), message });
  }
}

function offsetOf(node: unknown, otherwise = 0): number {
  const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
  return range?.[0] ?? otherwise;
}

interface SyntaxProblem {
  readonly offset: number;
  readonly path: string;
  readonly message: string;
}

const WORDS: { readonly [Code in ErrorCode]?: string } = {
  TAB_AS_INDENT: 'YAML cannot be indented with tabs; use spaces',
  BAD_INDENT: 'the indentation does not match the lines above',
  BLOCK_AS_IMPLICIT_KEY:
    'there are two keys in one line; quote a text that contains ": ", or start a new line',
  BLOCK_IN_FLOW: 'indented keys and lists are not allowed inside { } or [ ]',
  BAD_SCALAR_START: 'a text that starts with this character needs quotes',
  BAD_DQ_ESCAPE: 'unknown escape sequence in double quotes; write \\\\ for a backslash, or use single quotes',
  MISSING_CHAR: 'a closing quote, bracket, comma or colon is missing here or above',
  MULTIPLE_DOCS: 'a second YAML document starts here; a file may contain only one',
  MULTILINE_IMPLICIT_KEY: 'a key spans several lines; is a colon or a quote missing?',
  KEY_OVER_1024_CHARS: 'this key is longer than 1024 characters; is a colon missing above?',
  BAD_ALIAS: 'this is not a valid alias; a text that starts with * needs quotes',
  MULTIPLE_ANCHORS: 'a value can have only one anchor',
  UNEXPECTED_TOKEN: 'this is unexpected here; is a colon, a dash or a quote missing?',
  IMPOSSIBLE: 'this is unexpected here; is a colon, a dash or a quote missing?',
};

/** Characters that Chinese keyboards type in place of YAML's, with their names and with what to type. */
const FULL_WIDTH = new Map([
  ['：', ['full-width colon', ': and a space']],
  ['，', ['full-width comma', ', and a space']],
  ['、', ['ideographic comma', ', and a space']],
  ['“', ['quotation mark', '"']],
  ['”', ['quotation mark', '"']],
  ['‘', ['quotation mark', "'"]],
  ['’', ['quotation mark', "'"]],
  ['｛', ['full-width brace', '{']],
  ['｝', ['full-width brace', '}']],
  ['［', ['full-width bracket', '[']],
  ['］', ['full-width bracket', ']']],
  ['【', ['full-width bracket', '[']],
  ['】', ['full-width bracket', ']']],
  ['－', ['full-width dash', '-']],
  ['＃', ['full-width number sign', '#']],
  ['\u3000', ['full-width space', 'a space']],
]);
const QUOTED_OR_COMMENT = /"[^"]*"?|'[^']*'?|#.*/g;

export function fullWidthIn(text: string): { readonly index: number; readonly message: string } | undefined {
  const index = text.search(/[：，、“”‘’｛｝［］【】－＃\u3000]/);
  const [name, typed] = FULL_WIDTH.get(text.charAt(index)) ?? [];
  if (name === undefined) return undefined;
  const message = `contains the ${name} ${text.charAt(index).trim()}`.trimEnd();
  return { index, message: `${message}; type ${typed} in its place` };
}

/**
 * At most one problem for each line: later errors in a line usually result from the first one. An unquoted reference or a
 * full-width character also causes errors in other lines, so then only these are problems.
 */
function syntaxProblems(
  text: string,
  lines: LineCounter,
  errors: readonly YAMLParseError[],
): SyntaxProblem[] {
  const byLine = new Map<number, SyntaxProblem>();
  const causes = new Map<number, SyntaxProblem>();
  for (const { code, pos } of errors) {
    const [offset] = pos;
    const { line } = lines.linePos(offset);
    if (byLine.has(line)) continue;
    byLine.set(line, { offset, path: '', message: WORDS[code] ?? `this is not valid YAML (${code})` });
    const start = lines.lineStarts[line - 1] ?? 0;
    const content = text.slice(start, lines.lineStarts[line]);
    const reference = bareReference(content);
    const wide = fullWidthIn(content.replace(QUOTED_OR_COMMENT, (part) => ' '.repeat(part.length)));
    if (reference !== undefined) {
      const message = 'a reference inside { } or [ ] needs quotes: "${NAME}"';
      causes.set(line, { offset: start + reference, path: '', message });
    } else if (wide !== undefined) {
      causes.set(line, { offset: start + wide.index, path: '', message: `the line ${wide.message}` });
    }
  }
  return [...(causes.size > 0 ? causes : byLine).values()];
}

/** Finds an unquoted `${` inside `{ }` or `[ ]`, where YAML reads the brace as the start of a map. */
function bareReference(line: string): number | undefined {
  const [content = ''] = line.split('#', 1);
  const index = content.lastIndexOf('${');
  const isBare = /[\s:,{[]/.test(content.charAt(index - 1)) && /[{[,]/.test(content.slice(0, index));
  return index > 0 && isBare ? index : undefined;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** Also matches `$${`, which means the text `${`, and a `${` without `}`, which is an error. */
const REFERENCE = /\$\$\{|\$\{([^}]*)(\}?)/g;
const NAME_AND_DEFAULT = /^([A-Za-z_][A-Za-z0-9_]*)(?::-([\s\S]*))?$/;

/** As in a shell, the text after `:-` is the default if the variable is unset or empty. */
export function substitute(text: string, environment: Environment) {
  const variables: string[] = [];
  const problems: string[] = [];
  const replaced = text.replace(REFERENCE, (whole, inside: string | undefined, end: string | undefined) => {
    if (inside === undefined) return '${';
    const [, name, fallback] = NAME_AND_DEFAULT.exec(inside) ?? [];
    if (name === undefined || end === '') {
      problems.push(
        'contains an invalid reference; write ${NAME} or ${NAME:-default}, or $${ for a literal ${',
      );
      return whole;
    }
    variables.push(name);
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (fallback !== undefined) return value === undefined || value === '' ? fallback : value;
    if (value === undefined)
      problems.push(
        `the environment variable ${name} is not set; run export ${name}=… before noria, or write \${${name}:-default}`,
      );
    return value ?? '';
  });
  return { text: replaced, variables, problems };
}

/** A text, `null` for a key without a value, a list, or a map. */
export type Tree = string | null | readonly Tree[] | TreeMap;

export interface TreeMap {
  readonly [key: string]: Tree;
}

export type Path = readonly (string | number)[];

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

export function valueAt(tree: Tree | undefined, path: readonly PropertyKey[]): Tree | undefined {
  return path.reduce<Tree | undefined>((at, key) => {
    if (isTreeList(at)) return at[Number(key)];
    return isTreeMap(at) && Object.hasOwn(at, key) ? at[String(key)] : undefined;
  }, tree);
}
