/**
 * Header fields of HTTP/1 messages: parses (RFC 9112 §5), formats, selects those that a proxy forwards (RFC 9110
 * §7.6.1), and determines the framing of the body (RFC 9112 §6). The input is untrusted: no two quantifiers of a pattern
 * match the same character. Ambiguous framing is rejected even where the RFC allows a repair: two recipients that
 * disagree about the end of a message make request smuggling possible.
 */
import { NoriaError } from '../../core/faults.ts';
import type { MemberConnection } from '../../dialer/contract.ts';
import { badRequest } from '../refusal.ts';

/** The name as written; the value in Latin-1 without surrounding white space. */
export type HeaderField = readonly [name: string, value: string];

/**
 * White space before the colon is removed from a response and an error in a request, where it enables smuggling (RFC
 * 9112 §5.1).
 */
export type FieldSyntax = 'request' | 'response';

/** Sticky patterns match at `lastIndex`, so no line has to be copied first. */
const FIELD_LINES: Readonly<Record<FieldSyntax, RegExp>> = {
  request: /([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)\r\n/y,
  response: /([!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t ]*:([\t\x20-\x7e\x80-\xff]*)\r\n/y,
};
/** Tab and space. */
const SPACES: ReadonlySet<number> = new Set([0x09, 0x20]);
const NO_VALUES: readonly string[] = [];

/** From `start` to the end; each line ends in CR LF. @returns undefined if a line is invalid. */
export function parseFieldLines(text: string, start: number, syntax: FieldSyntax): HeaderField[] | undefined {
  const pattern = FIELD_LINES[syntax];
  const fields: HeaderField[] = [];
  for (let at = start; at < text.length; at = pattern.lastIndex) {
    pattern.lastIndex = at;
    const line = pattern.exec(text);
    if (line === null) return undefined;
    fields.push([line[1] ?? '', trimSpace(line[2] ?? '')]);
  }
  return fields;
}

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

export function connectionOptions(fields: readonly HeaderField[]): readonly string[] {
  const values = fieldValues(fields, 'connection');
  if (values.length === 0) return NO_VALUES;
  return values.flatMap((value) => value.split(',').map((option) => option.trim().toLowerCase()));
}

export function formatFields(fields: readonly HeaderField[]): string {
  let text = '';
  for (const [name, value] of fields) text += `${name}: ${value}\r\n`;
  return text;
}

function trimSpace(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && SPACES.has(value.charCodeAt(start))) start += 1;
  while (end > start && SPACES.has(value.charCodeAt(end - 1))) end -= 1;
  return value.slice(start, end);
}

/** What a client may know about its member connection. */
export function successHeaders(
  { member, exitIp, remainingMs, session }: Omit<MemberConnection['lease'], 'source'>,
  attempts: number,
): [string, string][] {
  const headers: [string, string][] = [
    ['X-Noria-Member', member],
    ['X-Noria-Attempts', String(attempts)],
  ];
  if (exitIp !== undefined) headers.push(['X-Noria-Exit', exitIp]);
  if (remainingMs !== undefined) {
    headers.push(['X-Noria-Expires-In', String(Math.max(0, Math.floor(remainingMs / 1000)))]);
  }
  if (session !== undefined) headers.push(['X-Noria-Session', encodeForHeader(session)]);
  return headers;
}

/** A session name starts with the user name, which may contain any letter. */
function encodeForHeader(text: string): string {
  return text.replaceAll(/[^\x21-\x24\x26-\x7e]+/gu, (unsafe) => encodeURIComponent(unsafe));
}

/** Always removed, with the fields that Connection names and all Proxy-… and X-Noria-… fields. */
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'te', 'transfer-encoding', 'upgrade']);
/** Never removed: otherwise Connection could make noria remove end-to-end fields (RFC 9110 §7.6.1). */
const NEVER_CONNECTION_OPTION = new Set(
  'authorization cache-control content-encoding content-length content-range content-type cookie date expect host location origin range set-cookie trailer www-authenticate'.split(
    ' ',
  ),
);
/** In a trailer section, they would change the meaning of the message too late (RFC 9110 §6.5.1). */
const NEVER_TRAILER = new Set(
  'authorization content-encoding content-length content-range content-type cookie expect host set-cookie trailer'.split(
    ' ',
  ),
);

