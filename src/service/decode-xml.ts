/**
 * The envelope in XML. The specification shows no layout, so any sane one is read: elements or attributes, whatever the
 * names around them, with or without name spaces, in either letter case. Pure.
 *
 * An entry is an element with an `ip` or a `port` of its own; where several stand side by side in one element, each
 * repeated name begins the next entry. A document type is refused: no service needs one, and entities are an attack.
 */
import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { type Envelope, type RawFields, readCode } from './envelope.ts';

/** An element as the parser gives it: its name with what is inside, and its attributes under `:@`. */
type ParsedNode = Readonly<Record<string, unknown>>;

interface Element {
  readonly name: string;
  readonly attributes: RawFields;
  readonly children: readonly Element[];
  readonly text: string;
}

const TEXT = '#text';
const CDATA = '#cdata';
const ATTRIBUTES = ':@';

const parser = new XMLParser({
  preserveOrder: true,
  ignoreAttributes: false,
  attributeNamePrefix: '',
  textNodeName: TEXT,
  cdataPropName: CDATA,
  removeNSPrefix: true,
  parseTagValue: false,
  trimValues: false, // done here: space before a CDATA section belongs to the text
  ignoreDeclaration: true,
  ignorePiTags: true,
  processEntities: false, // done here: the parser leaves out numeric references
  maxNestedTags: 32,
});

/** @returns undefined when it is no well-formed XML with a code in it. */
export function readXml(text: string): Envelope | undefined {
  const root = parse(text);
  if (root === undefined) return undefined;
  const outside: Record<string, unknown> = {};
  const entries: RawFields[] = [];
  collect(root, outside, entries);
  const code = readCode(outside['code']);
  if (code === undefined) return undefined;
  const message = outside['msg'];
  return { code, message: typeof message === 'string' ? message : '', counters: [outside], entries };
}

function parse(text: string): Element | undefined {
  if (!text.startsWith('<') || /<!doctype/i.test(text)) return undefined;
  try {
    if (XMLValidator.validate(text, { allowBooleanAttributes: true }) !== true) return undefined;
    const [root, ...more] = elementsIn(parser.parse(text));
    return more.length === 0 ? root : undefined; // the validator lets a second, empty root pass
  } catch {
    return undefined; // handled: nested too deep or a reserved name; the caller says that it cannot be understood
  }
}

function elementsIn(nodes: unknown): Element[] {
  return nodesIn(nodes).flatMap((node) => {
    const name = Object.keys(node).find((key) => key !== ATTRIBUTES && key !== TEXT && key !== CDATA);
    if (name === undefined) return [];
    const inside = node[name];
    const attributes = Object.entries(node[ATTRIBUTES] ?? {}).map(([key, value]): [string, string] => [
      key.toLowerCase(),
      resolved(String(value)),
    ]);
    return [
      {
        name: name.toLowerCase(),
        attributes: Object.fromEntries(attributes),
        children: elementsIn(inside),
        text: textIn(inside),
      },
    ];
  });
}

/** The text of an element: its own, and that of its CDATA sections, which hold no entities. */
function textIn(nodes: unknown): string {
  const parts = nodesIn(nodes).map((node) => {
    if (typeof node[TEXT] === 'string') return resolved(node[TEXT]);
    return CDATA in node ? textIn(node[CDATA]) : '';
  });
  return parts.join('').trim();
}

function nodesIn(nodes: unknown): readonly ParsedNode[] {
  return Array.isArray(nodes) ? nodes : [];
}

/** Walks the tree: entries into `entries`; of everything else the first value of each name into `outside`. */
function collect(element: Element, outside: Record<string, unknown>, entries: RawFields[]): void {
  const values = valuesOf(element);
  const names = new Set(values.map(([name]) => name));
  // Beside the code an ip alone is no entry: the text of an error may come with the address of a caller.
  const holdsEntries = names.has('code')
    ? names.has('ip') && names.has('port')
    : names.has('ip') || names.has('port');
  if (holdsEntries) entries.push(...entriesIn(values));
  if (holdsEntries && !names.has('code')) return;
  for (const [name, value] of values) {
    if (!Object.hasOwn(outside, name)) outside[name] = value;
  }
  for (const child of element.children) collect(child, outside, entries);
}

/** Entries side by side in one element: each repeated name begins the next one. */
function entriesIn(values: readonly [string, string][]): RawFields[] {
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

/** Names with their texts: the attributes of an element, then those of its children that hold no further elements. */
function valuesOf(element: Element): [string, string][] {
  const attributes = Object.entries(element.attributes).map(([name, value]): [string, string] => [
    name,
    String(value),
  ]);
  const leaves = element.children.filter((child) => child.children.length === 0);
  return [...attributes, ...leaves.map((leaf): [string, string] => [leaf.name, leaf.text])];
}

const NAMED: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

/** The five entities of XML and numeric references; others are left as they are. */
function resolved(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,4}));/gi, resolveOne);
}

function resolveOne(whole: string, decimal?: string, hex?: string, name?: string): string {
  if (name !== undefined) return NAMED[name] ?? whole;
  const point = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal);
  return point <= 0x10ffff ? String.fromCodePoint(point) : whole;
}
