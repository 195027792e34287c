/**
 * A way that stands, as the listener holds it: a connected socket, the lease behind it, and one ending.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Listed, LiveList } from '../core/live-list.ts';
import type { Lease, LeaseProvider } from '../pool/lease.ts';
import type { RawConnection } from './attempt.ts';
import type { SourceCredentials } from './credentials.ts';
import type { DialOutcome, MemberConnection } from './dial.ts';
import type { ForwardMode } from './forward-mode.ts';
import type { IdleConnections } from './idle-connections.ts';

export interface WayParts {
  readonly clock: Clock;
  readonly pool: LeaseProvider;
  readonly idle: IdleConnections;
  /** Ways that have not ended: for whoever must end one from outside. */
  readonly openConnections: LiveList<LeasedConnection>;
}

export interface WayFacts {
  readonly raw: RawConnection;
  readonly lease: Lease;
  /** Of the member's source. */
  readonly credentials: SourceCredentials;
  readonly reused: boolean;
  /** It may be given back for another plain HTTP request. */
  readonly reusable: boolean;
  readonly attempts: number;
  /** `host:port`. */
  readonly target: string;
}

export class LeasedConnection implements MemberConnection, Listed {
  listedAt = -1;
  readonly #parts: WayParts;
  readonly #facts: WayFacts;
  readonly #wonAt: number;
  #ended = false;

  constructor(parts: WayParts, facts: WayFacts) {
    this.#parts = parts;
    this.#facts = facts;
    this.#wonAt = facts.reusable ? parts.clock.monotonic() : 0;
    parts.openConnections.add(this);
  }

  get lease(): number {
    return this.#facts.lease.id;
  }

  get socket(): Socket {
    return this.#facts.raw.socket;
  }

  get head(): Buffer {
    return this.#facts.raw.head;
  }

  get forwardMode(): ForwardMode {
    return this.#facts.raw.forwardMode;
  }

  get proxyAuthorization(): string | undefined {
    const { forwardMode: form, login } = this.#facts.raw;
    return form === 'absolute' ? login?.authorization.reveal() : undefined;
  }

  get reused(): boolean {
    return this.#facts.reused;
  }

  get member(): string {
    return this.#facts.lease.member;
  }

  get source(): string {
    return this.#facts.lease.source;
  }

  get exitIp(): string | undefined {
    return this.#facts.lease.exitIp;
  }

  get remainingMs(): number | undefined {
    return this.#facts.lease.remainingMs;
  }

  get session(): string | undefined {
    return this.#facts.lease.session;
  }

  get attempts(): number {
    return this.#facts.attempts;
  }

  end(outcome: DialOutcome): void {
    if (this.#ended) return;
    this.#ended = true;
    const { pool, idle, openConnections } = this.#parts;
    const { lease, raw, credentials, reusable, target } = this.#facts;
    const { socket, forwardMode: form, login } = raw;
    openConnections.delete(this);
    pool.report({ lease: lease.id, kind: 'closed', cut: outcome.cut });
    if (outcome.proxyAuthRequired === true && form === 'absolute') credentials.challenged(login);
    if (outcome.keep !== true) return;
    if (!reusable) {
      socket.destroy();
      return;
    }
    const endsAt = this.#wonAt + (lease.remainingMs ?? Number.POSITIVE_INFINITY);
    idle.keep({ socket, member: lease.member, target, forwardMode: form, login, endsAt });
  }
}
