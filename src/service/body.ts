/**
 * The steps that answers of all formats share: decode the text of the body, read the code, and build the error for a body that is
 * not an answer. The error quotes the beginning of the body on one printable line, with masked secrets. All functions are pure.
 */
import { NoriaError } from '../core/faults.ts';
import { maskSecrets, type Secret } from '../core/secret.ts';
import { oneLine } from './fields.ts';

export interface AnswerOrigin {
  /** Host and port of the service. */
  readonly host: string;
  /** Secrets that noria masks when it quotes the answer. */
  readonly secrets: readonly Secret[];
  /** The fault code to use if noria cannot read the answer. Default: service-protocol. */
  readonly unreadable?: 'link-unreadable';
}

/** Values by the service's field names, as received. */
export type RawFields = Readonly<Record<string, unknown>>;

/** An answer after its format was parsed. The values are not checked yet. */
export interface Envelope {
  readonly code: string;
  /** The service's own text, as received. */
  readonly message: string;
  /**
   * The objects of the answer that may contain numbers of IPs, such as `surplus_count`. noria searches them in this
   * order.
   */
  readonly counters: readonly RawFields[];
  readonly entries: readonly RawFields[];
}

/**
 * The maximum number of values in an answer, and the maximum depth of nesting. noria refuses an answer that exceeds
 * them before it has parsed the whole answer, so decoding never blocks other work for long. A full answer of 1,000
 * entries with all fields has half of the allowed number of values.
 */
export const MAX_VALUES = 32_000;
export const MAX_DEPTH = 32;
export const TOO_MANY_VALUES = `more than ${MAX_VALUES} values or more than ${MAX_DEPTH} levels`;

/**
 * How many times the length of a quotation noria reads from the text. The quotation is often shorter than the text that
 * it quotes, because each run of white space becomes one space.
 */
const QUOTED_SHARE = 8;
const QUOTE_LENGTH = 200;
/** HTTP statuses that mean a wrong host or path. */
const NOT_FOUND: ReadonlySet<number> = new Set([404, 405, 410, 501]);
const WEB_PAGE = /^<(?:!doctype\s+html|html|head|body|title|meta|script|center|h1)\b/i;

/** Decodes UTF-8 and removes a byte order mark and surrounding white space. Invalid bytes become U+FFFD. */
export function bodyText(body: Uint8Array): string {
  return new TextDecoder().decode(body).trim();
}

/** Reads the service's code, a string or a number; undefined for any other value. */
export function readCode(raw: unknown): string | undefined {
  const text = typeof raw === 'number' || typeof raw === 'string' ? String(raw).trim() : '';
  return /^[\w.-]{1,16}$/.test(text) ? text : undefined;
}

export function isWebPage(text: string): boolean {
  return WEB_PAGE.test(text);
}

/**
 * Returns one printable line of at most `length` characters. Masks secrets before it cuts the text, so that no part of
 * a secret remains.
 */
export function quoteText(text: string, length: number, secrets: readonly Secret[]): string {
  const line = oneLine(maskBeginning(text, length * QUOTED_SHARE, secrets));
  return line.length <= length ? line : `${line.slice(0, length).toWellFormed()}…`;
}

/** Returns about the first `length` characters with masked secrets. A secret at the cut is removed completely. */
function maskBeginning(text: string, length: number, secrets: readonly Secret[]): string {
  if (text.length <= length) return maskSecrets(text, secrets);
  const longest = Math.max(0, ...secrets.map((secret) => encodeURIComponent(secret.reveal()).length));
  const masked = maskSecrets(text.slice(0, length + longest), secrets);
  return masked.slice(0, masked.length - longest);
}

/** @param what - what is wrong, such as `is empty`. The message is "the answer of HOST" and this text. */
export function unreadableAnswer(what: string, text: string, origin: AnswerOrigin): NoriaError {
  const code = origin.unreadable ?? 'service-protocol';
  return badAnswer({ code, what: `the answer of ${origin.host} ${what}` }, text, origin);
}

/** @param excess - what the answer has too many of, such as `more than 1000 lines`. */
export function oversizedAnswer(excess: string, text: string, origin: AnswerOrigin): NoriaError {
  return unreadableAnswer(`is too large (it has ${excess}); ask for fewer proxies`, text, origin);
}

export function webPageAnswer(text: string, origin: AnswerOrigin): NoriaError {
  const what = `${origin.host} sent a web page instead of an answer; perhaps a firewall blocks this machine`;
  return badAnswer({ code: 'service-blocked', what }, text, origin);
}

/** The error for an answer that has neither status 200 nor a code of the service. */
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
    return `redirects to ${redirectsTo} (status ${status}); noria follows no redirect, because that would send the key to another host; correct service.baseUrl, or url of the link`;
  }
  return status >= 500
    ? `failed with status ${status}; the service may be down, or a firewall blocks this machine`
    : `answered with status ${status} instead of 200; perhaps a firewall blocks this machine`;
}

interface AnswerProblem {
  readonly code: 'service-protocol' | 'link-unreadable' | 'service-blocked' | 'service-not-found';
  readonly what: string;
  readonly status?: number;
}

function badAnswer(
  { code, what, ...facts }: AnswerProblem,
  text: string,
  { host, secrets }: AnswerOrigin,
): NoriaError {
  const quote = text === '' ? '' : `: ${quoteText(text, QUOTE_LENGTH, secrets)}`;
  return new NoriaError(code, what + quote, { context: { host, ...facts } });
}
