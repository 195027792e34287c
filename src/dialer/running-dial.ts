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
import { isLease, type Lease, type LeaseRefusal } from '../pool/lease.ts';
import { Attempt, type AttemptOwner } from './attempt.ts';
import { AttemptBudget, type AttemptBudgetSettings } from './attempt-budget.ts';
import type { AttemptFailure, AttemptParts, RawConnection } from './attempt-contract.ts';
import { type BlameParts, DialBlame, type DialEnd } from './blame.ts';
import type { DialFailure, Dialing, DialRequest, DialResult } from './dial.ts';
import { describeAttempts, describeFrontProxy, noMember } from './dial-failure.ts';
import { helpsAnotherMember } from './front-problem.ts';
import { NO_BYTES } from './handshake.ts';
import { Hedge, type HedgeParts, type HedgeSettings, type OverdueAttempts } from './hedge.ts';
import { type ConnectionParts, LeasedConnection } from './leased-connection.ts';
import type { TakenConnection } from './warm-connection.ts';
import type { WarmConnections } from './warm-connections.ts';

export interface DialSettings extends AttemptBudgetSettings, HedgeSettings {}

/** What all dials of one dialer share. */
export interface DialParts extends AttemptParts, BlameParts, ConnectionParts, HedgeParts {
  readonly overdueAttempts: OverdueAttempts;
  readonly warm: WarmConnections;
  nextRequestId(): number;
  /** Called when all attempts and requests of the dial have ended. */
  dialFinished(dial: RunningDial): void;
}

const NONE: readonly string[] = [];

type DialEnded = NoriaEvents['dial.ended'];

