/**
 * One dial in progress: tries one member after the other until one accepts, none is left, the deadline passes or the
 * client disconnects. A slow attempt gets a hedge in parallel. Owns its attempts, its deadline and its waiting request
 * in the pool.
 *
 * After success, a slower attempt continues until its own timeout, to find out whether its member is slow or silent.
 * The dialer keeps the dial until then.
 */
import type { Deadline } from '../core/deadlines.ts';
import type { NoriaEvents } from '../core/events.ts';
import type { Listed } from '../core/live-list.ts';
import type { Lease, LeaseRefusal } from '../pool/lease.ts';
import { Attempt, type AttemptOwner } from './attempt.ts';
import { AttemptBudget, type AttemptBudgetSettings } from './attempt-budget.ts';
import type { AttemptFailure, AttemptParts, RawConnection } from './attempt-contract.ts';
import { type BlameParts, DialBlame, type DialEnd } from './blame.ts';
import type { DialFailure, Dialing, DialRequest, DialResult } from './dial.ts';
import { describeAttempts, failureAfterAttempts } from './dial-failure.ts';
import { helpsAnotherMember } from './front-handshake.ts';
import { NO_BYTES } from './handshake.ts';
import { Hedge, type HedgeParts, type HedgeSettings, type OverdueAttempts } from './hedge.ts';
import { type ConnectionParts, LeasedConnection } from './leased-connection.ts';
import { MemberSearch, type SearchOwner, type SearchParts } from './member-search.ts';
import type { TakenConnection } from './warm-connection.ts';
import type { WarmConnections } from './warm-connections.ts';

export interface DialSettings extends AttemptBudgetSettings, HedgeSettings {}

export interface DialParts extends AttemptParts, BlameParts, ConnectionParts, HedgeParts, SearchParts {
  readonly overdueAttempts: OverdueAttempts;
  readonly warm: WarmConnections;
  /** Called when all attempts and requests of the dial have ended. */
  dialFinished(dial: RunningDial): void;
}

const NONE: readonly string[] = [];

type DialEnded = NoriaEvents['dial.ended'];

export class RunningDial implements Dialing, AttemptOwner, SearchOwner, Listed {
  listIndex = -1;
  readonly #parts: DialParts;
  readonly #settings: DialSettings;
  readonly #request: DialRequest;
  readonly #onResult: (result: DialResult) => void;
  readonly #blame: DialBlame;
  readonly #budget: AttemptBudget;
  readonly #hedge: Hedge;
  readonly #search: MemberSearch;
  readonly #startedAt: number;
  #phase: 'open' | 'connected' | 'failed' = 'open';
  readonly #running: Attempt[] = [];
  #deadline: Deadline | undefined;
  #startedOver = false;

  constructor(
    parts: DialParts,
    settings: DialSettings,
    request: DialRequest,
    onResult: (result: DialResult) => void,
  ) {
    this.#parts = parts;
    this.#settings = settings;
    this.#request = request;
    this.#onResult = onResult;
    this.#blame = new DialBlame(parts, request.target.text, request.record);
    this.#budget = new AttemptBudget(settings);
    this.#hedge = new Hedge(parts, settings, () => this.#onOverdue());
    this.#search = new MemberSearch(parts, request, this.#budget, this);
    this.#startedAt = parts.clock.monotonic();
  }

  get #elapsedMs(): number {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }

  start(): void {
    this.#parts.hedgeBudget.earn();
    const { deadlineMs } = this.#settings;
    this.#deadline = this.#parts.deadlines.set(deadlineMs, () => this.#abort('deadline'), this.#startedAt);
    // If members were tried before this dial, it is a retry. The client's budget for further attempts must allow it.
    if (this.#search.tried.length > 0 && !this.#parts.clientBudgets.allows(this.#client))
      this.#failAfterAttempts();
    else this.#acquireNext();
  }

  cancel(): void {
    this.#abort('client-gone');
  }

  /** Closes everything except a connection that was passed to the listener. Called when the dialer closes. */
  close(): void {
    this.#abort('shutting-down');
    this.#cancelAttempts();
    this.#finishIfIdle();
  }

  attemptAccepted(attempt: Attempt, connection: RawConnection, now: number): void {
    const { lease, hedge } = attempt;
    this.#remove(attempt);
    this.#blame.accepted(attempt, connection.forwardMode, now);
    if (this.#phase === 'open') {
      if (hedge) this.#hedge.ended('won');
      else if (this.#running.length > 0) this.#hedge.ended('lost');
      this.#succeed(attempt.lease, connection, false);
    } else {
      // The dial has already ended, so noria does not use the connection.
      connection.socket.destroy();
      this.#parts.pool.report({ lease: lease.id, kind: 'closed', cut: false });
      this.#finishIfIdle();
    }
  }

  attemptFailed(attempt: Attempt, failure: AttemptFailure): void {
    this.#remove(attempt);
    this.#blame.failed(attempt, failure);
    if (this.#phase !== 'open') {
      this.#finishIfIdle();
      return;
    }
    if (!failure.withheld) this.#budget.failed(failure.ms);
    if (attempt.hedge) this.#hedge.ended('failed');
    this.#continue();
  }

  #continue(): void {
    if (this.#search.isWaiting) return; // the dial waits for the pool, and continues when the pool answers
    if (this.#running.length > 0) this.#startHedge();
    else if (this.#mayTryAnother()) this.#acquireNext();
    else this.#failAfterAttempts();
  }

  #mayTryAnother(): boolean {
    if (this.#blame.mayBeTarget && !this.#parts.clientBudgets.allows(this.#client)) return false;
    const { failures, allAtFrontProxy } = this.#blame;
    if (allAtFrontProxy && !helpsAnotherMember(failures, this.#settings.attempts)) return false;
    const sinceReachedMs = this.#parts.reachability.sinceReachedMs(this.#request.target.text);
    return this.#budget.allowsAnother(this.#running.length, this.#blame.reportPoints, sinceReachedMs);
  }

  /**
   * Acquires a member, preferably one that has not failed for this target. After a failed attempt, the dial prefers a
   * member without an overdue attempt: a second silent member would cost another `attemptTimeout`. A session keeps its
   * member.
   */
  #acquireNext(): void {
    const { reachability, overdueAttempts } = this.#parts;
    const { routing, target } = this.#request;
    let avoid = NONE;
    if (routing.session === undefined) {
      avoid = reachability.membersToAvoid(target.text);
      if (this.#budget.attempts > 0 && overdueAttempts.size > 0) {
        avoid = overdueAttempts.membersToAvoid(avoid, this.#search.tried);
      }
    }
    this.#acquire(false, avoid);
  }

  #acquire(hedge: boolean, avoid = NONE): void {
    const waitMs = hedge || this.#isWaitUseless ? 0 : this.#maxWaitMs;
    this.#search.start({ hedge, avoid, waitMs });
  }

  get #client(): string {
    return this.#request.routing.client ?? '';
  }

  /**
   * Whether another member would probably fail as well: true if all members so far required credentials, or if the
   * front proxy reached no member so far.
   */
  get #isWaitUseless(): boolean {
    return this.#blame.allRequireCredentials || this.#blame.allAtFrontProxy;
  }

  get #maxWaitMs(): number {
    const isFirst = this.#budget.attempts === 0;
    return this.#budget.maxWaitMs(isFirst ? 0 : this.#elapsedMs, this.#blame.reportPoints);
  }

  memberFound(lease: Lease, hedge: boolean): void {
    this.#budget.started();
    this.#parts.clientBudgets.attempted();
    if (this.#reuseIdle(lease, hedge)) return;
    const { target, use, connectOnly } = this.#request;
    const timeoutMs = this.#settings.attemptTimeoutMs;
    const attempt = new Attempt(this.#parts, this, {
      lease,
      target,
      use,
      connectOnly,
      hedge,
      timeoutMs,
      warm: this.#takeWarm(lease),
    });
    this.#running.push(attempt);
    if (!hedge) this.#armHedge(attempt);
    const isFirst = this.#budget.attempts === 1;
    attempt.start();
    if (isFirst) this.#parts.warm.used(this.#request.routing, lease);
  }

  #takeWarm(lease: Lease): TakenConnection | undefined {
    const { target, noReuse } = this.#request;
    if (noReuse === true) {
      const { forwardMode } = this.#parts.memoryOf(lease.source);
      // noria must not send a request with `noReuse` twice. A request in absolute form is lost if the member has
      // already closed the warm connection. So noria opens a new connection for it.
      if (forwardMode.first(target.text) === 'absolute') return undefined;
    }
    return this.#parts.warm.take(lease);
  }

  /**
   * Arms the hedge of an attempt. An attempt on a warm connection is faster, but has the same delay. With a shorter
   * delay, the pauses of a busy machine would start a hedge for every twentieth tunnel.
   */
  #armHedge({ lease, memory, startedAt }: Attempt): void {
    this.#hedge.arm(lease, memory.latency.profile?.p95Ms, startedAt);
  }

