/**
 * A way that stands, as the listener holds it: a connected socket, the lease behind it, and one ending.
 */
import type { Socket } from 'node:net';
import type { Listed, LiveList } from '../core/live-list.ts';
import type { Lease, Lending } from '../pool/lease.ts';
import type { CredentialBook, PreparedLogin } from './credentials.ts';
import type { Dialed, DialOutcome } from './dial.ts';
import type { Form } from './forms.ts';
import type { IdleConnections } from './idle.ts';

export interface WayParts {
  readonly pool: Lending;
  readonly idle: IdleConnections;
  readonly credentials: CredentialBook;
  /** Ways that have not ended: for whoever must end one from outside. */
  readonly standing: LiveList<Way>;
}

export interface WayFacts {
  readonly lease: Lease;
  readonly socket: Socket;
  readonly head: Buffer;
  readonly form: Form;
  readonly login: PreparedLogin | undefined;
  readonly reused: boolean;
  /** It may be given back for another plain HTTP request. */
  readonly reusable: boolean;
  readonly attempts: number;
  /** `host:port`. */
  readonly target: string;
  /** Monotonic moment at which the member ends; `Infinity` when unknown. */
  readonly endsAt: number;
}

export class Way implements Dialed, Listed {
  listedAt = -1;
  readonly #parts: WayParts;
  readonly #facts: WayFacts;
  #ended = false;

  constructor(parts: WayParts, facts: WayFacts) {
    this.#parts = parts;
    this.#facts = facts;
    parts.standing.add(this);
  }

  get lease(): number {
    return this.#facts.lease.id;
  }

  get socket(): Socket {
    return this.#facts.socket;
  }

  get head(): Buffer {
    return this.#facts.head;
  }

  get form(): Form {
    return this.#facts.form;
  }

  get proxyAuthorization(): string | undefined {
    return this.#facts.form === 'absolute' ? this.#facts.login?.authorization.reveal() : undefined;
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
    const { pool, idle, credentials, standing } = this.#parts;
    const { lease, socket, form, login, reusable, target, endsAt } = this.#facts;
    standing.delete(this);
    pool.report({ lease: lease.id, kind: 'closed', cut: outcome.cut });
    if (outcome.askedCredentials === true && form === 'absolute') credentials.asked(login);
    if (outcome.keep !== true) return;
    if (reusable) idle.keep({ socket, member: lease.member, target, form, login, endsAt });
    else socket.destroy();
  }
}
