/**
 * The interface of a proxy protocol: a state machine that takes bytes and returns the next step. It has no socket and
 * no clock, so each protocol is tested byte by byte. Only attempt.ts handles timeouts and closed connections.
 */
import type { FaultCode } from '../core/faults.ts';

/** Why a handshake failed. */
export interface HandshakeFailure {
  readonly kind: 'failed';
  readonly fault: Extract<FaultCode, 'member-auth' | 'member-refused' | 'member-protocol' | 'target-doubted'>;
  /** The deciding number: `status 502`, `reply 5`. Contains no text from the member. */
  readonly detail: string;
  /** The member reports that the target refused the connection. */
  readonly targetRefused?: boolean;
  /** HTTP status of the member's answer. */
  readonly status?: number;
  /** The member does not accept CONNECT to this target. It may accept a plain HTTP request in absolute form. */
  readonly noConnect?: boolean;
}

export type HandshakeStep =
  /** The answer is incomplete: wait for more bytes. */
  | { readonly kind: 'more' }
  /** Write the protocol's next message. */
  | { readonly kind: 'send'; readonly bytes: Buffer }
  /**
   * The member is connected to the target. `rest` are the bytes after the member's answer, which belong to the client.
   */
  | { readonly kind: 'accepted'; readonly rest: Buffer }
  | HandshakeFailure;

export interface Handshake {
  /** The first message, written once the connection is ready. A string is latin1. */
  readonly opening: Buffer | string;
  /** Takes the next bytes, split at any position. Do not call it after `accepted` or `failed`. */
  take(bytes: Buffer): HandshakeStep;
}

export const MORE: HandshakeStep = { kind: 'more' };
export const NO_BYTES: Buffer = Buffer.alloc(0);
