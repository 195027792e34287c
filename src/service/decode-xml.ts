/**
 * Reads the envelope in XML. All functions are pure.
 *
 * The specification shows no layout, so noria accepts any reasonable one: elements or attributes, at any depth, with or without
 * namespaces, in any letter case. An element that contains an `ip` or a `port` is an entry. If one element contains the fields of
 * several entries, a repeated field name starts the next entry. noria rejects a document type declaration, because its entities
 * enable attacks.
 */
import {
  type AnswerOrigin,
  type Envelope,
  MAX_DEPTH,
  MAX_VALUES,
  oversizedAnswer,
  type RawFields,
  readCode,
  TOO_MANY_VALUES,
} from './answer.ts';

export function readXml(text: string, origin: AnswerOrigin): Envelope | undefined {
  if (!text.startsWith('<')) return undefined;
  const root = new XmlScanner(text).parse();
  if (root === 'too-large') throw oversizedAnswer(TOO_MANY_VALUES, text, origin);
  if (root === 'not-xml') return undefined;
  const envelope: Record<string, unknown> = {};
  const entries: RawFields[] = [];
  collect(root, envelope, entries);
  const code = readCode(envelope['code']);
  if (code === undefined) return undefined;
  const message = envelope['msg'];
  return { code, message: typeof message === 'string' ? message : '', counters: [envelope], entries };
}

/** Of several values with the same name, the first counts. */
function collect(element: XmlElement, envelope: Record<string, unknown>, entries: RawFields[]): void {
  const values = valuesOf(element);
  const names = new Set(values.map(([name]) => name));
  // An element with `code` and `ip` but without `port` is not an entry: an error may contain the caller's address.
  const hasEntries = names.has('code')
    ? names.has('ip') && names.has('port')
    : names.has('ip') || names.has('port');
  if (hasEntries) entries.push(...entriesIn(values));
  if (hasEntries && !names.has('code')) return;
  for (const [name, value] of values) {
    if (!Object.hasOwn(envelope, name)) envelope[name] = value;
  }
  for (const child of element.children) collect(child, envelope, entries);
}

function entriesIn(values: readonly (readonly [string, string])[]): RawFields[] {
  const groups: Record<string, string>[] = [];
  let group: Record<string, string> | undefined;
  for (const [name, value] of values) {
    if (group === undefined || Object.hasOwn(group, name)) {
      group = {};
      groups.push(group);
    }
    group[name] = value;
  }
  return groups;
}

/** Pairs of name and text: the attributes, then the children without children of their own. */
function valuesOf({ attributes, children }: XmlElement): (readonly [string, string])[] {
  const leaves = children.filter((child) => child.children.length === 0);
  return [...attributes, ...leaves.map((leaf): [string, string] => [leaf.name, leaf.text])];
}

interface XmlElement {
  /** The name of the element, in lower case and without namespace prefix. The names of attributes have the same form. */
  readonly name: string;
  readonly attributes: readonly (readonly [string, string])[];
  readonly children: readonly XmlElement[];
  readonly text: string;
}

