/**
 * Compiles a custom extraction format, such as `{ip}:{port},{adr}`, to a reader of one record (the text of one proxy).
 * All functions are pure.
 *
 * A tag is the name of a field in braces. The text between two tags separates their fields. A record ends with the text
 * after the last tag, or with a line break.
 */
import { ENTRY_FIELDS, isWireField, type WireField } from './fields.ts';
import type { Product } from './operation.ts';
import { OPERATIONS } from './operations.ts';

/**
 * Reads the record (the text of one proxy) that begins at `from`; undefined if none begins there. Every line break in
 * `text` must be `\n`.
 */
export type EntryTextReader = (
  text: string,
  from: number,
) => { readonly fields: Readonly<Record<string, string>>; readonly end: number } | undefined;

type CompiledLayout =
  | { readonly read: EntryTextReader; readonly problem?: never }
  | { readonly read?: never; readonly problem: string };

/** The pattern for each kind of field. Limited lengths keep the backtracking in a line short. */
const PATTERNS = {
  address: String.raw`\[?[0-9a-fA-F:.]{0,45}\]?`,
  number: String.raw`-?\d{0,12}`,
  word: String.raw`\w{0,40}`,
  free: String.raw`[^\n]{0,60}?`,
} as const;

/** Returns the reader of a layout, or what is wrong with the layout. */
export function compileLayout(product: Product, layout: string): CompiledLayout {
  const normal = layout.replace(/\r\n?/g, '\n');
  const parts = normal.split(/\{([^{}]*)\}/); // the parts alternate: literal, tag, literal, tag, …, literal
  const literals = parts.filter((_, index) => index % 2 === 0);
  const tags = parts.filter((_, index) => index % 2 === 1);
  const problem = findProblem(product, tags, literals);
  if (problem !== undefined) return { problem };
  const names = tags.filter(isWireField);
  return { read: recordReader(names, literals) };
}

function findProblem(
  product: Product,
  tags: readonly string[],
  literals: readonly string[],
): string | undefined {
  const { fields } = OPERATIONS[product];
  const known: readonly string[] = fields;
  const unknown = tags.find((tag) => !known.includes(tag));
  if (unknown !== undefined) {
    const list = fields.map((field) => `{${field}}`).join(' ');
    return `{${unknown}} is not a field of ${product}; its fields are ${list}`;
  }
  const missing = ['ip', 'port'].find((tag) => !tags.includes(tag));
  if (missing !== undefined) return `the layout must contain {ip} and {port}; {${missing}} is missing`;
  const twice = tags.find((tag, index) => tags.indexOf(tag) !== index);
  if (twice !== undefined) return `{${twice}} occurs twice`;
  const separators = literals.slice(1, -1);
  if (separators.includes('')) return 'two fields must have text between them';
  // noria refuses a separator that contains only letters and digits. Fields may contain them too, so there would be too
  // many ways to divide a line.
  const weak = separators.find((separator) => /^\w*$/.test(separator));
  if (weak !== undefined) return `"${weak}" cannot separate two fields: use a character such as , or ;`;
  return undefined;
}

function recordReader(names: readonly WireField[], literals: readonly string[]): EntryTextReader {
  const inner = names.map(
    (name, index) => `${escapeRegExp(literals[index])}(${PATTERNS[ENTRY_FIELDS[name].text]})`,
  );
  const last = literals.at(-1) ?? '';
  const end = last === '' ? String.raw`[ \t]*(?=\n|$)` : `(?:${escapeRegExp(last)}|[ \\t]*(?=\\n|$))`;
  const pattern = new RegExp(`[ \\t]*${inner.join('')}${end}`, 'y');
  return (text, from) => {
    pattern.lastIndex = from;
    const match = pattern.exec(text);
    if (match === null) return undefined;
    const fields = names.map((name, index): [string, string] => [name, match[index + 1] ?? '']);
    return { fields: Object.fromEntries(fields), end: pattern.lastIndex };
  };
}

function escapeRegExp(literal = ''): string {
  return literal.replace(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`);
}
