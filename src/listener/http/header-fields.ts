/**
 * Header fields of HTTP/1 messages: parses (RFC 9112 §5), finds and formats them. Order, letter case and duplicates are
 * kept. The input is untrusted, so the parser is strict, and its time grows linearly with the input. Therefore no two
 * quantifiers of a pattern match the same character, and white space around a value is trimmed without a pattern.
 */

/** The name in its original letter case; the value in Latin-1 without surrounding white space. */
export type HeaderField = readonly [name: string, value: string];

/**
 * In a response, white space between a name and its colon is removed. In a request it is an error, because it enables
 * request smuggling (RFC 9112 §5.1).
 */
export type FieldSyntax = 'request' | 'response';

/** Sticky patterns match at `lastIndex`, so no line has to be copied first. */
const FIELD_LINES: Readonly<Record<FieldSyntax, RegExp>> = {
  request: /([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)\r\n/y,
  response: /([!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t ]*:([\t\x20-\x7e\x80-\xff]*)\r\n/y,
};
const TAB = 0x09;
const SPACE = 0x20;
const NO_VALUES: readonly string[] = [];

/**
 * Parses the field lines of `text` from `start` to its end. Each line must end in CR LF. Returns undefined if a line is
 * invalid.
 */
export function parseFieldLines(text: string, start: number, syntax: FieldSyntax): HeaderField[] | undefined {
  const pattern = FIELD_LINES[syntax];
  const fields: HeaderField[] = [];
  for (let at = start; at < text.length; at = pattern.lastIndex) {
    pattern.lastIndex = at;
    const line = pattern.exec(text);
    const name = line?.[1];
    const value = line?.[2];
    if (name === undefined || value === undefined) return undefined;
    fields.push([name, trimSpace(value)]);
  }
  return fields;
}

/**
 * All values of a field, in order.
 * @param name - in lower case.
 */
export function fieldValues(fields: readonly HeaderField[], name: string): readonly string[] {
  let values: string[] | undefined;
  for (const field of fields) {
    const other = field[0];
    // Compares the lengths first: `toLowerCase` is slow, and this loop runs several times for each request.
    if (other.length !== name.length || other.toLowerCase() !== name) continue;
    values ??= [];
    values.push(field[1]);
  }
  return values ?? NO_VALUES;
}

/** The comma-separated options of all Connection fields, in lower case. */
export function connectionOptions(fields: readonly HeaderField[]): readonly string[] {
  const values = fieldValues(fields, 'connection');
  if (values.length === 0) return NO_VALUES;
  return values.flatMap((value) => value.split(',').map((option) => option.trim().toLowerCase()));
}

/** Formats fields as `Name: value` lines, each with its CR LF. */
export function formatFields(fields: readonly HeaderField[]): string {
  let text = '';
  for (const [name, value] of fields) text += `${name}: ${value}\r\n`;
  return text;
}

function trimSpace(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isSpace(value.charCodeAt(start))) start += 1;
  while (end > start && isSpace(value.charCodeAt(end - 1))) end -= 1;
  return value.slice(start, end);
}

function isSpace(code: number): boolean {
  return code === SPACE || code === TAB;
}
