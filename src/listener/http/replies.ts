/**
 * noria's own HTTP replies. A body has texts of the fault table
 * and noria's own reasons and numbers, never text from outside. Retry-After: RFC 9110; Proxy-Status: RFC 9209.
 */
import { faultTexts, type Language, languageOf, translate } from '../../core/chinese.ts';
import { FAULTS, type Fault, type FaultCode } from '../../core/faults.ts';
import type { OpenRequest } from '../../core/request-record.ts';
import type { LeaseRefusal } from '../../pool/lease.ts';
import type { Refusal } from '../refusal.ts';
import { fieldValues, formatFields, type HeaderField } from './header-fields.ts';

export interface HttpReply {
  readonly status: number;
  readonly reasonPhrase: string;
  readonly headers: [string, string][];
  readonly body: string;
}

/**
 * node:http has these, too, but importing it also loads Node's fetch: each worker would start 25 ms later and take 4
 * MiB more.
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

/** If the pool is empty and no draw is planned, the operator has to act first. */
const NO_DRAW_RETRY_MS = 60_000;

/**
 * @param fields - of the request; its Accept-Language chooses the language of the body.
 * @param record - of the request; it has the members that were tried.
 */
export function refusalReply(
  refusal: Refusal,
  fields: readonly HeaderField[] = [],
  record?: Pick<OpenRequest, 'attempts'>,
): HttpReply {
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
  const tried = new Set(record?.attempts.map(({ member }) => member));
  if (tried.size > 0) headers.push(['X-Noria-Tried', [...tried].join(', ')]);
  // Only if the same request may succeed later.
  const retryAfterMs = refusal.retryAfterMs ?? (code === 'pool-empty' ? NO_DRAW_RETRY_MS : undefined);
  if (retryAfterMs !== undefined && fault.retry === 'later') {
    headers.push(['Retry-After', String(wholeSeconds(retryAfterMs))]);
  }
  if (status === 407) headers.push(['Proxy-Authenticate', 'Basic realm="noria", charset="UTF-8"']);
  return { status, reasonPhrase: REASON_PHRASES[status] ?? '', headers, body };
}

export function formatReply(
  { status, reasonPhrase, headers, body }: HttpReply,
  keepAlive: boolean,
  withBody = true,
): string {
  const fields = formatFields([...headers, ['Connection', keepAlive ? 'keep-alive' : 'close']]);
  return `HTTP/1.1 ${status} ${reasonPhrase}\r\n${fields}\r\n${withBody ? body : ''}`;
}

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

/** noria's name, a registered error token, and the code as details (RFC 9209 §2). */
function proxyStatus(refusal: Refusal, code: FaultCode, fault: Fault): string {
  const refusedByTarget = refusal.code === 'target-unreachable' && refusal.targetRefused;
  const token = refusedByTarget ? 'connection_refused' : (fault.proxyStatus ?? 'proxy_internal_error');
  return `noria; error=${token}; details="${code}"`;
}

function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
