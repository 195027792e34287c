/** Why a client is refused, in a form that both protocols turn into a reply. */

import { FAULTS, type Fault, type FaultCode, NoriaError } from '../core/faults.ts';
import type { LeaseRefusal } from '../pool/lease.ts';

export interface Refusal {
  readonly code: FaultCode;
  /** noria's own words: it quotes neither the client nor a member or the service. */
  readonly reason?: string;
  /** Sent in whole seconds, rounded up. */
  readonly retryAfterMs?: number;
  readonly sources?: LeaseRefusal['sources'];
  /** With `target-unreachable`: whether the target refused the connection. */
  readonly targetRefused?: boolean;
  readonly attempts?: number;
}

const GENERAL_FAILURE = 0x01;
const NOT_ALLOWED = 0x02;
const CONNECTION_REFUSED = 0x05;

/** The client gets the reason, so it must not quote the request. */
export function refusalError(code: FaultCode, reason: string): NoriaError {
  return new NoriaError(code, reason, { context: { reason } });
}

export function badRequest(reason: string): NoriaError {
  return refusalError('bad-request', reason);
}

/** What the client may learn. The message of the error is only for the log. */
export function refusalOf({ code, context }: NoriaError): Refusal {
  const { reason, retryAfterMs } = context;
  return {
    code,
    ...(typeof reason === 'string' ? { reason } : {}),
    ...(typeof retryAfterMs === 'number' ? { retryAfterMs } : {}),
  };
}

/** RFC 1928 §6. A fault of the authentication step that occurs later is 0x02 (not allowed). */
export function socks5ReplyCode(refusal: Refusal): number {
  if (refusal.code === 'target-unreachable' && refusal.targetRefused) return CONNECTION_REFUSED;
  const fault: Fault = FAULTS[refusal.code];
  return fault.socks5 === 'auth' ? NOT_ALLOWED : (fault.socks5 ?? GENERAL_FAILURE);
}