/**
 * Framing fields become canonical, so that every recipient interprets them alike. @param body - of the forwarded
 * message.
 */
export function endToEndFields(fields: readonly HeaderField[], body: Framing): HeaderField[] {
  const nominated = nominatedFields(fields);
  const chunked = body.kind === 'chunked';
  const kept: HeaderField[] = [];
  for (const field of fields) {
    const lower = field[0].toLowerCase();
    if (lower === 'content-length') kept.push([field[0], String(Number(field[1]))]);
    else if (lower === 'transfer-encoding' && chunked) kept.push([field[0], 'chunked']);
    else if (lower === 'trailer' && !chunked) continue;
    else if (!HOP_BY_HOP.has(lower) && !isProxyField(lower) && !nominated.has(lower)) kept.push(field);
  }
  return kept;
}

/**
 * For a request to switch protocols, or its 101. Content-Length goes: some clients would read the first bytes of the
 * new protocol as a body (RFC 9110 §8.6).
 */
export function upgradeFields(fields: readonly HeaderField[]): HeaderField[] {
  const nominated = nominatedFields(fields);
  let connections = 0;
  return fields.flatMap(([name, value]): HeaderField[] => {
    const lower = name.toLowerCase();
    if (lower === 'upgrade') return [[name, value]];
    if (lower === 'connection') {
      connections += 1;
      return connections === 1 ? [[name, 'Upgrade']] : [];
    }
    const isRemoved = HOP_BY_HOP.has(lower) || isProxyField(lower) || nominated.has(lower);
    return isRemoved || lower === 'content-length' ? [] : [[name, value]];
  });
}

export function endToEndTrailers(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => {
    const lower = name.toLowerCase();
    return !HOP_BY_HOP.has(lower) && !NEVER_TRAILER.has(lower) && !isProxyField(lower);
  });
}

function isProxyField(lowerName: string): boolean {
  return lowerName.startsWith('proxy-') || lowerName.startsWith('x-noria-');
}

function nominatedFields(fields: readonly HeaderField[]): ReadonlySet<string> {
  return new Set(connectionOptions(fields).filter((name) => !NEVER_CONNECTION_OPTION.has(name)));
}

export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  /** Responses only: the body ends with the connection. */
  | { readonly kind: 'until-close' };

/** @returns `bad-request` for ambiguous framing; `not-implemented` for a transfer coding other than chunked. */
export function requestFraming(fields: readonly HeaderField[], minorVersion: number): Framing | NoriaError {
  return declaredFraming(fields, minorVersion) ?? { kind: 'none' };
}

/** @param method - of the request: a response to HEAD has no body. */
export function responseFraming(
  method: string,
  status: number,
  fields: readonly HeaderField[],
  minorVersion: number,
): Framing | NoriaError {
  const declared = declaredFraming(fields, minorVersion);
  if (declared instanceof NoriaError) return declared;
  if (method === 'HEAD' || status < 200 || status === 204 || status === 304) return { kind: 'none' };
  return declared ?? { kind: 'until-close' };
}

export function isEmptyBody(framing: Framing): boolean {
  return framing.kind === 'none' || (framing.kind === 'length' && framing.bytes === 0);
}

function declaredFraming(
  fields: readonly HeaderField[],
  minorVersion: number,
): Framing | NoriaError | undefined {
  const lengths = fieldValues(fields, 'content-length');
  const codings = fieldValues(fields, 'transfer-encoding');
  if (codings.length > 0) {
    if (lengths.length > 0) return badRequest('the message has both Content-Length and Transfer-Encoding');
    if (minorVersion === 0) return badRequest('Transfer-Encoding is not allowed in HTTP/1.0');
    if (codings.length > 1) return badRequest('the message has more than one Transfer-Encoding field');
    if (codings[0]?.toLowerCase() === 'chunked') return { kind: 'chunked' };
    return new NoriaError('not-implemented', 'the transfer coding is not chunked');
  }
  const [length] = lengths;
  if (length === undefined) return undefined;
  if (lengths.length > 1) return badRequest('the message has more than one Content-Length field');
  const bytes = /^\d{1,16}$/.test(length) ? Number(length) : Number.NaN;
  if (!Number.isSafeInteger(bytes)) return badRequest('Content-Length is not a number');
  return { kind: 'length', bytes };
}
