/**
 * What answers of all formats share: the text of the body, the code, and the error for a body that is not an answer.
 */
import { type FaultCode, NoriaError } from '../core/faults.ts';
import { maskSecrets, type Secret } from '../core/secret.ts';
import { type DrawnEntry, oneLine } from './fields.ts';

export interface AnswerOrigin {
  readonly host: string;
  readonly secrets: readonly Secret[];
  readonly unreadable?: 'link-unreadable';
}

export type RawFields = Readonly<Record<string, unknown>>;

export interface Envelope {
  readonly code: string;
  readonly message: string;
  /** What may contain numbers of IPs, such as `surplus_count`, in the order of the search. */
  readonly counters: readonly RawFields[];
  readonly entries: readonly RawFields[];
}

/**
 * noria refuses an answer above these limits before it has parsed all of it, so decoding never blocks other work for
 * long. A full answer of 1,000 entries with all fields has half of the allowed values.
 */
export const MAX_VALUES = 32_000;
export const MAX_DEPTH = 32;
export const TOO_MANY_VALUES = `more than ${MAX_VALUES} values or more than ${MAX_DEPTH} levels`;

/** Each run of white space becomes one space, so a quotation of N characters reads this many times N. */
const QUOTED_SHARE = 8;
const QUOTE_LENGTH = 200;
const NOT_FOUND: ReadonlySet<number> = new Set([404, 405, 410, 501]);
const WEB_PAGE = /^<(?:!doctype\s+html|html|head|body|title|meta|script|center|h1)\b/i;

export function bodyText(body: Uint8Array): string {
  return new TextDecoder().decode(body).trim();
}

export function readCode(raw: unknown): string | undefined {
  const text = typeof raw === 'number' || typeof raw === 'string' ? String(raw).trim() : '';
  return /^[\w.-]{1,16}$/.test(text) ? text : undefined;
}

export function isWebPage(text: string): boolean {
  return WEB_PAGE.test(text);
}

/** One printable line. Masks secrets before it cuts the text, so that no part of a secret remains. */
export function quoteText(text: string, length: number, secrets: readonly Secret[]): string {
  const line = oneLine(maskBeginning(text, length * QUOTED_SHARE, secrets));
  return line.length <= length ? line : `${line.slice(0, length).toWellFormed()}…`;
}

function maskBeginning(text: string, length: number, secrets: readonly Secret[]): string {
  if (text.length <= length) return maskSecrets(text, secrets);
  const longest = Math.max(0, ...secrets.map((secret) => encodeURIComponent(secret.reveal()).length));
  const masked = maskSecrets(text.slice(0, length + longest), secrets);
  return masked.slice(0, masked.length - longest);
}

export function unreadableAnswer(what: string, text: string, origin: AnswerOrigin): NoriaError {
  const code = origin.unreadable ?? 'service-protocol';
  return badAnswer({ code, what: `the answer of ${origin.host} ${what}` }, text, origin);
}

export function oversizedAnswer(excess: string, text: string, origin: AnswerOrigin): NoriaError {
  return unreadableAnswer(`is too large (it has ${excess}); ask for fewer proxies`, text, origin);
}

export function webPageAnswer(text: string, origin: AnswerOrigin): NoriaError {
  const what = `${origin.host} sent a web page instead of an answer; perhaps a firewall blocks this machine`;
  return badAnswer({ code: 'service-blocked', what }, text, origin);
}

export function unexpectedStatus(
  { status, redirectsTo }: { readonly status: number; readonly redirectsTo?: string },
  text: string,
  origin: AnswerOrigin,
): NoriaError {
  const { host } = origin;
  if (NOT_FOUND.has(status)) {
    const what = `${host} does not have this operation (status ${status}); check service.baseUrl, or the source's own baseUrl, host or url`;
    return badAnswer({ code: 'service-not-found', what, status }, text, origin);
  }
  const what = `${host} ${describeStatus(status, redirectsTo)}`;
  return badAnswer({ code: 'service-blocked', what, status }, text, origin);
}

function describeStatus(status: number, redirectsTo: string | undefined): string {
  if (redirectsTo !== undefined) {
    return `redirects to ${redirectsTo} (status ${status}); noria follows no redirect, because that would send the key to another host; correct service.baseUrl, or the source's own baseUrl, host or url`;
  }
  return status >= 500
    ? `failed with status ${status}; the service may be down, or a firewall blocks this machine`
    : `answered with status ${status} instead of 200; perhaps a firewall blocks this machine`;
}

function badAnswer(
  { code, what, ...facts }: { code: FaultCode; what: string; status?: number },
  text: string,
  { host, secrets }: AnswerOrigin,
): NoriaError {
  const quote = text === '' ? '' : `: ${quoteText(text, QUOTE_LENGTH, secrets)}`;
  return new NoriaError(code, what + quote, { context: { host, ...facts } });
}

/** The numbers of IPs that an answer reports. Each counts distinct IPs. */
export interface Quota {
  /** `surplus_count`; for `short-pure`, `today_left_count`: IPs left, today or in total. */
  readonly remaining?: number;
  /** `update_count`; for `short-pure`, `dedup_count`: how many IPs of this answer are new. */
  readonly added?: number;
  /** `active_count`: how many IPs from earlier calls have not expired. */
  readonly active?: number;
  /** `today_count`. */
  readonly today?: number;
}

export interface DrawAnswer {
  readonly code: string;
  readonly message: string;
  /** The entries, at most 1,000. Empty unless the code is success. */
  readonly entries: readonly DrawnEntry[];
  readonly dropped: Readonly<Record<string, number>>;
  readonly quota: Quota;
  /** The monotonic moment at which noria sent the request. The lifetimes of the entries begin at this moment. */
  readonly sentAt: number;
}
