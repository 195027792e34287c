/** Why a client is refused, in a form that both protocols turn into a reply. */

import { FAULTS, type Fault, type FaultCode, NoriaError } from '../core/faults.ts';
import type { LeaseRefusal } from '../pool/lease.ts';

/** What a reply to a refused client contains. */
export interface Refusal {
  readonly code: FaultCode;
  /** noria's own words, for the client. It never quotes the client, a member or the service. */
  readonly reason?: string;
  /** How long the client should wait before a retry; sent in whole seconds, rounded up. */
  readonly retryAfterMs?: number;
  /** What each source is waiting for; sent only if a later retry can help. */
  readonly sources?: LeaseRefusal['sources'];
  /** With `target-unreachable`: true if the target refused the connection, false if the target could not be reached. */
  readonly targetRefused?: boolean;
  readonly attempts?: number;
}

const GENERAL_FAILURE = 0x01;
const NOT_ALLOWED = 0x02;
const CONNECTION_REFUSED = 0x05;

/** Creates the error for a malformed request. The client gets the reason, so the reason must not quote the request. */
export function badRequest(reason: string): NoriaError {
  return new NoriaError('bad-request', reason, { context: { reason } });
}

/**
 * Reduces an error to what the client may learn: the code, the reason and the retry time. The message of the error is
 * only for the log.
 */
export function refusalOf({ code, context }: NoriaError): Refusal {
  const { reason, retryAfterMs } = context;
  return {
    code,
    ...(typeof reason === 'string' ? { reason } : {}),
    ...(typeof retryAfterMs === 'number' ? { retryAfterMs } : {}),
  };
}

/**
 * The SOCKS5 reply code for a refusal (RFC 1928 §6). Faults that usually end the authentication step have
 * no reply code. If such a fault occurs after this step, the reply is 0x02 (not allowed).
 */
export function socks5ReplyCode(refusal: Refusal): number {
  if (refusal.code === 'target-unreachable' && refusal.targetRefused) return CONNECTION_REFUSED;
  const fault: Fault = FAULTS[refusal.code];
  return fault.socks5 === 'auth' ? NOT_ALLOWED : (fault.socks5 ?? GENERAL_FAILURE);
}
