/**
 * A custom extraction format, such as `{ip}:{port},{adr}`, compiled to a reader of one record.
 *
 * Tags are the wire fields of the operation in braces; everything between them is literal and separates them. What follows
 * the last tag separates records, as a line break always does. Pure.
 */
import { ENTRY_FIELDS, isWireField, type WireField } from './fields.ts';
import { OPERATIONS, type Product } from './operations.ts';

/** Reads the record that begins at `from`; undefined when there is none. Line breaks in `text` are `\n`. */
export type RecordReader = (
  text: string,
  from: number,
) => { readonly fields: Readonly<Record<string, string>>; readonly end: number } | undefined;

export type CompiledLayout =
  | { readonly read: RecordReader; readonly problem?: never }
  | { readonly read?: never; readonly problem: string };

/**
 * What each kind of field looks like in a text. Bounded, so that no line takes long: the two free texts that an operation has
 * at most are the only parts that can be tried more than once over a distance.
 */
const PATTERNS = {
  address: String.raw`\[?[0-9a-fA-F:.]{0,45}\]?`,
  number: String.raw`-?\d{0,12}`,
  word: String.raw`[\w-]{0,40}`,
  free: String.raw`[^\n]{0,100}?`,
} as const;

/** Compiles a layout for a product, or says what is wrong with it. */
export function compileLayout(product: Product, layout: string): CompiledLayout {
  const normal = layout.replace(/\r\n?/g, '\n');
  const parts = normal.split(/\{([^{}]*)\}/); // literal, tag, literal, tag, …, literal
  const literals = parts.filter((_, index) => index % 2 === 0);
  const tags = parts.filter((_, index) => index % 2 === 1);
  const problem = problemWith(product, tags, literals);
  if (problem !== undefined) return { problem };
  const names = tags.filter(isWireField);
  return { read: recordReader(names, literals) };
}

function problemWith(
  product: Product,
  tags: readonly string[],
  literals: readonly string[],
): string | undefined {
  const { fields } = OPERATIONS[product];
  const known: readonly string[] = fields;
  const unknown = tags.find((tag) => !known.includes(tag));
  if (unknown !== undefined) {
    const list = fields.map((field) => `{${field}}`).join(' ');
    return `{${unknown}} is no tag of ${product}; it has ${list}`;
  }
  const missing = ['ip', 'port'].find((tag) => !tags.includes(tag));
  if (missing !== undefined) return `a layout needs {ip} and {port}; {${missing}} is missing`;
  const twice = tags.find((tag, index) => tags.indexOf(tag) !== index);
  if (twice !== undefined) return `{${twice}} stands twice`;
  if (literals.slice(1, -1).includes('')) return 'two tags need something between them';
  return undefined;
}

function recordReader(names: readonly WireField[], literals: readonly string[]): RecordReader {
  const inner = names.map(
    (name, index) => `${quoted(literals[index])}(${PATTERNS[ENTRY_FIELDS[name].text]})`,
  );
  const last = literals.at(-1) ?? '';
  const end = last === '' ? String.raw`[ \t]*(?=\n|$)` : `(?:${quoted(last)}|[ \\t]*(?=\\n|$))`;
  const pattern = new RegExp(`[ \\t]*${inner.join('')}${end}`, 'y');
  return (text, from) => {
    pattern.lastIndex = from;
    const match = pattern.exec(text);
    if (match === null) return undefined;
    const fields = names.map((name, index): [string, string] => [name, match[index + 1] ?? '']);
    return { fields: Object.fromEntries(fields), end: pattern.lastIndex };
  };
}

function quoted(literal = ''): string {
  return literal.replace(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`);
}
