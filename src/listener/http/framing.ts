/**
 * Determines where the body of an HTTP/1 message ends (RFC 9112 §6). It rejects ambiguous framing, even where the RFC
 * allows a recipient to repair it: if two recipients disagree about the end of a message, request smuggling becomes
 * possible.
 */
import { NoriaError } from '../../core/faults.ts';
import { badRequest } from '../refusal.ts';
import { fieldValues, type HeaderField } from './header-fields.ts';

/** How the end of a body is determined. */
export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  /** Responses only: the body ends with the connection. */
  | { readonly kind: 'until-close' };

/** What the head of a response says about its body. */
interface FramedHead {
  readonly status: number;
  readonly fields: readonly HeaderField[];
  readonly minorVersion: number;
}

/**
 * The framing of a request's body.
 * @returns `bad-request` for ambiguous framing (two lengths, a length and a transfer coding, a transfer coding in
 * HTTP/1.0, or an invalid length); `not-implemented` for a transfer coding other than chunked.
 */
export function requestFraming(fields: readonly HeaderField[], minorVersion: number): Framing | NoriaError {
  return declaredFraming(fields, minorVersion) ?? { kind: 'none' };
}

/**
 * The framing of a response's body.
 * @param method - of the request: a response to HEAD has no body.
 * @returns the framing, or an error for the same reasons as `requestFraming`.
 */
export function responseFraming(
  method: string,
  { status, fields, minorVersion }: FramedHead,
): Framing | NoriaError {
  const declared = declaredFraming(fields, minorVersion);
  if (declared instanceof NoriaError) return declared;
  if (method === 'HEAD' || status < 200 || status === 204 || status === 304) return { kind: 'none' };
  return declared ?? { kind: 'until-close' };
}

export function isEmptyBody(framing: Framing): boolean {
  return framing.kind === 'none' || (framing.kind === 'length' && framing.bytes === 0);
}

/**
 * Rejects requests other than HTTP/1.0 and HTTP/1.1. node:http would also accept HTTP/2.0, and a line without version
 * as HTTP/0.9.
 */
export function checkHttpVersion(majorVersion: number): NoriaError | undefined {
  if (majorVersion === 1) return undefined;
  return badRequest('the request line does not end in HTTP/1.1 or HTTP/1.0');
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
