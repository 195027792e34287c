/**
 * The interface of a proxy protocol: a state machine that takes bytes and returns the next step. The state machine has
 * no socket and no clock, so each protocol can be tested byte by byte. The code that uses the state machine handles
 * timeouts and closed connections.
 */
import type { FaultCode } from '../core/faults.ts';

export interface HandshakeFailure {
  readonly kind: 'failed';
  readonly fault: Extract<FaultCode, 'member-auth' | 'member-refused' | 'member-protocol' | 'target-doubted'>;
  /** `status 502`, `reply 5`: nothing else from the member. */
  readonly detail: string;
  readonly targetRefused?: boolean;
  readonly status?: number;
  readonly isLoop?: boolean;
  /** Whether the member does not accept CONNECT to this target. It may accept a plain HTTP request in absolute form. */
  readonly noConnect?: boolean;
}

export type HandshakeStep =
  | { readonly kind: 'more' }
  | { readonly kind: 'send'; readonly bytes: Buffer }
  /** `rest`: what followed the member's answer, for the client. */
  | { readonly kind: 'accepted'; readonly rest: Buffer }
  | HandshakeFailure;

export interface Handshake {
  /** A string is in Latin-1. */
  readonly opening: Buffer | string;
  /** Takes the next bytes, split at any position. Do not call it after `accepted` or `failed`. */
  take(bytes: Buffer): HandshakeStep;
}

export const MORE: HandshakeStep = { kind: 'more' };
export const NO_BYTES: Buffer = Buffer.alloc(0);
