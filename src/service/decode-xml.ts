/**
 * Reads the envelope in XML. Pure.
 *
 * The specification shows no layout, so any reasonable one is accepted: elements or attributes, inside elements of any name,
 * with or without namespaces, in any letter case. An element with an `ip` or a `port` is an entry; if it contains several
 * entries side by side, a repeated name starts the next one. A document type is rejected, because entities enable attacks.
 */
import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { type Envelope, type RawFields, readCode } from './body.ts';

/** An element as the parser returns it: its content under its name, its attributes under `:@`. */
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
  trimValues: false, // trimmed here, because space before a CDATA section is part of the text
  ignoreDeclaration: true,
  ignorePiTags: true,
  processEntities: false, // resolved here, because the parser ignores numeric references
  maxNestedTags: 32,
});

/** @returns undefined when it is not well-formed XML with a code. */
export function readXml(text: string): Envelope | undefined {
  const root = parse(text);
  if (root === undefined) return undefined;
  const envelope: Record<string, unknown> = {};
  const entries: RawFields[] = [];
  collect(root, envelope, entries);
  const code = readCode(envelope['code']);
  if (code === undefined) return undefined;
  const message = envelope['msg'];
  return { code, message: typeof message === 'string' ? message : '', counters: [envelope], entries };
}

function parse(text: string): Element | undefined {
  if (!text.startsWith('<') || /<!doctype/i.test(text)) return undefined;
  try {
    if (XMLValidator.validate(text, { allowBooleanAttributes: true }) !== true) return undefined;
    const [root, ...more] = elementsIn(parser.parse(text));
    return more.length === 0 ? root : undefined; // the validator accepts a second, empty root
  } catch {
    return undefined; // ignored: nested too deep or a reserved name; the caller reports that the answer is not understood
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

/** The text of an element, including its CDATA sections, which contain no entities. */
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

/** Walks the tree and adds entries to `entries`, and of all other names the first value to `envelope`. */
function collect(element: Element, envelope: Record<string, unknown>, entries: RawFields[]): void {
  const values = valuesOf(element);
  const names = new Set(values.map(([name]) => name));
  // Next to the code, an ip alone is not an entry: an error may contain the address of a caller.
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

/** Splits the values of one element into entries. */
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

/** Names with their texts: the attributes of an element, then its children without children. */
function valuesOf(element: Element): [string, string][] {
  const attributes = Object.entries(element.attributes).map(([name, value]): [string, string] => [
    name,
    String(value),
  ]);
  const leaves = element.children.filter((child) => child.children.length === 0);
  return [...attributes, ...leaves.map((leaf): [string, string] => [leaf.name, leaf.text])];
}

const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

/** Resolves the five entities of XML and numeric references. Others stay as they are. */
function resolved(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,4}));/gi, resolveOne);
}

function resolveOne(whole: string, decimal?: string, hex?: string, name?: string): string {
  if (name !== undefined) return ENTITIES[name] ?? whole;
  const point = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal);
  return point <= 0x10ffff ? String.fromCodePoint(point) : whole;
}
