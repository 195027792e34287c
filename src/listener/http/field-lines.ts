/**
 * Field lines of an HTTP message as they stand on the wire (RFC 9112 §5), read by hand: of a plain CONNECT, of an answer,
 * of a trailer section.
 *
 * Strict, and in time that grows with their length alone, whatever is in them: they come from strangers. So no two
 * quantifiers of a pattern can take the same character, and white space around a value is cut off without one.
 */
import type { HeaderField } from './header-fields.ts';

/** Starts where `lastIndex` says, so that no line has to be cut out first. */
const FIELD_LINE = /([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)\r\n/y;
const TAB = 0x09;
const SPACE = 0x20;

/** All lines of `text` from `start` on, each ended by CR LF; undefined when one of them is no field line. */
export function parseFieldLines(text: string, start: number): HeaderField[] | undefined {
  const fields: HeaderField[] = [];
  for (let at = start; at < text.length; at = FIELD_LINE.lastIndex) {
    FIELD_LINE.lastIndex = at;
    const [, name, value] = FIELD_LINE.exec(text) ?? [];
    if (name === undefined || value === undefined) return undefined;
    fields.push([name, withoutSpace(value)]);
  }
  return fields;
}

function withoutSpace(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isSpace(value.charCodeAt(start))) start += 1;
  while (end > start && isSpace(value.charCodeAt(end - 1))) end -= 1;
  return value.slice(start, end);
}

function isSpace(code: number): boolean {
  return code === SPACE || code === TAB;
}
