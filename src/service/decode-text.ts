/**
 * Reads an answer in the format Text: one proxy per line, in the default layout, that of the free product, or a
 * custom layout. Text has no field for a code: lines that match are a success; otherwise a code of the operation in
 * the text is an error with that code.
 */
import { type AnswerOrigin, type Envelope, oversizedAnswer, type RawFields } from './answer.ts';
import { CODES, SUCCESS } from './codes.ts';
import { ENTRY_FIELDS, isWireField, type WireField } from './fields.ts';
import { OPERATIONS, type OperationNumber, type Product } from './operations.ts';

/** `ip:port`, the default layout of the paid products. */
const PLAIN_LINE =
  /[ \t]*(?<ip>\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:.]{2,45}\]):(?<port>\d{1,6})[ \t]*(?=\n|$)/y;
/** `[level]ip:port@protocol#location`, the layout of the free product. */
const FREE_LINE =
  /[ \t]*\[(?<level>[^\]\n]{0,100})\](?<ip>[^\s:]{1,45}|\[[0-9a-fA-F:.]{2,45}\]):(?<port>\d{1,6})@(?<protocol>\w{1,16})#(?<adr>[^\n]*)(?=\n|$)/y;
/** More lines take too long to decode. The patterns of a custom layout may backtrack in each line. */
const MAX_LINES = 32_000;
const MAX_LAYOUT_LINES = 1_000;
const MAX_ERROR_LENGTH = 2_000;

/**
 * @param options - `textLayout`: the custom extraction format, which `compileLayout` must have accepted; otherwise reading
 * throws a TypeError.
 * @returns undefined if at least half of the lines do not match: the text is not a list of proxies.
 */
export function readTextLines(
  text: string,
  options: AnswerOrigin & { readonly product: Product; readonly textLayout?: string | undefined },
): Envelope | undefined {
  const lines = text.replace(/\r\n?/g, '\n');
  const maxLines = options.textLayout === undefined ? MAX_LINES : MAX_LAYOUT_LINES;
  const read = readRecords(lines, recordReader(options.product, options.textLayout), maxLines);
  if (read === undefined) throw oversizedAnswer(`more than ${maxLines} lines`, text, options);
  const { entries, mismatches } = read;
  // If only a few lines do not match, they count as dropped entries. If at least half do not match, the text is not a
  // list of proxies.
  if (mismatches > 0 && mismatches >= entries.length) return undefined;
  const bad = new Array<RawFields>(mismatches).fill({});
  return { code: SUCCESS, message: '', counters: [], entries: [...entries, ...bad] };
}

/** The number after the word `code`, else any code of the operation in the text. */
export function readTextCode(text: string, product: Product): Envelope | undefined {
  if (text.length > MAX_ERROR_LENGTH) return undefined;
  const labelled = /\bcode\b\W{1,4}(\d{5})\b/i.exec(text)?.[1];
  const code = labelled ?? listedCode(text, OPERATIONS[product].number);
  return code === undefined ? undefined : { code, message: text, counters: [], entries: [] };
}

function recordReader(product: Product, layout: string | undefined): EntryTextReader {
  if (layout === undefined) return lineReader(product === 'free' ? FREE_LINE : PLAIN_LINE);
  const { read, problem } = compileLayout(product, layout);
  if (read === undefined) throw new TypeError(`check textLayout with compileLayout first: ${problem}`);
  return read;
}

function lineReader(pattern: RegExp): EntryTextReader {
  return (text, from) => {
    pattern.lastIndex = from;
    const match = pattern.exec(text);
    return match === null ? undefined : { fields: { ...match.groups }, end: pattern.lastIndex };
  };
}

function readRecords(
  text: string,
  read: EntryTextReader,
  maxLines: number,
): { entries: RawFields[]; mismatches: number } | undefined {
  const entries: RawFields[] = [];
  let mismatches = 0;
  let at = 0;
  while (at < text.length) {
    if (entries.length + mismatches > maxLines) return undefined;
    const record = read(text, at);
    if (record !== undefined) {
      entries.push(record.fields);
      at = record.end;
    } else {
      const lineEnd = text.indexOf('\n', at);
      const end = lineEnd < 0 ? text.length : lineEnd + 1;
      if (text.slice(at, end).trim() !== '') mismatches += 1;
      at = end;
    }
  }
  return { entries, mismatches };
}

function listedCode(text: string, operation: OperationNumber): string | undefined {
  // Addresses are removed first, because a port may look like a code.
  const withoutAddresses = text.replace(/\d{1,3}(?:\.\d{1,3}){3}\W{1,3}\d{1,5}\b/g, ' ');
  const numbers = withoutAddresses.match(/\b\d{5}\b/g) ?? [];
  return numbers.find((code) => Object.hasOwn(CODES[operation], code));
}

/** Reads the record that begins at `from`. Every line break in `text` must be `\n`. */
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

export function compileLayout(product: Product, layout: string): CompiledLayout {
  const normal = layout.replace(/\r\n?/g, '\n');
  const parts = normal.split(/\{([^{}]*)\}/); // the parts alternate: literal, tag, literal, tag, …, literal
  const literals = parts.filter((_, index) => index % 2 === 0);
  const tags = parts.filter((_, index) => index % 2 === 1);
  const problem = findProblem(product, tags, literals);
  if (problem !== undefined) return { problem };
  const names = tags.filter(isWireField);
  return { read: layoutReader(names, literals) };
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
  // Fields may contain letters and digits too, so there would be too many ways to divide a line.
  const weak = separators.find((separator) => /^\w*$/.test(separator));
  if (weak !== undefined) return `"${weak}" cannot separate two fields: use a character such as , or ;`;
  return undefined;
}

function layoutReader(names: readonly WireField[], literals: readonly string[]): EntryTextReader {
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
