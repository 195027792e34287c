/**
 * One dial under way: the attempts of one client request, one after the other and at most two beside each other, until a
 * member accepts, nothing is left to try, the deadline passes or the client leaves.
 *
 * Owns its attempts, its deadlines and its place in the pool's queue. After it is won, an attempt that lost goes on until
 * its own timeout, to learn whether its member is slow or silent; the dialer holds the race until then.
 */
import type { Deadline } from '../core/deadlines.ts';
import type { NoriaEvents } from '../core/events.ts';
import type { Listed, LiveList } from '../core/live-list.ts';
import { isLease, type Lease, type LeaseRefusal } from '../pool/lease.ts';
import { Attempt, type AttemptFailure, type AttemptOwner, type RawConnection } from './attempt.ts';
import { AttemptBudget, type AttemptBudgetSettings, type Standing } from './attempt-budget.ts';
import type { DialFailure, Dialing, DialRequest, DialResult } from './dial.ts';
import { explainFailures, membersFailed, noMember } from './dial-failure.ts';
import { NO_BYTES } from './handshake.ts';
import { Hedge, type HedgeParts, type HedgeSettings } from './hedge.ts';
import type { IdleConnections } from './idle-connections.ts';
import { LeasedConnection } from './leased-connection.ts';
import type { OverdueAttempts } from './overdue-attempts.ts';
import { type DialEnd, type VerdictParts, Verdicts } from './verdicts.ts';

export interface DialSettings extends AttemptBudgetSettings, HedgeSettings {}

/** What all dials of one dialer share. */
export interface DialParts extends VerdictParts, HedgeParts {
  readonly idle: IdleConnections;
  readonly overdueAttempts: OverdueAttempts;
  /** Ways that have not ended. */
  readonly openConnections: LiveList<LeasedConnection>;
  nextRequestId(): number;
  /** The race has nothing open any more. */
  dialFinished(race: RunningDial): void;
}

const NOBODY: readonly string[] = [];

type DialEnded = NoriaEvents['dial.ended'];

export class RunningDial implements Dialing, AttemptOwner, Listed {
  listedAt = -1;
  readonly #done: (result: DialResult) => void;
  readonly #parts: DialParts;
  readonly #settings: DialSettings;
  readonly #request: DialRequest;
  /** `host:port` in canonical form. */
  readonly #target: string;
  readonly #verdicts: Verdicts;
  readonly #allowance: AttemptBudget;
  readonly #hedge: Hedge;
  readonly #avoid: string[];
  readonly #startedAt: number;
  #phase: 'open' | 'won' | 'lost' = 'open';
  readonly #running: Attempt[] = [];
  /** The request that waits at the pool. */
  #takeId: number | undefined;
  #waitSince = 0;
  #deadline: Deadline | undefined;

  constructor(
    parts: DialParts,
    settings: DialSettings,
    request: DialRequest,
    done: (result: DialResult) => void,
  ) {
    this.#done = done;
    this.#parts = parts;
    this.#settings = settings;
    this.#request = request;
    this.#target = request.target.text;
    this.#verdicts = new Verdicts(parts, this.#target);
    this.#allowance = new AttemptBudget(settings);
    this.#hedge = new Hedge(parts, settings, () => this.#overdue());
    this.#avoid = request.avoid === undefined ? [] : [...request.avoid];
    this.#startedAt = parts.clock.monotonic();
  }

  get #elapsedMs(): number {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }

  start(): void {
    this.#parts.budget.earn();
    this.#deadline = this.#parts.deadlines.set(this.#settings.deadlineMs, () => this.#abandon('deadline'));
    this.#seek(false);
  }

  cancel(): void {
    this.#abandon('client-gone');
  }

  /** The dialer closes: nothing of this race stays open but a way that was handed over. */
  close(): void {
    this.#abandon('shutting-down');
    this.#cancelRunning();
    this.#overIfIdle();
  }

