/**
 * What a client is told when it fails, and beside success: one table (core/faults.ts) for HTTP and SOCKS alike.
 *
 * Nothing here takes text from outside: bodies are the table's words, the pool's reasons and numbers. Fields:
 * RFC 9110 (Retry-After, Proxy-Authenticate), RFC 7617 (Basic), RFC 9209 (Proxy-Status).
 */
import { STATUS_CODES } from 'node:http';
import { FAULTS, type Fault, type FaultCode, type NoriaError } from '../../core/faults.ts';
import type { MemberConnection } from '../../dialer/dial.ts';
import type { SourceOutlook } from '../../pool/lease.ts';

/** Why a client gets no way. A DialFailure is one as it is. */
export interface Refusal {
  readonly code: FaultCode;
  /** In noria's own words, for the client. What quotes a client, a member or the service does not belong here. */
  readonly reason?: string;
  /** When trying again makes sense; told in whole seconds, rounded up. */
  readonly retryAfterMs?: number;
  /** What each source is waiting for; told where waiting helps. */
  readonly sources?: readonly SourceOutlook[];
  /** With `target-unreachable`: it refused, rather than being out of reach. */
  readonly targetRefused?: boolean;
  readonly attempts?: number;
}

/** A whole HTTP answer of noria's own. The caller adds Connection, which only it can know. */
export interface HttpReply {
  readonly status: number;
  readonly reasonPhrase: string;
  readonly headers: [string, string][];
  /** Plain ASCII or UTF-8 text: one paragraph, ended by a line feed. */
  readonly body: string;
}

/** When to come back to an empty pool for which no draw is planned: a person has to act first. */
const NO_DRAW_IN_SIGHT_MS = 60_000;
const SOCKS5_GENERAL_FAILURE = 0x01;
const SOCKS5_NOT_ALLOWED = 0x02;
const SOCKS5_CONNECTION_REFUSED = 0x05;

/** What a failed step says to the client: its code and, where one was computed, the time to wait. Never its message. */
export function refusedBy(error: NoriaError): Refusal {
  const retryAfterMs = error.context['retryAfterMs'];
  return typeof retryAfterMs === 'number' ? { code: error.code, retryAfterMs } : { code: error.code };
}

/** The answer to a failed HTTP request. A code for which no client was foreseen is told as `internal`. */
export function refusalReply(failure: Refusal): HttpReply {
  const known: Fault = FAULTS[failure.code];
  const code = known.http === undefined ? 'internal' : failure.code;
  const fault: Fault = FAULTS[code];
  const status = fault.http ?? 500;
  const body = `${paragraph(failure, fault)}\n`;
  const headers: [string, string][] = [
    ['Content-Type', 'text/plain; charset=utf-8'],
    ['Content-Length', String(Buffer.byteLength(body))],
    ['Cache-Control', 'no-store'],
    ['X-Noria-Error', code],
    ['Proxy-Status', proxyStatus(failure, code, fault)],
  ];
  if (failure.attempts !== undefined && failure.attempts > 0) {
    headers.push(['X-Noria-Attempts', String(failure.attempts)]);
  }
  // The pool computes a time and an outlook for each of its refusals; to some of them no waiting helps.
  const retryAfterMs = failure.retryAfterMs ?? (code === 'pool-empty' ? NO_DRAW_IN_SIGHT_MS : undefined);
  if (retryAfterMs !== undefined && fault.retry === 'later') {
    headers.push(['Retry-After', String(wholeSeconds(retryAfterMs))]);
  }
  if (status === 407) headers.push(['Proxy-Authenticate', 'Basic realm="noria", charset="UTF-8"']);
  return { status, reasonPhrase: STATUS_CODES[status] ?? '', headers, body };
}

/**
 * The reply of RFC 1928 §6 to a failed SOCKS5 request. Codes that fail the sub-negotiation instead (`auth` in the
 * table) come too late for it here, and become 0x02, not allowed.
 */
export function socks5ReplyCode(failure: Refusal): number {
  if (failure.code === 'target-unreachable' && failure.targetRefused) return SOCKS5_CONNECTION_REFUSED;
  const fault: Fault = FAULTS[failure.code];
  return fault.socks5 === 'auth' ? SOCKS5_NOT_ALLOWED : (fault.socks5 ?? SOCKS5_GENERAL_FAILURE);
}

/** What a client may know about the way it got: X-Noria-Member, -Attempts and, where known, -Exit, -Expires-In, -Session. */
export function successHeaders(way: MemberConnection): [string, string][] {
  const headers: [string, string][] = [
    ['X-Noria-Member', way.member],
    ['X-Noria-Attempts', String(way.attempts)],
  ];
  if (way.exitIp !== undefined) headers.push(['X-Noria-Exit', way.exitIp]);
  if (way.remainingMs !== undefined) {
    headers.push(['X-Noria-Expires-In', String(Math.max(0, Math.floor(way.remainingMs / 1000)))]);
  }
  if (way.session !== undefined) headers.push(['X-Noria-Session', headerSafe(way.session)]);
  return headers;
}

/** What happened, why, and what to do, as one paragraph. */
function paragraph(failure: Refusal, fault: Fault): string {
  const why = failure.reason === undefined || failure.reason === '' ? [] : [sentence(failure.reason)];
  const sources = fault.retry === 'later' ? (failure.sources ?? []).map(outlook) : [];
  const parts = [fault.says, ...why, ...sources, fault.advice];
  return parts.join(' ').replaceAll(/\s+/g, ' ');
}

function outlook(source: SourceOutlook): string {
  const reason = source.reason === '' ? '' : ` (${source.reason})`;
  const next = source.nextDrawMs === undefined ? '' : `, next draw in ${wholeSeconds(source.nextDrawMs)} s`;
  return `Source ${source.name}: ${source.state}${reason}${next}.`;
}

function sentence(text: string): string {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return ended.slice(0, 1).toUpperCase() + ended.slice(1);
}

/** RFC 9209 §2: who answers, the registered token, and our own code as details. */
function proxyStatus(failure: Refusal, code: FaultCode, fault: Fault): string {
  const refused = failure.code === 'target-unreachable' && failure.targetRefused;
  const token = refused ? 'connection_refused' : (fault.proxyStatus ?? 'proxy_internal_error');
  return `noria; error=${token}; details="${code}"`;
}

/** At least 1: a client told to come back at once would come back too early. */
function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/** Percent-encodes what cannot stand in a header. A session's name may hold its user's, and that any letter. */
function headerSafe(text: string): string {
  return text.replaceAll(/[^\x21-\x24\x26-\x7e]+/gu, (odd) => encodeURIComponent(odd));
}
