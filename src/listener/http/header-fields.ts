/**
 * What an HTTP message's own fields say about where it goes and where it ends, and which of them may go on.
 *
 * Pure. Works on fields as they came: order, letter case and duplicates are kept. RFC 9110 §7.6 (what a proxy
 * forwards), RFC 9112 §6 (framing); where the RFC lets a recipient be lenient about framing, this is not.
 */
import { NoriaError } from '../../core/faults.ts';
import { formatHostPort, type HostPort, parseHostPort } from '../../core/host-port.ts';

/** A field's name in its own letter case, and its value in Latin-1 without white space around it. */
export type HeaderField = readonly [name: string, value: string];

/** Where a body ends. */
export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  /** Answers alone: at the end of the connection. */
  | { readonly kind: 'until-close' };

/** For one connection only, whatever Connection says. Those named Proxy-… and X-Noria-… never go on either. */
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'te', 'transfer-encoding', 'upgrade']);
/** Meant for the far end: a Connection field that names one of them is not believed (RFC 9110 §7.6.1). */
const NEVER_NOMINATED = new Set([
  'authorization',
  'cache-control',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'date',
  'expect',
  'host',
  'location',
  'origin',
  'range',
  'set-cookie',
  'trailer',
  'www-authenticate',
]);
/** They would change what the message is, and come too late for that (RFC 9110 §6.5.1). */
const NEVER_TRAILING = new Set([
  'authorization',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'expect',
  'host',
  'set-cookie',
  'trailer',
]);
const DEFAULT_HTTP_PORT = 80;
const ABSOLUTE_URL = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)([^#]*)$/;
/** What a proxy is asked for by mistake, or by someone who takes it for a web site. */
const ORIGIN_FORM = /^[/*]/;

/** Pairs out of node:http's flat list. */
export function pairFields(raw: readonly string[]): HeaderField[] {
  const fields: HeaderField[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) fields.push([raw[at] ?? '', raw[at + 1] ?? '']);
  return fields;
}

/** Every value of the field, in order. `name` in lower case. */
export function fieldValues(fields: readonly HeaderField[], name: string): string[] {
  const values: string[] = [];
  for (const [other, value] of fields) {
    // The lengths first: this runs several times for each request.
    if (other.length === name.length && other.toLowerCase() === name) values.push(value);
  }
  return values;
}

/**
 * Where a request's body ends.
 *
 * @returns `bad-request` where two readers could differ (two lengths, a length and a coding, a coding in HTTP/1.0, a
 *   value that is no number), `not-implemented` for another coding than chunked.
 */
export function requestFraming(fields: readonly HeaderField[], minorVersion: number): Framing | NoriaError {
  return framing(fields, minorVersion) ?? { kind: 'none' };
}

/** Refuses what is not HTTP/1.x: node:http reads a line without a version as HTTP/0.9, and takes HTTP/2.0 as well. */
export function checkHttpVersion(majorVersion: number): NoriaError | undefined {
  if (majorVersion === 1) return undefined;
  const context = { reason: 'Its request line ends neither in HTTP/1.1 nor in HTTP/1.0.' };
  return new NoriaError('bad-request', 'a request of another version than HTTP/1', { context });
}

/**
 * Where an answer's body ends.
 *
 * @param method - of the request: HEAD has no body.
 * @returns the same errors as `requestFraming`, about an answer that must not be believed.
 */
export function responseFraming(
  method: string,
  status: number,
  fields: readonly HeaderField[],
  minorVersion: number,
): Framing | NoriaError {
  const told = framing(fields, minorVersion);
  if (told instanceof NoriaError) return told;
  if (method === 'HEAD' || status < 200 || status === 204 || status === 304) return { kind: 'none' };
  return told ?? { kind: 'until-close' };
}

function framing(fields: readonly HeaderField[], minorVersion: number): Framing | NoriaError | undefined {
  const lengths = fieldValues(fields, 'content-length');
  const codings = fieldValues(fields, 'transfer-encoding');
  if (codings.length > 0) {
    if (lengths.length > 0) return new NoriaError('bad-request', 'both Content-Length and Transfer-Encoding');
    if (minorVersion === 0) return new NoriaError('bad-request', 'Transfer-Encoding in HTTP/1.0');
    if (codings.length > 1) return new NoriaError('bad-request', 'two Transfer-Encoding fields');
    if (codings[0]?.toLowerCase() === 'chunked') return { kind: 'chunked' };
    return new NoriaError('not-implemented', 'a transfer coding other than chunked');
  }
  const [length] = lengths;
  if (length === undefined) return undefined;
  if (lengths.length > 1) return new NoriaError('bad-request', 'two Content-Length fields');
  const bytes = /^\d{1,16}$/.test(length) ? Number(length) : Number.NaN;
  if (!Number.isSafeInteger(bytes)) return new NoriaError('bad-request', 'Content-Length is not a number');
  return { kind: 'length', bytes };
}

/** An absolute-form request target, taken apart. */
export interface AbsoluteTarget {
  readonly target: HostPort;
  /** Host's value: the canonical host, and the port where it is not 80. */
  readonly authority: string;
  /** Path and query exactly as the client wrote them; `/` when there are none, `*` for such an OPTIONS. */
  readonly path: string;
}

/** Reads `http://host[:port]/path?query`; the error says what a proxy wants instead. */
export function parseAbsoluteTarget(method: string, url: string): AbsoluteTarget | NoriaError {
  if (ORIGIN_FORM.test(url)) {
    return new NoriaError('bad-request', 'a request for noria itself, in origin form', {
      context: {
        reason: 'This port is noria, a forward proxy, and not a web site: set it as the proxy of a client.',
      },
    });
  }
  const [, scheme = '', authority = '', rest = ''] = ABSOLUTE_URL.exec(url) ?? [];
  if (scheme.toLowerCase() === 'https') {
    return new NoriaError('not-implemented', 'an https URL in absolute form', {
      context: { reason: 'An https URL goes through a proxy by CONNECT, not in absolute form.' },
    });
  }
  if (scheme.toLowerCase() !== 'http')
    return new NoriaError('bad-request', 'not an http URL in absolute form');
  const target = parseHostPort(authority, DEFAULT_HTTP_PORT);
  if (target === undefined) return new NoriaError('bad-request', 'the URL names no host and port');
  const bare = method === 'OPTIONS' ? '*' : '/';
  const path = rest === '' ? bare : rest.startsWith('/') ? rest : `/${rest}`;
  return { target, authority: hostValue(target), path };
}

function hostValue({ host, port }: HostPort): string {
  if (port !== DEFAULT_HTTP_PORT) return formatHostPort(host, port);
  return host.includes(':') ? `[${host}]` : host;
}

/**
 * The fields of a message that go on: everything but what is for one connection, what Connection nominates, Proxy-…
 * and X-Noria-….
 *
 * @param body - how the message goes on. Where it is chunked, Transfer-Encoding stays in its place, and Trailer too.
 */
export function endToEndFields(fields: readonly HeaderField[], body: Framing): HeaderField[] {
  const nominated = nominatedNames(fields);
  const chunked = body.kind === 'chunked';
  return fields.filter(([name]) => {
    const lower = name.toLowerCase();
    if (lower === 'transfer-encoding' || lower === 'trailer') return chunked;
    return !HOP_BY_HOP.has(lower) && !isPrivate(lower) && !nominated.has(lower);
  });
}

/** The same for a request to change the protocol, or the 101 that grants it: Upgrade stays, and Connection says just that. */
export function upgradeFields(fields: readonly HeaderField[]): HeaderField[] {
  const nominated = nominatedNames(fields);
  let connections = 0;
  return fields.flatMap(([name, value]): HeaderField[] => {
    const lower = name.toLowerCase();
    if (lower === 'upgrade') return [[name, value]];
    if (lower === 'connection') {
      connections += 1;
      return connections === 1 ? [[name, 'Upgrade']] : [];
    }
    return HOP_BY_HOP.has(lower) || isPrivate(lower) || nominated.has(lower) ? [] : [[name, value]];
  });
}

/** Fields of a trailer section that go on. */
export function endToEndTrailers(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => {
    const lower = name.toLowerCase();
    return !HOP_BY_HOP.has(lower) && !NEVER_TRAILING.has(lower) && !isPrivate(lower);
  });
}

/** `fields` with Host as the URL has it: in the client's place, or first when the client sent none. */
export function withHost(fields: readonly HeaderField[], authority: string): HeaderField[] {
  if (!fields.some(([name]) => name.toLowerCase() === 'host')) return [['Host', authority], ...fields];
  return fields.map(([name, value]) => (name.toLowerCase() === 'host' ? [name, authority] : [name, value]));
}

/**
 * The fields of a request one hop further on: Max-Forwards of an OPTIONS or TRACE counts down (RFC 9110 §7.6.2).
 *
 * @returns undefined where it has come to 0, and the request may go no further.
 */
export function decrementMaxForwards(
  method: string,
  fields: readonly HeaderField[],
): readonly HeaderField[] | undefined {
  if (method !== 'OPTIONS' && method !== 'TRACE') return fields;
  const limits = fieldValues(fields, 'max-forwards');
  if (limits.length === 0) return fields;
  if (limits.some((value) => /^0+$/.test(value))) return undefined;
  return fields.map(([name, value]): HeaderField => {
    const counts = name.toLowerCase() === 'max-forwards' && /^\d+$/.test(value);
    return [name, counts ? String(BigInt(value) - 1n) : value];
  });
}

/** Whether a Connection field holds this option. `option` in lower case. */
export function hasConnectionOption(fields: readonly HeaderField[], option: string): boolean {
  return fieldValues(fields, 'connection').some((value) => options(value).includes(option));
}

/** `Name: value` lines, each ended, as they stand on the wire. */
export function formatFields(fields: readonly HeaderField[]): string {
  let text = '';
  for (const [name, value] of fields) text += `${name}: ${value}\r\n`;
  return text;
}

function isPrivate(lowerName: string): boolean {
  return lowerName.startsWith('proxy-') || lowerName.startsWith('x-noria-');
}

function nominatedNames(fields: readonly HeaderField[]): ReadonlySet<string> {
  const names = fieldValues(fields, 'connection').flatMap(options);
  return new Set(names.filter((name) => !NEVER_NOMINATED.has(name)));
}

function options(value: string): string[] {
  return value.split(',').map((option) => option.trim().toLowerCase());
}
