/**
 * The interface of a proxy protocol: a state machine that takes bytes and returns the next step. The state machine has
 * no socket and no clock, so each protocol can be tested byte by byte. The code that uses the state machine handles
 * timeouts and closed connections.
 */
import type { FaultCode } from '../core/faults.ts';

export interface HandshakeFailure {
  readonly kind: 'failed';
  readonly fault: Extract<FaultCode, 'member-auth' | 'member-refused' | 'member-protocol' | 'target-doubted'>;
  /**
   * The status or reply code that shows the cause, such as `status 502` or `reply 5`. The text contains nothing else
   * from the member.
   */
  readonly detail: string;
  readonly targetRefused?: boolean;
  readonly status?: number;
  /** Whether a proxy reports that it would lead back to itself. */
  readonly isLoop?: boolean;
  /** Whether the member does not accept CONNECT to this target. It may accept a plain HTTP request in absolute form. */
  readonly noConnect?: boolean;
}

export type HandshakeStep =
  | { readonly kind: 'more' }
  | { readonly kind: 'send'; readonly bytes: Buffer }
  /**
   * The member is connected to the target. `rest` are the bytes after the member's answer, which belong to the client.
   */
  | { readonly kind: 'accepted'; readonly rest: Buffer }
  | HandshakeFailure;

export interface Handshake {
  /** The first message. The caller writes it when the connection to the member is ready. A string is in Latin-1. */
  readonly opening: Buffer | string;
  /** Takes the next bytes, split at any position. Do not call it after `accepted` or `failed`. */
  take(bytes: Buffer): HandshakeStep;
}

export const MORE: HandshakeStep = { kind: 'more' };
export const NO_BYTES: Buffer = Buffer.alloc(0);
