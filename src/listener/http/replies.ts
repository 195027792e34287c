/**
 * noria's own HTTP replies, and the X-Noria-… headers of successful responses. A body contains texts of the fault table
 * (core/faults.ts) and noria's own reasons and numbers, but no text from outside. Headers: RFC 9110 (Retry-After,
 * Proxy-Authenticate), RFC 7617 (Basic), RFC 9209 (Proxy-Status).
 */
import { faultTexts, type Language, languageOf, translate } from '../../core/chinese.ts';
import { FAULTS, type Fault, type FaultCode } from '../../core/faults.ts';
import type { MemberConnection } from '../../dialer/dial.ts';
import type { LeaseRefusal } from '../../pool/lease.ts';
import type { Refusal } from '../refusal.ts';
import { fieldValues, formatFields, type HeaderField } from './header-fields.ts';

/** A complete reply except the Connection header, which depends on the connection. */
export interface HttpReply {
  readonly status: number;
  readonly reasonPhrase: string;
  readonly headers: [string, string][];
  /** One paragraph of UTF-8 text that ends in a line feed; or empty. */
  readonly body: string;
}

/**
 * The reason phrases of the statuses in core/faults.ts. node:http has them, too, but importing it also loads Node's
 * fetch: every worker would start 25 ms later and take 4 MiB more memory.
 */
const REASON_PHRASES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  403: 'Forbidden',
  404: 'Not Found',
  407: 'Proxy Authentication Required',
  408: 'Request Timeout',
  414: 'URI Too Long',
  417: 'Expectation Failed',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  501: 'Not Implemented',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};

/**
 * Retry-After if the pool is empty and no draw is planned. A shorter time would not help, because the operator has to
 * act first.
 */
const NO_DRAW_RETRY_MS = 60_000;

/**
 * The reply to a refused request. A code without an HTTP status is sent as `internal`.
 * @param fields - of the request; its Accept-Language chooses the language of the body.
 */
export function refusalReply(refusal: Refusal, fields: readonly HeaderField[] = []): HttpReply {
  const language = languageOf(fieldValues(fields, 'accept-language')[0]);
  const known: Fault = FAULTS[refusal.code];
  const code = known.http === undefined ? 'internal' : refusal.code;
  const fault: Fault = FAULTS[code];
  const status = fault.http ?? 500;
  const body = `${paragraph(refusal, code, language)}\n`;
  const headers: [string, string][] = [
    ['Content-Type', 'text/plain; charset=utf-8'],
    ['Content-Length', String(Buffer.byteLength(body))],
    ['Cache-Control', 'no-store'],
    ['X-Noria-Error', code],
    ['Proxy-Status', proxyStatus(refusal, code, fault)],
  ];
  if (refusal.attempts !== undefined && refusal.attempts > 0) {
    headers.push(['X-Noria-Attempts', String(refusal.attempts)]);
  }
  // The pool may compute a retry time for every refusal. The reply contains it only if the same request
  // may succeed later.
  const retryAfterMs = refusal.retryAfterMs ?? (code === 'pool-empty' ? NO_DRAW_RETRY_MS : undefined);
  if (retryAfterMs !== undefined && fault.retry === 'later') {
    headers.push(['Retry-After', String(wholeSeconds(retryAfterMs))]);
  }
  if (status === 407) headers.push(['Proxy-Authenticate', 'Basic realm="noria", charset="UTF-8"']);
  return { status, reasonPhrase: REASON_PHRASES[status] ?? '', headers, body };
}

/**
 * What a client may know about its member connection: X-Noria-Member, -Attempts and, where known, -Exit, -Expires-In,
 * -Session.
 */
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

/** A complete refusal as the text of a response. Used for CONNECT, and if noria could not read the request. */
export function formatRefusal(
  refusal: Refusal,
  keepAlive: boolean,
  fields: readonly HeaderField[] = [],
): string {
  const { status, reasonPhrase, headers, body } = refusalReply(refusal, fields);
  const head = formatFields([...headers, ['Connection', keepAlive ? 'keep-alive' : 'close']]);
  return `HTTP/1.1 ${status} ${reasonPhrase}\r\n${head}\r\n${body}`;
}

/** Says what happened, why, and what to do. */
function paragraph(refusal: Refusal, code: FaultCode, language: Language): string {
  const reason = refusal.reason === undefined || refusal.reason === '' ? [] : [sentence(refusal.reason)];
  const sources = FAULTS[code].retry === 'later' ? (refusal.sources ?? []).map(sourceSentence) : [];
  const { summary, advice } = faultTexts(code, language);
  const parts = [summary, ...[...reason, ...sources].map((text) => translate(text, language)), advice];
  return parts.join(language === 'en' ? ' ' : '').replaceAll(/\s+/g, ' ');
}

function sourceSentence(source: LeaseRefusal['sources'][number]): string {
  const reason = source.reason === '' ? '' : ` (${source.reason})`;
  const next = source.nextDrawMs === undefined ? '' : `, next draw in ${wholeSeconds(source.nextDrawMs)} s`;
  return `Source ${source.name}: ${source.state}${reason}${next}.`;
}

function sentence(text: string): string {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return ended.slice(0, 1).toUpperCase() + ended.slice(1);
}

/** The Proxy-Status field (RFC 9209 §2): noria's name, a registered error token, and the code as details. */
function proxyStatus(refusal: Refusal, code: FaultCode, fault: Fault): string {
  const refusedByTarget = refusal.code === 'target-unreachable' && refusal.targetRefused;
  const token = refusedByTarget ? 'connection_refused' : (fault.proxyStatus ?? 'proxy_internal_error');
  return `noria; error=${token}; details="${code}"`;
}

/** Converts ms to whole seconds. The result is at least 1, because the client must not retry at once. */
function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/**
 * Percent-encodes characters that a header cannot contain. A session name starts with the user name, which may contain
 * any letter.
 */
function encodeForHeader(text: string): string {
  return text.replaceAll(/[^\x21-\x24\x26-\x7e]+/gu, (unsafe) => encodeURIComponent(unsafe));
}
