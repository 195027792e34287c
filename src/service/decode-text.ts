/**
 * Reads an answer in the format Text: one proxy per line, in the default layout, the layout of the free product, or a
 * custom layout. All functions are pure.
 *
 * A Text answer has no field for a code. If its lines match the layout, the answer is a success. The specification
 * shows no error in the format Text. If the lines do not match and the text contains a code of the operation, noria
 * reads the answer as an error with that code.
 */
import { type AnswerOrigin, type Envelope, oversizedAnswer, type RawFields } from './body.ts';
import { CODES, SUCCESS } from './codes.ts';
import type { OperationNumber, Product } from './operation.ts';
import { OPERATIONS } from './operations.ts';
import { compileLayout, type EntryTextReader } from './text-layout.ts';

/** `ip:port`, the default layout of the paid products. */
const PLAIN_LINE =
  /[ \t]*(?<ip>\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:.]{2,45}\]):(?<port>\d{1,6})[ \t]*(?=\n|$)/y;
/** `[level]ip:port@protocol#location`, the layout of the free product. */
const FREE_LINE =
  /[ \t]*\[(?<level>[^\]\n]{0,100})\](?<ip>[^\s:]{1,45}|\[[0-9a-fA-F:.]{2,45}\]):(?<port>\d{1,6})@(?<protocol>\w{1,16})#(?<adr>[^\n]*)(?=\n|$)/y;
/**
 * The maximum number of lines in a text: more lines take too long to decode. Texts in a custom layout have a lower
 * limit, because the patterns may backtrack in each line.
 */
const MAX_LINES = 32_000;
const MAX_LAYOUT_LINES = 1_000;
/** The maximum length of a text that noria reads as an error, in characters. */
const MAX_ERROR_LENGTH = 2_000;

interface TextOptions extends AnswerOrigin {
  readonly product: Product;
  /** The custom extraction format. `compileLayout` must have accepted it; otherwise reading throws a TypeError. */
  readonly textLayout?: string | undefined;
}

/**
 * Reads the lines of a Text answer. An empty text is a success without proxies.
 *
 * @returns undefined if at least half of the lines do not match.
 * @throws NoriaError service-protocol if the text exceeds the limits.
 */
export function readTextLines(text: string, options: TextOptions): Envelope | undefined {
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

/**
 * Finds the code of an error in a short text: the number after the word `code`. If there is none, finds any code of the
 * operation in the text.
 */
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

/**
 * Returns all records, and the number of mismatches: lines without a record, and other text after a record. Returns
 * undefined if the text has too many lines.
 */
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