export class RunningDial implements Dialing, AttemptOwner, Listed {
  listedAt = -1;
  readonly #parts: DialParts;
  readonly #settings: DialSettings;
  readonly #request: DialRequest;
  readonly #onResult: (result: DialResult) => void;
  readonly #blame: DialBlame;
  readonly #budget: AttemptBudget;
  readonly #hedge: Hedge;
  readonly #tried: string[];
  readonly #startedAt: number;
  #phase: 'open' | 'connected' | 'failed' = 'open';
  readonly #running: Attempt[] = [];
  /** The id of the request that waits in the pool. */
  #waitingId: number | undefined;
  #waitingSince = 0;
  #deadline: Deadline | undefined;
  #askedAll = false;

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
    this.#blame = new DialBlame(parts, request.target.text);
    this.#budget = new AttemptBudget(settings);
    this.#hedge = new Hedge(parts, settings, () => this.#onOverdue());
    this.#tried = request.avoid === undefined ? [] : [...request.avoid];
    this.#startedAt = parts.clock.monotonic();
  }

  get #elapsedMs(): number {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }

  start(): void {
    this.#parts.hedgeBudget.earn();
    this.#deadline = this.#parts.deadlines.set(this.#settings.deadlineMs, () => this.#abort('deadline'));
    // With `avoid`, this dial is a retry: other members have already failed for this client request.
    if (this.#tried.length > 0 && !this.#parts.clientBudgets.allows(this.#client)) this.#failAfterAttempts();
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

  attemptAccepted(attempt: Attempt, connection: RawConnection): void {
    const { lease, hedge } = attempt;
    this.#remove(attempt);
    this.#blame.accepted(attempt, connection.forwardMode);
    if (this.#phase === 'open') {
      if (hedge) this.#hedge.ended('won');
      else if (this.#running.length > 0) this.#hedge.ended('lost');
      this.#succeed(attempt.lease, connection, false);
    } else {
      // The connection is too late to be used, but the attempt has measured the member's latency.
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

  /** Decides what to do after a failed attempt. */
  #continue(): void {
    if (this.#waitingId !== undefined) return; // the dial continues when the pool answers
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
   * Acquires a member, preferably one that has not failed for this target. After a failed attempt it prefers a member
   * without an overdue attempt: a second silent member would cost another `attemptTimeout`. A session keeps its member.
   */
  #acquireNext(): void {
    const { reachability, overdueAttempts } = this.#parts;
    const { routing, target } = this.#request;
    let avoid = NONE;
    if (routing.session === undefined) {
      avoid = reachability.membersToAvoid(target.text);
      if (this.#budget.attempts > 0 && overdueAttempts.size > 0) {
        avoid = overdueAttempts.membersToAvoid(avoid, this.#tried);
      }
    }
    this.#acquire(false, avoid);
  }

  /**
   * Asks the pool for the next member.
   * @param avoid - the members to avoid in addition to those already tried.
   */
  #acquire(hedge: boolean, avoid = NONE): void {
    const id = this.#parts.nextRequestId();
    const answer = this.#parts.pool.acquire({
      id,
      routing: this.#request.routing,
      targetHost: this.#request.target.host,
      hedge,
      avoid: this.#tried.length + avoid.length === 0 ? NONE : [...this.#tried, ...avoid],
      // Waiting does not help when a new member would probably fail as well, or when an avoided member is available.
      waitMs: hedge || avoid.length > 0 || this.#isWaitUseless ? 0 : this.#maxWaitMs,
    });
    if (!(answer instanceof Promise)) {
      this.#onPoolAnswer(answer, hedge, avoid);
      return;
    }
    this.#waitingId = id;
    this.#waitingSince = this.#parts.clock.monotonic();
    void answer.then((later) => {
      this.#stopWaiting();
      this.#onPoolAnswer(later, hedge, avoid);
    });
  }

  get #client(): string {
    return this.#request.routing.client ?? '';
  }

  /**
   * Whether a new member would probably fail as well, because members require credentials or the front proxy does not
   * reach them.
   */
  get #isWaitUseless(): boolean {
    return this.#blame.allRequireCredentials || this.#blame.allAtFrontProxy;
  }

  get #maxWaitMs(): number {
    return this.#budget.maxWaitMs(this.#elapsedMs, this.#blame.reportPoints);
  }

  #onPoolAnswer(answer: Lease | LeaseRefusal, hedge: boolean, avoided: readonly string[]): void {
    if (this.#phase !== 'open') this.#onLateAnswer(answer, hedge);
    else if (isLease(answer)) this.#use(answer, hedge);
    else if (avoided.length > 0)
      this.#acquire(hedge); // a slow or failing member is better than none
    else if (!hedge) this.#onRefusal(answer);
    else {
      this.#hedge.refund();
      // The slow attempt may have failed while the pool was asked. Without an attempt in progress, the dial has to
      // continue here.
      if (this.#running.length === 0) this.#continue();
    }
  }

  /** Releases the lease if the pool answers after the end of the dial. */
  #onLateAnswer(answer: Lease | LeaseRefusal, hedge: boolean): void {
    if (hedge) this.#hedge.refund();
    if (!isLease(answer)) return;
    this.#parts.pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
  }

  #use(lease: Lease, hedge: boolean): void {
    this.#tried.push(lease.member);
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

  /** Takes the warm connection to the member, if there is one and this request may use it. */
  #takeWarm(lease: Lease): TakenConnection | undefined {
    const { target, fresh } = this.#request;
    const { forwardMode } = this.#parts.memoryOf(lease.source);
    // In absolute form, the request itself is the first message on the connection. If the connection is closed, the
    // request is lost, and a `fresh` request cannot be repeated.
    if (fresh === true && forwardMode.first(target.text) === 'absolute') return undefined;
    return this.#parts.warm.take(lease);
  }

  #armHedge({ lease, memory, savedMs }: Attempt): void {
    const p95Ms = memory.latency.profile?.p95Ms;
    this.#hedge.arm(lease, p95Ms && Math.max(0, p95Ms - savedMs));
  }

  /** Serves a plain HTTP request through an idle connection to the leased member. Returns false if there is none. */
  #reuseIdle(lease: Lease, hedge: boolean): boolean {
    const { use, fresh, target, owner = '' } = this.#request;
    if (use === 'tunnel' || fresh === true) return false;
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
    this.#succeed(lease, { ...idle, head: NO_BYTES, isWarm: false }, true);
    return true;
  }

  #onOverdue(): void {
    for (const attempt of this.#running) this.#parts.overdueAttempts.add(attempt);
    this.#startHedge();
  }

  /** Starts a hedge for the only attempt in progress. Also called after an earlier hedge failed. */
  #startHedge(): void {
    const [first] = this.#running;
    const single = this.#running.length === 1 && this.#waitingId === undefined;
    if (first === undefined || !single || !this.#mayTryAnother() || !this.#hedge.spend()) return;
    const slow = first.memory.latency.profile?.slowMembers ?? NONE;
    this.#acquire(true, this.#parts.overdueAttempts.membersToAvoid(slow, this.#tried));
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

  #onRefusal(refusal: LeaseRefusal): void {
    const { failures, allRequireCredentials } = this.#blame;
    const tried = refusal.refused === 'pool-empty' && failures.length > 0;
    const isWithheld = allRequireCredentials && failures.some(({ withheld }) => withheld);
    if (tried && isWithheld && !this.#askedAll) {
      this.#askedAll = true; // all members are tried again: the first that requires credentials a second time gets them
      this.#tried.splice(0, this.#tried.length, ...(this.#request.avoid ?? []));
      this.#acquire(false);
    } else if (tried) this.#failAfterAttempts();
    else this.#fail(noMember(refusal, this.#budget.attempts));
  }

  #failAfterAttempts(): void {
    const { failures, isTargetUnreachable, allAtFrontProxy } = this.#blame;
    const { attempts } = this.#budget;
    if (allAtFrontProxy) {
      this.#fail({ code: 'front-proxy-failed', reason: describeFrontProxy(failures), attempts });
      return;
    }
    const reason = describeAttempts(failures, attempts, this.#elapsedMs);
    if (!isTargetUnreachable) this.#fail({ code: 'members-failed', reason, attempts });
    else {
      // One report of a refused connection is enough, because other members may report the same target as "unreachable"
      // or with status 502.
      const targetRefused = failures.some((failure) => failure.targetRefused);
      this.#fail({ code: 'target-unreachable', reason, attempts, targetRefused });
    }
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
    const { deadlines, pool } = this.#parts;
    this.#phase = phase;
    if (this.#deadline !== undefined) deadlines.clear(this.#deadline);
    this.#hedge.disarm();
    if (this.#waitingId !== undefined) pool.cancel(this.#waitingId);
    this.#stopWaiting();
    this.#blame.close(end);
  }

  #stopWaiting(): void {
    if (this.#waitingId === undefined) return;
    this.#waitingId = undefined;
    this.#budget.waited(this.#parts.clock.monotonic() - this.#waitingSince);
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
    bus.emit('dial.ended', event);
  }
}
