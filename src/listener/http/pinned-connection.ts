/**
 * A member connection reserved for one client connection, which owns it between two requests. NTLM and Negotiate
 * authenticate the connection and not each request, so another client on it would act under this client's identity.
 */
import type { Clock } from '../../core/clock.ts';
import { isSame } from '../../core/secret.ts';
import type { MemberConnection } from '../../dialer/contract.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import { fieldValues, type HeaderField } from './header-fields.ts';

/** Only requests with the same user, options and target use the connection. */
export interface PinPurpose {
  readonly target: string;
  readonly owner: string;
  readonly routing: RoutingOptions;
}

/** Schemes that authenticate each request and not the connection. */
const REQUEST_BOUND = new Set(['basic', 'digest', 'bearer']);
const CONNECTION_BOUND_OFFER = /(?:^|,)\s*(?:ntlm|negotiate)\b/i;
const UNAUTHORIZED = 401;
const NO_BYTES = Buffer.alloc(0);

export function authenticatesConnection(fields: readonly HeaderField[]): boolean {
  return fieldValues(fields, 'authorization').some((value) => {
    const [scheme = ''] = value.split(/[ ,]/, 1);
    return !REQUEST_BOUND.has(scheme.toLowerCase());
  });
}

export function offersConnectionAuthentication(status: number, fields: readonly HeaderField[]): boolean {
  return (
    status === UNAUTHORIZED &&
    fieldValues(fields, 'www-authenticate').some((value) => CONNECTION_BOUND_OFFER.test(value))
  );
}

export class PinnedConnection {
  readonly #clock: Clock;
  #kept: { readonly connection: MemberConnection; readonly purpose: PinPurpose } | undefined;
  /** What `keep` kept last, prepared for its next request. */
  #pinned: MemberConnection | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  keep(connection: MemberConnection, purpose: PinPurpose): void {
    this.close();
    const pinned = connection === this.#pinned ? connection : afterFirstRequest(connection, this.#clock);
    this.#pinned = pinned;
    this.#kept = { connection: pinned, purpose };
    // The socket must flow: a paused socket emits neither 'end' nor 'data', and both make the connection unusable.
    pinned.socket.on('data', this.close).on('end', this.close).on('close', this.close).resume();
  }

  /** The caller then owns the connection, which is paused. */
  take(purpose: PinPurpose): MemberConnection | undefined {
    const kept = this.#kept;
    if (kept === undefined || !isSame(kept.purpose, purpose)) return undefined;
    this.#release();
    kept.connection.socket.pause();
    return kept.connection;
  }

  readonly close = (): void => {
    const connection = this.#kept?.connection;
    if (connection === undefined) return;
    this.#release();
    connection.socket.destroy();
    connection.end({ cut: false, answered: true });
  };

  #release(): void {
    this.#kept?.connection.socket.off('data', this.close).off('end', this.close).off('close', this.close);
    this.#kept = undefined;
  }
}

/** Marks it as reused, without the early bytes that noria has read. */
function afterFirstRequest(connection: MemberConnection, clock: Clock): MemberConnection {
  const { socket, forwardMode, proxyAuthorization, lease } = connection;
  const { remainingMs } = lease;
  const pinnedAt = clock.monotonic();
  return {
    socket,
    forwardMode,
    proxyAuthorization,
    lease:
      remainingMs === undefined
        ? lease
        : {
            ...lease,
            get remainingMs() {
              return remainingMs - (clock.monotonic() - pinnedAt);
            },
          },
    reused: true,
    attempts: 1,
    early: NO_BYTES,
    isMemberError: (answer) => connection.isMemberError(answer),
    end: (outcome) => connection.end(outcome),
  };
}
