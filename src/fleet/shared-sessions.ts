/**
 * Opens sessions in the shared pool. A replica opens a session there before it grants the first lease of a session that
 * it does not know. So all replicas choose the same member.
 */
import { isLease, type Lease, type LeaseRefusal, type LeaseRequest } from '../pool/lease.ts';
import type { Pool } from '../pool/pool.ts';
import type { SharedSession } from '../pool/shared-member.ts';
import type { PoolSharing } from '../pool/sharing.ts';
import type { SharedPool } from './shared-pool.ts';

type Answer = Lease | LeaseRefusal;

interface SharedSessionsParts {
  readonly pool: Pick<Pool, 'acquire' | 'report'>;
  readonly sharing: PoolSharing;
  readonly shared: Pick<SharedPool, 'bindSession'>;
}

export class SharedSessions {
  readonly #parts: SharedSessionsParts;
  /** The sessions that this replica is opening in the shared pool, by name. */
  readonly #opening = new Map<string, Promise<void>>();
  #isClosed = false;

  constructor(parts: SharedSessionsParts) {
    this.#parts = parts;
  }

  /** Like `LeaseProvider.acquire`. Grants the lease after all replicas have agreed on a member for its session. */
  acquire(request: LeaseRequest): Answer | Promise<Answer> {
    const answer = this.#parts.pool.acquire(request);
    if (request.routing.session === undefined || this.#isClosed) return answer;
    return answer instanceof Promise
      ? answer.then((late) => this.#inOpenSession(request, late))
      : this.#inOpenSession(request, answer);
  }

  /** Opens a session for another process of this machine; see `SharedPool.bindSession`. */
  async bind(proposed: SharedSession): Promise<SharedSession> {
    const { sharing, shared } = this.#parts;
    const known = sharing.session(proposed.name);
    if (known?.member !== undefined) return known;
    const agreed = await shared.bindSession(proposed);
    // Another process of this machine may have opened the session during this call. The whole machine uses the answer
    // that arrived first. The answers differ only if the store is unavailable.
    if (sharing.session(proposed.name)?.member === undefined) sharing.confirm(agreed);
    return sharing.session(proposed.name) ?? agreed;
  }

  /** Stops opening sessions in the shared pool. `acquire` still grants leases. */
  close(): void {
    this.#isClosed = true;
  }

  /**
   * Returns the lease after the replicas have agreed on a member for its session. If they agreed on another member,
   * acquires a new lease.
   */
  #inOpenSession(request: LeaseRequest, answer: Answer): Answer | Promise<Answer> {
    if (!isLease(answer)) return answer;
    const { pool, sharing } = this.#parts;
    const { session, member } = answer;
    if (session === undefined || !sharing.isUnconfirmed(session)) return answer;
    return this.#open(session).then(() => {
      const agreed = sharing.session(session)?.member;
      if (agreed === undefined || agreed === member) return answer;
      pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      return this.acquire(request);
    });
  }

  /** Opens the session in the shared pool. Concurrent requests of the session wait for the same result. */
  async #open(name: string): Promise<void> {
    const opening = this.#opening.get(name) ?? this.#propose(name);
    this.#opening.set(name, opening);
    await opening;
    this.#opening.delete(name);
  }

  async #propose(name: string): Promise<void> {
    const { sharing, shared } = this.#parts;
    const proposed = sharing.session(name);
    if (proposed !== undefined) sharing.confirm(await shared.bindSession(proposed));
  }
}
