/**
 * Parses the head of an HTTP/1 request (RFC 9112 §2 to §5): lines end in CR LF, none is folded, no white space before
 * a colon. Any token is a method. A property test compares this parser with node:http.
 */
import { NoriaError } from '../../core/faults.ts';
import { badRequest } from '../refusal.ts';
import {
  connectionOptions,
  type Framing,
  fieldValues,
  type HeaderField,
  parseFieldLines,
  requestFraming,
} from './header-fields.ts';

export interface RequestHead {
  readonly method: string;
  /** The request target as received, in Latin-1. */
  readonly target: string;
  readonly minorVersion: number;
  readonly fields: readonly HeaderField[];
  /** An error means that the end of the request is unclear: the bytes after it must not be read as a request. */
  readonly framing: Framing | NoriaError;
  /** False if the end of the request is unclear (RFC 9112 §6.1, §6.3). */
  readonly keepAlive: boolean;
}

export const MAX_REQUEST_HEAD_BYTES = 16 * 1024;

const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([\x21-\x7e\x80-\xff]+) +HTTP\/(\d)\.(\d)\r\n/;
const REQUEST_LINE_PREFIX =
  /^(?:\r|[!#$%&'*+.^_`|~0-9A-Za-z-]+(?: +(?:[\x21-\x7e\x80-\xff]+(?: +(?:H|HT|HTT|HTTP|HTTP\/[\d.]{0,3}\r?)?)?)?)?)?$/;
const HEAD_END = Buffer.from('\r\n\r\n', 'latin1');
const BARE_LF = /(?:^|[^\r])\n/;
const TLS_HANDSHAKE = '\x16';
/** Matches a PROXY protocol header. The parser has already skipped the two empty lines with which version 2 begins. */
const PROXY_PROTOCOL = /^(?:PROXY (?:TCP[46]|UNKNOWN)|\0\r\nQUIT\n)/;
const CR = 0x0d;
const LF = 0x0a;

/**
 * @returns undefined if the head is incomplete; `bad-request`, `uri-too-long` or `head-too-large` if it cannot become
 * one.
 */
export function parseRequestHead(
  bytes: Buffer,
): { readonly head: RequestHead; readonly bytes: number } | NoriaError | undefined {
  const start = emptyLinesBytes(bytes);
  const end = bytes.indexOf(HEAD_END, start);
  if ((end < 0 ? bytes.length : end + 4) - start > MAX_REQUEST_HEAD_BYTES) return tooLarge(bytes, start);
  if (end < 0) return checkPrefix(bytes.toString('latin1', start));
  const text = bytes.toString('latin1', start, end + 2);
  const line = REQUEST_LINE.exec(text);
  const fields = line === null ? undefined : parseFieldLines(text, line[0].length, 'request');
  if (line === null || fields === undefined) return badRequest(whyMalformed(text));
  const [, method = '', target = '', major, minor] = line;
  const minorVersion = Number(minor);
  // node:http would also accept HTTP/2.0, and a line without version as HTTP/0.9.
  const framing =
    major === '1'
      ? requestFraming(fields, minorVersion)
      : badRequest('the request line does not end in HTTP/1.1 or HTTP/1.0');
  const options = connectionOptions(fields);
  const persistent = !options.includes('close') && (minorVersion > 0 || options.includes('keep-alive'));
  const keepAlive = persistent && !(framing instanceof NoriaError);
  return { head: { method, target, minorVersion, fields, framing, keepAlive }, bytes: end + 4 };
}

/** An HTTP/1.0 client cannot ask for a 100 response (RFC 9110 §10.1.1). */
export function expectsContinue({ minorVersion, fields }: RequestHead): boolean {
  return minorVersion > 0 && fieldValues(fields, 'expect').length > 0;
}

/** Empty lines before a request are ignored (RFC 9112 §2.2). */
export function emptyLinesBytes(bytes: Buffer): number {
  let start = 0;
  while (bytes[start] === CR && bytes[start + 1] === LF) start += 2;
  return start;
}

/** Rejects an incomplete head early, so that a client of another protocol gets an answer instead of a timeout. */
function checkPrefix(text: string): NoriaError | undefined {
  const lineEnd = text.indexOf('\r\n');
  const plausible =
    lineEnd < 0 ? REQUEST_LINE_PREFIX.test(text) : REQUEST_LINE.test(text.slice(0, lineEnd + 2));
  return plausible && !BARE_LF.test(text) ? undefined : badRequest(whyMalformed(text));
}

function tooLarge(bytes: Buffer, start: number): NoriaError {
  const lineEnd = bytes.indexOf('\r\n', start, 'latin1');
  const isLine = lineEnd < 0 || lineEnd - start > MAX_REQUEST_HEAD_BYTES;
  const code = isLine ? 'uri-too-long' : 'head-too-large';
  return new NoriaError(
    code,
    `the request ${isLine ? 'line' : 'head'} is longer than ${MAX_REQUEST_HEAD_BYTES} bytes`,
  );
}

function whyMalformed(text: string): string {
  if (text.startsWith(TLS_HANDSHAKE))
    return 'the client starts a TLS handshake, but this port expects HTTP or SOCKS: write http:// instead of https:// in the proxy URL of the client';
  if (PROXY_PROTOCOL.test(text))
    return 'the connection starts with a PROXY protocol header, which noria does not support: turn it off in the load balancer';
  if (BARE_LF.test(text)) return 'a line of the request head ends in LF instead of CR LF';
  return REQUEST_LINE.test(text)
    ? 'a header line has no colon, an invalid name, white space before the colon, a control character or a continuation line'
    : 'the first line is not METHOD TARGET HTTP/1.1, separated by spaces';
}