const START = /<([^\s<>/="'!?&]+)/y;
const ATTRIBUTE = /\s+([^\s<>/="']+)(?:\s*=\s*(?:"([^"<]*)"|'([^'<]*)'))?/y;
const START_END = /\s*(\/?)>/y;
const REFERENCE = /&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,4}));/gi;
const END = /<\/([^\s<>/]+)\s*>/y;

class XmlScanner {
  readonly #text: string;
  readonly #open: {
    /** As it is in the document, because the end tag must repeat it exactly. */
    readonly tag: string;
    readonly attributes: XmlElement['attributes'];
    readonly children: XmlElement[];
    readonly texts: string[];
  }[] = [];
  #at = 0;
  #nodes = 0;
  #root: XmlElement | undefined;
  #tooLarge = false;

  constructor(text: string) {
    this.#text = text;
  }

  parse(): XmlElement | 'not-xml' | 'too-large' {
    while (this.#at < this.#text.length) {
      if (!this.#readText() || !this.#readMarkup()) return this.#tooLarge ? 'too-large' : 'not-xml';
    }
    return this.#root === undefined || this.#open.length > 0 ? 'not-xml' : this.#root;
  }

  #readText(): boolean {
    const markup = this.#text.indexOf('<', this.#at);
    const end = markup < 0 ? this.#text.length : markup;
    const text = this.#text.slice(this.#at, end);
    this.#at = end;
    const texts = this.#open.at(-1)?.texts;
    if (texts === undefined) return text.trim() === '';
    if (text !== '') texts.push(this.#resolve(text));
    return !this.#tooLarge;
  }

  #readMarkup(): boolean {
    if (this.#at === this.#text.length) return true;
    if (!this.#countNode()) return false;
    if (this.#text.startsWith('</', this.#at)) return this.#readEnd();
    if (this.#text.startsWith('<!--', this.#at)) return this.#skip(4, '-->') !== undefined;
    if (this.#text.startsWith('<?', this.#at)) return this.#skip(2, '?>') !== undefined;
    if (this.#text.startsWith('<![CDATA[', this.#at)) return this.#readCdata();
    return this.#readStart();
  }

  #countNode(): boolean {
    this.#nodes += 1;
    this.#tooLarge ||= this.#nodes > MAX_VALUES;
    return !this.#tooLarge;
  }

  #skip(opening: number, end: string): string | undefined {
    const from = this.#at + opening;
    const to = this.#text.indexOf(end, from);
    if (to < 0) return undefined;
    this.#at = to + end.length;
    return this.#text.slice(from, to);
  }

  #readCdata(): boolean {
    const content = this.#skip('<![CDATA['.length, ']]>');
    const texts = this.#open.at(-1)?.texts;
    if (content === undefined || texts === undefined) return false;
    texts.push(content); // the text of a CDATA section contains no references
    return true;
  }

  #readStart(): boolean {
    const tag = this.#match(START)?.[1];
    if (tag === undefined || (this.#root !== undefined && this.#open.length === 0)) return false;
    const attributes = this.#readAttributes();
    const end = attributes === undefined ? null : this.#match(START_END);
    if (attributes === undefined || end === null) return false;
    this.#open.push({ tag, attributes, children: [], texts: [] });
    this.#tooLarge ||= this.#open.length > MAX_DEPTH;
    if (end[1] === '/') this.#closeElement();
    return !this.#tooLarge;
  }

  #readAttributes(): [string, string][] | undefined {
    const values = new Map<string, string>();
    for (;;) {
      const match = this.#match(ATTRIBUTE);
      if (match === null) return [...values].map(([name, value]) => [plainName(name), value]);
      const [, name = '', inDouble, inSingle = ''] = match;
      if (values.has(name) || !this.#countNode()) return undefined;
      values.set(name, this.#resolve(inDouble ?? inSingle));
    }
  }

  #readEnd(): boolean {
    const tag = this.#match(END)?.[1];
    if (tag === undefined || tag !== this.#open.at(-1)?.tag) return false;
    this.#closeElement();
    return true;
  }

  #closeElement(): void {
    const closed = this.#open.pop();
    if (closed === undefined) return;
    const { tag, attributes, children, texts } = closed;
    const element = { name: plainName(tag), attributes, children, text: texts.join('').trim() };
    const parent = this.#open.at(-1);
    if (parent === undefined) this.#root = element;
    else parent.children.push(element);
  }

  #resolve(text: string): string {
    let at = text.indexOf('&');
    if (at < 0) return text;
    for (; at >= 0; at = text.indexOf('&', at + 1)) if (!this.#countNode()) return '';
    return text.replace(REFERENCE, resolveOne);
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match !== null) this.#at = pattern.lastIndex;
    return match;
  }
}

function plainName(name: string): string {
  return name.slice(name.indexOf(':') + 1).toLowerCase();
}

const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

function resolveOne(whole: string, decimal?: string, hex?: string, name?: string): string {
  if (name !== undefined) return ENTITIES[name] ?? whole;
  const point = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal);
  return point <= 0x10ffff ? String.fromCodePoint(point) : whole;
}
