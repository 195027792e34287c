/**
 * Asks the pool for the members of one dial, one after the other. Knows the members that were tried already, and owns
 * the request that waits in the pool.
 */
import type { Clock } from '../core/clock.ts';
import { isLease, type Lease, type LeaseProvider, type LeaseRefusal } from '../pool/lease.ts';
import type { AttemptBudget } from './attempt-budget.ts';
import type { DialRequest } from './dial.ts';

export interface SearchParts {
  readonly clock: Clock;
  readonly pool: LeaseProvider;
  readonly leases: Pick<LeaseProvider, 'acquire'>;
  nextRequestId(): number;
}

export interface SearchOwner {
  memberFound(lease: Lease, hedge: boolean): void;
  noMemberFound(refusal: LeaseRefusal): void;
  /** No hedge can start: the pool has no member for the hedge, or the search was closed before the pool answered. */
  noHedgeFound(): void;
}

interface SearchTerms {
  readonly hedge: boolean;
  /**
   * Members to avoid, in addition to the members that the dial has tried. If no other member is available, the search
   * accepts one of these members.
   */
  readonly avoid: readonly string[];
  /**
   * How long to wait for a member, in ms. Applies only if the pool has no member at all for this dial, not even one in
   * `avoid`.
   */
  readonly waitMs: number;
}

const NONE: readonly string[] = [];

export class MemberSearch {
  readonly #parts: SearchParts;
  readonly #request: DialRequest;
  readonly #budget: AttemptBudget;
  readonly #owner: SearchOwner;
  #tried: string[];
  #waitingId: number | undefined;
  #waitingSince = 0;
  #closed = false;

  constructor(parts: SearchParts, request: DialRequest, budget: AttemptBudget, owner: SearchOwner) {
    this.#parts = parts;
    this.#request = request;
    this.#budget = budget;
    this.#owner = owner;
    this.#tried = request.avoid === undefined ? [] : [...request.avoid];
  }

  /** The members that the dial does not try again. */
  get tried(): readonly string[] {
    return this.#tried;
  }

  get isWaiting(): boolean {
    return this.#waitingId !== undefined;
  }

  start(terms: SearchTerms): void {
    const { hedge, avoid, waitMs } = terms;
    const id = this.#parts.nextRequestId();
    const answer = this.#parts.leases.acquire({
      id,
      routing: this.#request.routing,
      targetHost: this.#request.target.host,
      hedge,
      avoid: this.#tried.length + avoid.length === 0 ? NONE : [...this.#tried, ...avoid],
      waitMs: avoid.length > 0 ? 0 : waitMs, // accepts a member of `avoid` rather than waiting
    });
    if (!(answer instanceof Promise)) {
      this.#onAnswer(answer, terms);
      return;
    }
    this.#waitingId = id;
    this.#waitingSince = this.#parts.clock.monotonic();
    void answer.then((later) => {
      this.#stopWaiting();
      this.#onAnswer(later, terms);
    });
  }

  /** Allows this dial to try its members a second time. */
  startOver(): void {
    this.#tried = [...(this.#request.avoid ?? NONE)];
  }

  /** Cancels the request that waits in the pool. Idempotent. */
  close(): void {
    this.#closed = true;
    if (this.#waitingId !== undefined) this.#parts.pool.cancel(this.#waitingId);
    this.#stopWaiting();
  }

  #onAnswer(answer: Lease | LeaseRefusal, terms: SearchTerms): void {
    if (this.#closed) this.#onLateAnswer(answer, terms);
    else if (isLease(answer)) {
      this.#tried.push(answer.member);
      this.#owner.memberFound(answer, terms.hedge);
    } else if (terms.avoid.length > 0) this.start({ ...terms, avoid: NONE });
    else if (terms.hedge) this.#owner.noHedgeFound();
    else this.#owner.noMemberFound(answer);
  }

  #onLateAnswer(answer: Lease | LeaseRefusal, { hedge }: SearchTerms): void {
    if (isLease(answer)) {
      this.#parts.pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
    }
    if (hedge) this.#owner.noHedgeFound();
  }

  #stopWaiting(): void {
    if (this.#waitingId === undefined) return;
    this.#waitingId = undefined;
    this.#budget.waited(this.#parts.clock.monotonic() - this.#waitingSince);
  }
}
