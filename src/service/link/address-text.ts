/**
 * Reads an entry that is text, in linear time: `ip:port`, `ip:port:user:password`, `user:password@ip:port` or
 * `user:password:ip:port`, with `scheme://` before and further fields after it; or a configured layout such as
 * `{ip}:{port},{seconds}`.
 */
import { oneLine, readIp } from '../fields.ts';

export interface AddressText {
  readonly scheme?: string;
  readonly ip: string;
  readonly port: string;
  readonly username?: string;
  readonly password?: string;
  readonly rest: readonly string[];
  /** The form of the address, for example `{username}:{password}@{ip}:{port}`, without the fields of `rest`. */
  readonly layout: string;
  readonly separator: string;
}

export type LayoutReader = (text: string) => ReadonlyMap<string, string> | undefined;

/** The maximum length of an entry in characters. noria ignores longer entries. */
const MAX_LENGTH = 600;
const IP = String.raw`(?<ip>\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:.]{2,45}\])`;
const PORT = String.raw`(?<port>\d{1,5})(?!\d)`;
const PART = String.raw`[^\s:@,;|/]{1,200}`;
const SCHEME = `(?:(?<scheme>[a-zA-Z][a-zA-Z0-9]{2,9})://)?`;
/** A password before an `@` may contain any character except white space. */
const BEFORE = String.raw`(?:(?<user>${PART}):(?<pass>[^\s]{1,255})@|(?<user2>${PART}):(?<pass2>${PART}):)?`;
const AFTER = String.raw`(?::(?<user3>${PART}):(?<pass3>[^\s,;|]{1,255}))?`;
const COLON_ADDRESS = new RegExp(`^${SCHEME}${BEFORE}${IP}:${PORT}${AFTER}`);
/** Matches an address whose port does not follow a colon: `192.0.2.1,8000`. */
const SPACED_ADDRESS = new RegExp(String.raw`^${IP}[ \t]*[ \t,;|][ \t]*${PORT}`);
const COLON_START = /\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}(?!\d)|\[[0-9a-fA-F:.]{2,45}\]:\d{1,5}(?!\d)/g;
const RECORD_SEPARATOR = /[\s,;|]/;
const LINE = /\r\n?|\n|<br\s{0,3}\/?>/i;
const STARTS_WITH_MOMENT = /^\d{4}[-/]\d/;
const TAG = /\{([^{}]*)\}/;

export function readAddressText(text: string): AddressText | undefined {
  const entry = text.trim();
  if (entry.length > MAX_LENGTH || LINE.test(entry)) return undefined;
  const match = COLON_ADDRESS.exec(entry) ?? SPACED_ADDRESS.exec(entry);
  const { ip, port, scheme, ...login } = match?.groups ?? {};
  if (match === null || ip === undefined || port === undefined || readIp(ip) === undefined) return undefined;
  const tail = entry.slice(match[0].length);
  if (tail !== '' && !/^[\s,;|#@]/.test(tail)) return undefined;
  const username = login['user'] ?? login['user2'] ?? login['user3'];
  const password = login['pass'] ?? login['pass2'] ?? login['pass3'];
  return {
    ip,
    port,
    ...(scheme === undefined ? {} : { scheme }),
    ...(username === undefined || password === undefined ? {} : { username, password }),
    rest: fieldsOf(tail),
    layout: layoutOf(match[0], match.groups ?? {}),
    separator: tail.charAt(0),
  };
}

/** A line may contain several entries. Stops at `max + 1`: the caller then knows that there are more than `max`. */
export function textEntries(text: string, max: number): string[] {
  const entries: string[] = [];
  for (const line of text.split(LINE)) {
    for (const entry of entriesOfLine(line.trim())) {
      if (entry !== '') entries.push(entry);
      if (entries.length > max) return entries;
    }
  }
  return entries;
}

export function layoutProblem(layout: string): string | undefined {
  const parts = layout.split(/\{[^{}]*\}/);
  if (parts.length === 1) return 'contains no field in braces, such as {ip}:{port}';
  if (/[{}]/.test(parts.join(''))) return 'has a brace without its partner';
  if (/\{\s*\}/.test(layout)) return 'has a field without a name';
  if (parts.slice(1, -1).includes('')) return 'has two fields without text between them';
  return undefined;
}

export function compileEntryLayout(layout: string): LayoutReader {
  const parts = layout.split(TAG); // the parts alternate: literal, name, literal, name, …, literal
  return (text) => {
    const fields = new Map<string, string>();
    if (text.length > MAX_LENGTH || !text.startsWith(parts[0] ?? '')) return undefined;
    let at = (parts[0] ?? '').length;
    for (let index = 1; index < parts.length; index += 2) {
      const literal = parts[index + 1] ?? '';
      // The colons inside the brackets of an IPv6 address do not end the field.
      const from = text[at] === '[' ? Math.max(at, text.indexOf(']', at)) : at;
      const end = literal === '' ? text.length : text.indexOf(literal, from);
      if (end < 0) return undefined;
      fields.set(parts[index] ?? '', text.slice(at, end).trim());
      at = end + literal.length;
    }
    return fields;
  };
}

export function fillLayout(layout: string, read: (field: string) => unknown): string | undefined {
  let isComplete = true;
  const text = layout.replace(/\{([^{}]*)\}/g, (_, field: string) => {
    const value = read(field);
    if (typeof value === 'string' || typeof value === 'number') return String(value).trim();
    isComplete = false;
    return '';
  });
  return isComplete ? oneLine(text) : undefined;
}

function* entriesOfLine(line: string): Generator<string> {
  let from = 0;
  let previousEnd = 0;
  for (const { index, 0: address } of line.matchAll(COLON_START)) {
    const start = recordStart(line, index, previousEnd);
    if (previousEnd > 0) {
      yield trimSeparators(line.slice(from, start));
      from = start;
    }
    previousEnd = index + address.length;
  }
  yield previousEnd === 0 ? line : trimSeparators(line.slice(from));
}

function recordStart(line: string, at: number, previousEnd: number): number {
  let start = at;
  while (start > previousEnd && !RECORD_SEPARATOR.test(line.charAt(start - 1))) start -= 1;
  return start;
}

/** Trims by index: a pattern that ends in `$` would try each separator inside the text and take quadratic time. */
function trimSeparators(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && RECORD_SEPARATOR.test(text.charAt(start))) start += 1;
  while (end > start && RECORD_SEPARATOR.test(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function fieldsOf(tail: string): string[] {
  return tail
    .split(/[,;|\t#@]/)
    .map((field) => field.trim())
    .filter((field) => field !== '')
    .flatMap((field) => (STARTS_WITH_MOMENT.test(field) ? [field] : field.split(/ +/)));
}

function layoutOf(address: string, groups: Readonly<Record<string, string | undefined>>): string {
  const { scheme, user, user2, user3, ip = '', port = '' } = groups;
  const between = address.slice(address.lastIndexOf(ip) + ip.length).slice(0, 1);
  const core = `{ip}${between === '' ? ':' : between}{port}`;
  const start = scheme === undefined ? '' : '{protocol}://';
  if (user !== undefined) return `${start}{username}:{password}@${core}`;
  if (user2 !== undefined) return `${start}{username}:{password}:${core}`;
  return `${start}${core}${user3 === undefined || port === '' ? '' : ':{username}:{password}'}`;
}
