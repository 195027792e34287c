/**
 * What a proxy protocol is to the dialer: a machine that is given bytes and says what to do, without a socket or a clock.
 *
 * So each protocol is tested byte by byte, and one driver (attempt.ts) has all the timeouts and endings.
 */
import type { FaultCode } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';

/** A user name and a password for a member. */
export interface Login {
  readonly username: string;
  readonly password: Secret;
}

/** Why a hop came to nothing. */
export interface HandshakeFailure {
  readonly kind: 'failed';
  readonly fault: Extract<
    FaultCode,
    'member-auth' | 'member-refused' | 'member-protocol' | 'member-incapable' | 'target-doubted'
  >;
  /** The number that decided it, in our words: `status 502`, `reply 5`. No text of the member. */
  readonly detail: string;
  /** The member says that the target itself refused the connection. */
  readonly targetRefused?: boolean;
  /** An HTTP member that does not CONNECT there; it may take a plain request in absolute form. */
  readonly noConnect?: boolean;
}

export type HandshakeStep =
  | { readonly kind: 'more' }
  /** The protocol's next message. */
  | { readonly kind: 'send'; readonly bytes: Buffer }
  /** The way to the target stands; `rest` came after the member's answer and belongs to the client. */
  | { readonly kind: 'accepted'; readonly rest: Buffer }
  | HandshakeFailure;

export interface Handshake {
  /** Written as soon as the connection stands; as a string it is latin1. */
  readonly opening: Buffer | string;
  /** Takes the next bytes, however they were split. Not to be called again after `accepted` or `failed`. */
  take(bytes: Buffer): HandshakeStep;
}

export const MORE: HandshakeStep = { kind: 'more' };
export const NO_BYTES: Buffer = Buffer.alloc(0);
