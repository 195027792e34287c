/**
 * Agrees with the other replicas on the members of sessions. A replica opens a session, and moves it to another member,
 * in the shared pool before it grants the first lease on this member. So all replicas choose the same member.
 */
import { isLease, type Lease, type LeaseRefusal, type LeaseRequest } from '../pool/lease.ts';
import type { Pool } from '../pool/pool.ts';
import type { PoolSharing } from './pool-sharing.ts';
import type { SharedSession } from './schemas.ts';
import type { SharedPool } from './shared-pool.ts';

type Answer = Lease | LeaseRefusal;

export class SharedSessions {
  readonly #pool: Pick<Pool, 'acquire' | 'report'>;
  readonly #sharing: PoolSharing;
  readonly #shared: Pick<SharedPool, 'bindSession' | 'findSession'>;
  readonly #proposed = new Map<string, Promise<void>>();
  #isClosed = false;

  constructor(pool: Pick<Pool, 'acquire' | 'report'>, sharing: PoolSharing, shared: SharedPool) {
    this.#pool = pool;
    this.#sharing = sharing;
    this.#shared = shared;
  }

  /** Like `LeaseProvider.acquire`. Grants the lease after all replicas have agreed on a member for its session. */
  acquire(request: LeaseRequest): Answer | Promise<Answer> {
    const answer = this.#pool.acquire(request);
    if (request.routing.session === undefined || this.#isClosed) return answer;
    return answer instanceof Promise
      ? answer.then((late) => this.#agreed(request, late))
      : this.#agreed(request, answer);
  }

  /** Opens or moves a session for another process of this machine; see `SharedPool.bindSession`. */
  async bind(proposed: SharedSession, from: string | undefined): Promise<SharedSession> {
    const known = this.#sharing.session(proposed.name);
    if (known?.member !== undefined && known.member !== from) return known;
    const agreed = await this.#shared.bindSession(proposed, from);
    // Another process of this machine may have proposed a member during this call. The whole machine uses the answer that
    // arrived first. The answers differ only if the store is unavailable.
    const member = this.#sharing.session(proposed.name)?.member;
    if (member === undefined || member === from) this.#sharing.confirm(agreed ?? proposed);
    return this.#sharing.session(proposed.name) ?? agreed ?? proposed;
  }

  /** Returns a session of any replica, which this replica knows from then on. */
  async find(name: string): Promise<SharedSession | undefined> {
    const known = this.#sharing.session(name);
    if (known !== undefined || this.#isClosed) return known;
    const found = await this.#shared.findSession(name);
    if (found !== undefined && this.#sharing.session(name) === undefined) this.#sharing.confirm(found);
    return this.#sharing.session(name);
  }

  /** Stops opening sessions in the shared pool. `acquire` still grants leases. */
  close(): void {
    this.#isClosed = true;
  }

  /** Returns the lease if the replicas agree on its member; otherwise acquires a new lease. */
  #agreed(request: LeaseRequest, answer: Answer): Answer | Promise<Answer> {
    if (!isLease(answer) || answer.session === undefined) return answer;
    const { session, member } = answer;
    this.#sharing.failOver(session, member);
    if (!this.#sharing.isUnconfirmed(session) && !this.#proposed.has(session)) return answer;
    return this.#propose(session).then(() => {
      const agreed = this.#sharing.session(session)?.member;
      if (agreed === undefined || agreed === member) return answer;
      this.#pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      return this.acquire(request);
    });
  }

  /** Concurrent requests of the session wait for the same result. */
  #propose(name: string): Promise<void> {
    const proposed = this.#proposed.get(name) ?? this.#proposeOnce(name);
    this.#proposed.set(name, proposed);
    return proposed;
  }

  async #proposeOnce(name: string): Promise<void> {
    const proposal = this.#sharing.propose(name);
    const agreed = proposal && (await this.#shared.bindSession(proposal.session, proposal.from));
    this.#proposed.delete(name);
    // without an answer in time, the session keeps what it has: the proposal, or what other replicas have said meanwhile
    if (agreed !== undefined) this.#sharing.confirm(agreed);
  }
}
