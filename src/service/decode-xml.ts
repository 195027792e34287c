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
} from './body.ts';
import { parseXml, type XmlElement } from './xml-tree.ts';

/**
 * @returns undefined if the text is not well-formed XML, or contains no code.
 * @throws NoriaError service-protocol if the text exceeds the limits.
 */
export function readXml(text: string, origin: AnswerOrigin): Envelope | undefined {
  if (!text.startsWith('<')) return undefined;
  const root = parseXml(text, { depth: MAX_DEPTH, nodes: MAX_VALUES });
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

/**
 * Reads an element and everything inside it. Adds the fields of each entry to `entries`. Adds the values of all
 * other elements to `envelope`: of several values with the same name, only the first.
 */
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

/**
 * Returns pairs of a name and its text: first the attributes of the element, then its child elements without children
 * of their own.
 */
function valuesOf({ attributes, children }: XmlElement): (readonly [string, string])[] {
  const leaves = children.filter((child) => child.children.length === 0);
  return [...attributes, ...leaves.map((leaf): [string, string] => [leaf.name, leaf.text])];
}
