/**
 * The body of an answer as text, and what is said of one that cannot be understood: its beginning is quoted, on one printable
 * line, with secrets masked. Pure.
 */
import { NoriaError } from '../core/faults.ts';
import { maskSecrets, type Secret } from '../core/secret.ts';
import { oneLine } from './fields.ts';

/** Who answered, and what must not be shown of it. */
export interface AnswerOrigin {
  /** Host and port of the service. */
  readonly host: string;
  readonly secrets: readonly Secret[];
}

/** Characters of an answer that are quoted. */
export const QUOTE_LENGTH = 200;

/** What begins a page for people rather than an answer for programs. */
const WEB_PAGE = /^<(?:!doctype\s+html|html|head|body|title|meta|script|center|h1)\b/i;

/** UTF-8 without a byte order mark and surrounding white space; bytes that are no UTF-8 become U+FFFD. */
export function bodyText(body: Uint8Array): string {
  return new TextDecoder().decode(body).trim();
}

export function isWebPage(text: string): boolean {
  return WEB_PAGE.test(text);
}

/** One printable line of at most `length` characters. Masked before it is cut, lest half a secret stays. */
export function quoteText(text: string, length: number, secrets: readonly Secret[]): string {
  const line = oneLine(maskSecrets(text, secrets));
  return line.length <= length ? line : `${line.slice(0, length).toWellFormed()}…`;
}

/** The error for an answer in no known form. @param what - e.g. `is not the json asked for`. */
export function unreadableAnswer(what: string, text: string, origin: AnswerOrigin): NoriaError {
  return unreadable('service-protocol', `the answer of ${origin.host} ${what}`, text, origin);
}

/** The error for a web page where an answer was expected. */
export function webPageAnswer(text: string, origin: AnswerOrigin): NoriaError {
  const what = `${origin.host} sent a web page instead of an answer, as a firewall does that blocks this address`;
  return unreadable('service-blocked', what, text, origin);
}

/** The error for a status other than 200 without a code of the service. */
export function unexpectedStatus(
  status: number,
  redirectsTo: string | undefined,
  text: string,
  origin: AnswerOrigin,
): NoriaError {
  const what =
    redirectsTo === undefined
      ? `${origin.host} answered with status ${status} instead of 200, as a firewall does that blocks this address`
      : `${origin.host} redirects to ${redirectsTo} (status ${status}), which is not followed, since the key would go there; correct service.baseUrl`;
  return unreadable('service-blocked', what, text, origin, { status });
}

function unreadable(
  code: 'service-protocol' | 'service-blocked',
  what: string,
  text: string,
  { host, secrets }: AnswerOrigin,
  facts: { readonly status?: number } = {},
): NoriaError {
  const quote = text === '' ? '' : `: ${quoteText(text, QUOTE_LENGTH, secrets)}`;
  return new NoriaError(code, what + quote, { context: { host, ...facts } });
}
