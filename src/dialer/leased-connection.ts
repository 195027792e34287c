/** A connection through a member. The dialer passes it to the listener. It ends its lease exactly once. */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Listed, LiveList } from '../core/live-list.ts';
import type { Lease, LeaseProvider } from '../pool/lease.ts';
import type { ClientBudgets } from './attempt-budget.ts';
import type { RawConnection } from './attempt-contract.ts';
import type { AbsoluteAnswer, ConnectionOutcome, ForwardMode, MemberConnection } from './dial.ts';
import type { IdleConnections } from './idle-connections.ts';
import type { Reachability } from './reachability.ts';
import type { SourceMemory } from './source-memory.ts';

export interface ConnectionParts {
  readonly clock: Clock;
  readonly pool: LeaseProvider;
  readonly idle: IdleConnections;
  readonly reachability: Reachability;
  readonly clientBudgets: ClientBudgets;
  /** All open connections. The dialer needs them to close the connections of leases that must end early. */
  readonly openConnections: LiveList<LeasedConnection>;
}

interface ConnectionFacts {
  readonly raw: RawConnection;
  readonly lease: Lease;
  /** What noria has learned about the member's source. */
  readonly memory: SourceMemory;
  readonly reused: boolean;
  /** Whether the dialer may keep the connection for another plain HTTP request. */
  readonly reusable: boolean;
  readonly attempts: number;
  readonly client: string;
  /** `host:port` of the target. */
  readonly target: string;
  readonly owner: string;
}

export class LeasedConnection implements MemberConnection, Listed {
  listIndex = -1;
  readonly lease: Lease;
  readonly socket: Socket;
  readonly early: Buffer;
  readonly forwardMode: ForwardMode;
  readonly proxyAuthorization: string | undefined;
  readonly reused: boolean;
  readonly attempts: number;
  readonly #parts: ConnectionParts;
  readonly #facts: ConnectionFacts;
  readonly #startedAt: number;
  #ended = false;
  /** Whether the last response was an error of the member itself. */
  #isMemberError = false;

  constructor(parts: ConnectionParts, facts: ConnectionFacts) {
    const { raw, lease } = facts;
    this.#parts = parts;
    this.#facts = facts;
    this.#startedAt = facts.reusable ? parts.clock.monotonic() : 0;
    this.lease = lease;
    this.socket = raw.socket;
    this.early = raw.early;
    this.forwardMode = raw.forwardMode;
    this.proxyAuthorization = raw.forwardMode === 'absolute' ? raw.login?.authorization.reveal() : undefined;
    this.reused = facts.reused;
    this.attempts = facts.attempts;
    parts.openConnections.add(this);
  }

  isMemberError(answer: AbsoluteAnswer): boolean {
    if (this.forwardMode !== 'absolute') return false;
    const { raw, memory, target } = this.#facts;
    this.#isMemberError = memory.forwardMode.answered(target, answer, raw.connectStatus);
    return this.#isMemberError;
  }

  end(outcome: ConnectionOutcome): void {
    if (this.#ended) return;
    this.#ended = true;
    const { pool, idle, openConnections, reachability } = this.#parts;
    const { raw, memory, reusable, target, client, owner } = this.#facts;
    const { socket, forwardMode } = this;
    const { id, member, remainingMs = Number.POSITIVE_INFINITY } = this.lease;
    openConnections.delete(this);
    const isAnswered = outcome.answered === true && !this.#isMemberError;
    // If the member closed the connection without an answer, the listener may send the request again. noria counts
    // this as one more failed attempt of the client.
    if (outcome.cut && reusable) this.#parts.clientBudgets.charge(client, 1);
    if (isAnswered) reachability.recordAnswered(member, target);
    if (isAnswered && forwardMode === 'absolute') reachability.recordReached(member, target);
    const cut = outcome.cut && (reachability.recordCut(member, target) ? 'member-for-target' : 'unclear');
    pool.report({ lease: id, kind: 'closed', cut, answered: isAnswered });
    if (forwardMode === 'absolute') {
      if (outcome.proxyAuthRequired === true) memory.credentials.challenged(member, raw.login);
      else if (isAnswered) memory.credentials.accepted(member, raw.login);
    }
    if (outcome.keep !== true) return;
    if (!reusable) {
      socket.destroy();
      return;
    }
    const endsAt = this.#startedAt + remainingMs;
    idle.keep({ socket, member, target, forwardMode, owner, login: raw.login, endsAt });
  }
}
