/**
 * Parses a small XML document into elements, in one pass and within limits. All functions are pure. The parser reads what an
 * extraction service may send: elements, attributes, CDATA, comments, processing instructions, and predefined and numeric
 * character references. It removes namespace prefixes. It rejects a document type declaration, because its entities enable
 * attacks. The time is linear in the length of the text: each pattern is sticky, and each search continues where the last one
 * ended.
 */

export interface XmlElement {
  /** The name of the element, in lower case and without namespace prefix. The names of attributes have the same form. */
  readonly name: string;
  readonly attributes: readonly (readonly [string, string])[];
  readonly children: readonly XmlElement[];
  /** The element's own text, trimmed, with resolved references. */
  readonly text: string;
}

interface XmlLimits {
  readonly depth: number;
  /**
   * The maximum number of tags, attributes, references, comments, CDATA sections and processing instructions
   * together.
   */
  readonly nodes: number;
}

type XmlResult = XmlElement | 'not-xml' | 'too-large';

interface OpenElement {
  /** The name as it is in the document, because the end tag must repeat it exactly. */
  readonly tag: string;
  readonly attributes: XmlElement['attributes'];
  readonly children: XmlElement[];
  readonly texts: string[];
}

const START = /<([^\s<>/="'!?&]+)/y;
const ATTRIBUTE = /\s+([^\s<>/="']+)(?:\s*=\s*(?:"([^"<]*)"|'([^'<]*)'))?/y;
const START_END = /\s*(\/?)>/y;
const REFERENCE = /&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,4}));/gi;
const END = /<\/([^\s<>/]+)\s*>/y;

export function parseXml(text: string, limits: XmlLimits): XmlResult {
  return new XmlScanner(text, limits).parse();
}

class XmlScanner {
  readonly #text: string;
  readonly #limits: XmlLimits;
  readonly #open: OpenElement[] = [];
  #at = 0;
  #nodes = 0;
  #root: XmlElement | undefined;
  #tooLarge = false;

  constructor(text: string, limits: XmlLimits) {
    this.#text = text;
    this.#limits = limits;
  }

  parse(): XmlResult {
    while (this.#at < this.#text.length) {
      if (!this.#readText() || !this.#readMarkup()) return this.#tooLarge ? 'too-large' : 'not-xml';
    }
    return this.#root === undefined || this.#open.length > 0 ? 'not-xml' : this.#root;
  }

  /** Reads up to the next `<`. Outside the root, only white space is allowed. */
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
    this.#tooLarge ||= this.#nodes > this.#limits.nodes;
    return !this.#tooLarge;
  }

  /** Moves past the next `end` and returns the text before it; undefined if there is no `end`. */
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
    this.#tooLarge ||= this.#open.length > this.#limits.depth;
    if (end[1] === '/') this.#closeElement();
    return !this.#tooLarge;
  }

  /** @returns undefined if there are too many nodes, or two attributes with the same name. */
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

  /** Resolves numeric references and the five predefined entities of XML. Leaves other references as they are. */
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