  /**
   * Serves a plain HTTP request through an idle connection to the leased member. Returns false if there is no such
   * connection.
   */
  #reuseIdle(lease: Lease, hedge: boolean): boolean {
    const { use, noReuse, target, owner = '' } = this.#request;
    if (use === 'tunnel' || noReuse === true) return false;
    const { forwardMode } = this.#parts.memoryOf(lease.source);
    const idle = this.#parts.idle.take({
      member: lease.member,
      target: target.text,
      forwardMode: forwardMode.first(target.text),
      owner,
    });
    if (idle === undefined) return false;
    this.#parts.pool.report({ lease: lease.id, kind: 'accepted' });
    if (hedge) this.#hedge.ended('won');
    const { member, source, exitIp } = lease;
    const reused = { member, source, exit: exitIp ?? null, ms: 0, code: null };
    this.#request.record?.addAttempt(reused, this.#parts.clock.monotonic());
    this.#succeed(lease, { ...idle, early: NO_BYTES, isWarm: false }, true);
    return true;
  }

  #onOverdue(): void {
    for (const attempt of this.#running) this.#parts.overdueAttempts.add(attempt);
    this.#startHedge();
  }

  /** Starts a hedge for the only attempt in progress. Also called after an earlier hedge failed. */
  #startHedge(): void {
    const [first] = this.#running;
    const single = this.#running.length === 1 && !this.#search.isWaiting;
    if (first === undefined || !single || !this.#mayTryAnother() || !this.#hedge.spend()) return;
    const slow = first.memory.latency.profile?.slowMembers ?? NONE;
    this.#acquire(true, this.#parts.overdueAttempts.membersToAvoid(slow, this.#search.tried));
  }

  #succeed(lease: Lease, raw: RawConnection, reused: boolean): void {
    const reachedBy = raw.forwardMode === 'direct' ? lease.member : undefined;
    this.#end('connected', { kind: 'connected', reachedBy });
    for (const slower of this.#running) this.#parts.overdueAttempts.add(slower);
    const connection = new LeasedConnection(this.#parts, {
      raw,
      lease,
      memory: this.#parts.memoryOf(lease.source),
      reused: reused || raw.isWarm,
      reusable: this.#request.use === 'forward',
      attempts: this.#budget.attempts,
      client: this.#client,
      target: this.#request.target.text,
      owner: this.#request.owner ?? '',
    });
    this.#emitEnded('accepted', lease);
    this.#finishIfIdle();
    this.#onResult({ ok: true, connection });
  }

  noHedgeFound(): void {
    this.#hedge.refund();
    // The slow attempt may have failed while the dial waited for the pool. No attempt is then in progress, so the dial
    // has to continue here.
    if (this.#phase === 'open' && this.#running.length === 0) this.#continue();
  }

  noMemberFound(refusal: LeaseRefusal): void {
    const { failures, allRequireCredentials } = this.#blame;
    const tried = refusal.code === 'pool-empty' && failures.length > 0;
    const isWithheld = allRequireCredentials && failures.some(({ withheld }) => withheld);
    if (tried && isWithheld && !this.#startedOver) {
      // Every member that the dial tried required credentials. noria did not send the instance's credentials to some of
      // these members, because it did not know yet that all of them require credentials. The dial now tries all members
      // again, and sends the credentials to each member that requires them.
      this.#startedOver = true;
      this.#search.startOver();
      this.#acquire(false);
    } else if (tried) this.#failAfterAttempts();
    else this.#fail({ ...refusal, attempts: this.#budget.attempts });
  }

  #failAfterAttempts(): void {
    this.#fail(failureAfterAttempts(this.#blame, this.#budget.attempts, this.#elapsedMs));
  }

  #abort(code: 'deadline' | 'client-gone' | 'shutting-down'): void {
    if (this.#phase !== 'open') return;
    const { attempts } = this.#budget;
    const reason = describeAttempts(this.#blame.failures, attempts, this.#elapsedMs);
    this.#fail({ code, reason, attempts });
  }

  #fail(failure: DialFailure): void {
    this.#cancelAttempts();
    if (this.#blame.mayBeTarget) this.#parts.clientBudgets.charge(this.#client, this.#budget.attempts - 1);
    const clientLeft = failure.code === 'client-gone' || failure.code === 'shutting-down';
    this.#end('failed', { kind: clientLeft ? 'client-left' : 'failed' });
    this.#emitEnded(failure.code);
    this.#finishIfIdle();
    this.#onResult({ ok: false, failure });
  }

  /** Ends the dial: cancels its timers and requests, and decides the blame for its failures. */
  #end(phase: 'connected' | 'failed', end: DialEnd): void {
    const { deadlines } = this.#parts;
    this.#phase = phase;
    if (this.#deadline !== undefined) deadlines.clear(this.#deadline);
    this.#hedge.disarm();
    this.#search.close();
    this.#blame.close(end);
  }

  #cancelAttempts(): void {
    for (const attempt of [...this.#running]) {
      const { phase } = attempt;
      attempt.cancel();
      this.#remove(attempt);
      this.#blame.cancelled(attempt, phase);
    }
  }

  #remove(attempt: Attempt): void {
    const at = this.#running.indexOf(attempt);
    if (at === this.#running.length - 1) this.#running.pop();
    else this.#running.splice(at, 1);
    this.#parts.overdueAttempts.delete(attempt);
  }

  #finishIfIdle(): void {
    if (this.#running.length === 0) this.#parts.dialFinished(this);
  }

  #emitEnded(outcome: DialEnded['outcome'], lease?: Lease): void {
    const { bus } = this.#parts;
    if (!bus.hasSubscribers('dial.ended')) return;
    const event: { -readonly [Key in keyof DialEnded]: DialEnded[Key] } = {
      outcome,
      attempts: this.#budget.attempts,
      ms: this.#elapsedMs,
      waitedMs: this.#budget.waitedMs,
      target: this.#request.target.text,
    };
    if (lease !== undefined) {
      event.source = lease.source;
      event.member = lease.member;
      if (lease.remainingMs !== undefined) event.remainingMs = lease.remainingMs;
    }
    if (this.#request.record !== undefined) event.request = this.#request.record.id;
    bus.emit('dial.ended', event);
  }
}