  attemptAccepted(attempt: Attempt): void {
    const { lease, hedge } = attempt;
    this.#leave(attempt);
    this.#verdicts.accepted(attempt);
    const way = attempt.takeConnection();
    if (way === undefined) return;
    if (this.#phase === 'open') {
      if (hedge) this.#hedge.ended('won');
      else if (this.#running.length > 0) this.#hedge.ended('lost');
      this.#win(lease, way, false);
    } else {
      way.socket.destroy(); // slow, but it answered: that is all there was to learn
      this.#parts.pool.report({ lease: lease.id, kind: 'closed', cut: false });
      this.#overIfIdle();
    }
  }

  attemptFailed(attempt: Attempt, failure: AttemptFailure): void {
    this.#leave(attempt);
    this.#verdicts.failed(attempt, failure);
    if (this.#phase !== 'open') {
      this.#overIfIdle();
      return;
    }
    this.#allowance.failed(failure.ms);
    if (attempt.hedge) this.#hedge.ended('failed');
    this.#goOn();
  }

  /** What to do now that an attempt has failed. */
  #goOn(): void {
    if (this.#takeId !== undefined) return; // the pool's answer will decide
    if (this.#running.length > 0) this.#seekHedge();
    else if (this.#mayTryAnother()) this.#seek(false);
    else this.#fail();
  }

  get #standing(): Standing {
    return { running: this.#running.length, doubts: this.#verdicts.doubts };
  }

  #mayTryAnother(): boolean {
    const reachable = this.#parts.witnesses.targetReached(this.#target);
    return this.#allowance.mayTryAnother(this.#standing, reachable);
  }

  /** @param spurned - members not wanted beside those tried already. */
  #seek(hedge: boolean, spurned = NOBODY): void {
    const id = this.#parts.nextRequestId();
    const answer = this.#parts.pool.acquire({
      id,
      routing: this.#request.routing,
      targetHost: this.#request.target.host,
      avoid: this.#avoid.length + spurned.length === 0 ? NOBODY : [...this.#avoid, ...spurned],
      waitMs: hedge ? 0 : this.#allowance.mayWaitMs(this.#elapsedMs, this.#standing),
    });
    if (!(answer instanceof Promise)) {
      this.#takeAnswer(answer, hedge, spurned);
      return;
    }
    this.#takeId = id;
    this.#waitSince = this.#parts.clock.monotonic();
    void answer.then((later) => {
      this.#stopWaiting();
      this.#takeAnswer(later, hedge, spurned);
    });
  }

  #takeAnswer(answer: Lease | LeaseRefusal, hedge: boolean, spurned: readonly string[]): void {
    const { pool } = this.#parts;
    const open = this.#phase === 'open';
    if (isLease(answer)) {
      if (open) this.#use(answer, hedge);
      else pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      if (hedge && !open) this.#hedge.refund();
    } else if (!hedge) {
      if (open) this.#refuse(answer);
    } else if (open && spurned.length > 0) {
      this.#seek(true); // rather a slow one than none
    } else {
      this.#hedge.refund();
      // When the attempt it was for has failed meanwhile, the next one is an attempt like any other.
      if (open && this.#running.length === 0) this.#goOn();
    }
  }

  #use(lease: Lease, hedge: boolean): void {
    this.#avoid.push(lease.member);
    this.#allowance.tried();
    if (this.#reuse(lease, hedge)) return;
    const { target, use } = this.#request;
    const timeoutMs = this.#settings.attemptTimeoutMs;
    const memory = this.#parts.memoryOf(lease.source);
    const attempt = new Attempt(memory, this, { lease, target, use, hedge, timeoutMs });
    this.#running.push(attempt);
    if (!hedge) this.#hedge.arm(lease, memory.latency.profile?.p95Ms);
    attempt.start();
  }

  /** An idle connection of the leased member to this target serves a plain HTTP request, if there is one. */
  #reuse(lease: Lease, hedge: boolean): boolean {
    const { use, fresh } = this.#request;
    if (use === 'tunnel' || fresh === true) return false;
    const idle = this.#parts.idle.take(lease.member, this.#target);
    if (idle === undefined) return false;
    this.#parts.pool.report({ lease: lease.id, kind: 'accepted' });
    if (hedge) this.#hedge.ended('won');
    this.#win(lease, { ...idle, head: NO_BYTES }, true);
    return true;
  }

  #overdue(): void {
    for (const attempt of this.#running) this.#parts.overdueAttempts.add(attempt);
    this.#seekHedge();
  }

  /** Starts another attempt beside one that is overdue; a hedge that failed itself is replaced. */
  #seekHedge(): void {
    const [first] = this.#running;
    const alone = this.#running.length === 1 && this.#takeId === undefined;
    if (first === undefined || !alone || !this.#mayTryAnother() || !this.#hedge.spend()) return;
    const { overdueAttempts: laggards, memoryOf } = this.#parts;
    const slow = memoryOf(first.lease.source).latency.profile?.slowMembers ?? NOBODY;
    this.#seek(true, laggards.membersToAvoid(slow, this.#avoid));
  }

  #win(lease: Lease, raw: RawConnection, reused: boolean): void {
    this.#conclude('won', { kind: 'reached', by: lease.member });
    const { overdueAttempts: laggards, memoryOf } = this.#parts;
    for (const loser of this.#running) laggards.add(loser); // slower than the other, at least
    const way = new LeasedConnection(this.#parts, {
      raw,
      lease,
      credentials: memoryOf(lease.source).credentials,
      reused,
      reusable: this.#request.use === 'forward',
      attempts: this.#allowance.triedCount,
      target: this.#target,
    });
    this.#tellEnd('accepted', lease);
    this.#overIfIdle();
    this.#done({ ok: true, connection: way });
  }

  /** There is no further member to be had. */
  #refuse(refusal: LeaseRefusal): void {
    const failed = refusal.refused === 'pool-empty' && this.#verdicts.failures.length > 0;
    if (failed) this.#fail();
    else this.#lose(noMember(refusal, this.#allowance.triedCount));
  }

  /** Members were tried, and none of them accepted. */
  #fail(): void {
    this.#lose(membersFailed(this.#verdicts.failures, this.#allowance.triedCount, this.#elapsedMs));
  }

  #abandon(code: 'deadline' | 'client-gone' | 'shutting-down'): void {
    if (this.#phase !== 'open') return;
    const reason = explainFailures(this.#verdicts.failures, this.#elapsedMs);
    this.#lose({ code, reason, attempts: this.#allowance.triedCount });
  }

  #lose(failure: DialFailure): void {
    this.#cancelRunning();
    const gone = failure.code === 'client-gone' || failure.code === 'shutting-down';
    this.#conclude('lost', { kind: gone ? 'client-gone' : 'nobody-reached' });
    this.#tellEnd(failure.code);
    this.#overIfIdle();
    this.#done({ ok: false, failure });
  }

  /** The outcome is certain: nothing is waited for any more, and the failures so far are judged. */
  #conclude(phase: 'won' | 'lost', end: DialEnd): void {
    const { deadlines, pool } = this.#parts;
    this.#phase = phase;
    if (this.#deadline !== undefined) deadlines.clear(this.#deadline);
    this.#hedge.disarm();
    if (this.#takeId !== undefined) pool.cancel(this.#takeId);
    this.#stopWaiting();
    this.#verdicts.close(end);
  }

  #stopWaiting(): void {
    if (this.#takeId !== undefined) this.#allowance.waited(this.#parts.clock.monotonic() - this.#waitSince);
    this.#takeId = undefined;
  }

  #cancelRunning(): void {
    for (const attempt of [...this.#running]) {
      const { phase } = attempt;
      attempt.cancel();
      this.#leave(attempt);
      this.#verdicts.cancelled(attempt, phase);
    }
  }

  #leave(attempt: Attempt): void {
    const at = this.#running.indexOf(attempt);
    if (at === this.#running.length - 1) this.#running.pop();
    else this.#running.splice(at, 1);
    this.#parts.overdueAttempts.delete(attempt);
  }

  #overIfIdle(): void {
    if (this.#running.length === 0) this.#parts.dialFinished(this);
  }

  #tellEnd(outcome: DialEnded['outcome'], lease?: Lease): void {
    const { bus } = this.#parts;
    if (!bus.hears('dial.ended')) return;
    const event: { -readonly [Key in keyof DialEnded]: DialEnded[Key] } = {
      outcome,
      attempts: this.#allowance.triedCount,
      ms: this.#elapsedMs,
      waitedMs: this.#allowance.waitedMs,
      target: this.#target,
    };
    if (lease !== undefined) {
      event.source = lease.source;
      event.member = lease.member;
      if (lease.remainingMs !== undefined) event.remainingMs = lease.remainingMs;
    }
    bus.emit('dial.ended', event);
  }
}
