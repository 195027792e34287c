/**
 * An answer in Text: one proxy a line, in the default layout, the free product's line, or a custom one. Pure.
 *
 * The text has no envelope, so success is inferred from lines that fit. The specification shows no layout for errors in it,
 * so a code of the operation is looked for in what is nothing else.
 */
import { CODES, SUCCESS } from './codes.ts';
import type { Envelope, RawFields } from './envelope.ts';
import { OPERATIONS, type OperationNumber, type Product } from './operations.ts';
import { compileLayout, type RecordReader } from './text-layout.ts';

/** `ip:port`, the default of the paid products. */
const PLAIN_LINE =
  /[ \t]*(?<ip>\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:.]{2,45}\]):(?<port>\d{1,6})[ \t]*(?=\n|$)/y;
/** `[level]ip:port@protocol#location`, the line of the free product. */
const FREE_LINE =
  /[ \t]*\[(?<level>[^\]\n]{0,100})\](?<ip>[^\s:]{1,45}|\[[0-9a-fA-F:.]{2,45}\]):(?<port>\d{1,6})@(?<protocol>\w{1,16})#(?<adr>[^\n]*)(?=\n|$)/y;
/** Longest text in which a code is looked for: an error is short. */
const MAX_ERROR_LENGTH = 2_000;

/**
 * Reads the lines of a Text answer.
 *
 * @param layout - the custom extraction format, checked before by `compileLayout`; a wrong one throws `TypeError`.
 * @returns undefined when at least half of the lines do not fit. No lines are a success without proxies.
 */
export function readTextLines(text: string, product: Product, layout?: string): Envelope | undefined {
  const lines = text.replace(/\r\n?/g, '\n');
  const { entries, strangers } = readRecords(lines, recordReader(product, layout));
  // One bad line among good ones is a bad entry; mostly bad lines are some other text that happens to hold an address.
  if (entries.length <= strangers && strangers > 0) return undefined;
  const bad = new Array<RawFields>(strangers).fill({});
  return { code: SUCCESS, message: '', counters: [], entries: [...entries, ...bad] };
}

/** Reads the code out of a short text: a labelled one, or one that this operation can answer with, standing alone. */
export function readTextCode(text: string, product: Product): Envelope | undefined {
  if (text.length > MAX_ERROR_LENGTH) return undefined;
  const labelled = /\bcode\b\W{1,4}(\d{5})\b/i.exec(text)?.[1];
  const code = labelled ?? listedCode(text, OPERATIONS[product].number);
  return code === undefined ? undefined : { code, message: text, counters: [], entries: [] };
}

function recordReader(product: Product, layout: string | undefined): RecordReader {
  if (layout === undefined) return lineReader(product === 'free' ? FREE_LINE : PLAIN_LINE);
  const { read, problem } = compileLayout(product, layout);
  if (read === undefined) throw new TypeError(`textLayout was not checked: ${problem}`);
  return read;
}

function lineReader(pattern: RegExp): RecordReader {
  return (text, from) => {
    pattern.lastIndex = from;
    const match = pattern.exec(text);
    return match === null ? undefined : { fields: { ...match.groups }, end: pattern.lastIndex };
  };
}

/** All records, and how many lines (or ends of lines) are none. */
function readRecords(text: string, read: RecordReader): { entries: RawFields[]; strangers: number } {
  const entries: RawFields[] = [];
  let strangers = 0;
  let at = 0;
  while (at < text.length) {
    const record = read(text, at);
    if (record !== undefined) {
      entries.push(record.fields);
      at = record.end;
    } else {
      const lineEnd = text.indexOf('\n', at);
      const end = lineEnd < 0 ? text.length : lineEnd + 1;
      if (text.slice(at, end).trim() !== '') strangers += 1;
      at = end;
    }
  }
  return { entries, strangers };
}

function listedCode(text: string, operation: OperationNumber): string | undefined {
  // A port after an address is no code, whatever its number.
  const bare = text.replace(/\d{1,3}(?:\.\d{1,3}){3}\W{1,3}\d{1,5}\b/g, ' ');
  const codes = bare.match(/\b\d{5}\b/g) ?? [];
  return codes.find((code) => Object.hasOwn(CODES[operation], code));
}
