/**
 * One dial under way: the attempts of one client request, one after the other and at most two beside each other, until a
 * member accepts, nothing is left to try, the deadline passes or the client leaves.
 *
 * Owns its attempts, its deadlines and its place in the pool's queue. After it is won, an attempt that lost goes on until
 * its own timeout, to learn whether its member is slow or silent; the dialer holds the race until then.
 */
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { NoriaEvents } from '../core/events.ts';
import { formatHostPort } from '../core/host-port.ts';
import { isLease, type Lease, type Refusal } from '../pool/lease.ts';
import { Attempt, type AttemptFailure, type AttemptOwner, type RawWay } from './attempt.ts';
import type { DialFailure, Dialing, DialRequest, DialResult } from './dial.ts';
import { explainFailures, failureCode } from './explain.ts';
import { type HedgeAfter, type HedgeBudget, hedgeDelayMs } from './hedging.ts';
import { NO_BYTES } from './hop.ts';
import type { IdleConnections } from './idle.ts';
import { type DialEnd, type VerdictParts, Verdicts } from './verdicts.ts';
import { Way } from './way.ts';

export interface DialSettings {
  /** Members tried for one client request; those that fail at once do not count. */
  readonly attempts: number;
  readonly attemptTimeoutMs: number;
  readonly hedgeAfter: HedgeAfter;
  /** Everything, waiting for a member included. */
  readonly deadlineMs: number;
  readonly waitForMemberMs: number;
}

/** What all dials of one dialer share. */
export interface DialParts extends VerdictParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly idle: IdleConnections;
  readonly budget: HedgeBudget;
  nextRequestId(): number;
  /** The race has nothing open any more. */
  raceOver(race: Race): void;
}

/** An attempt that fails sooner cost the client next to nothing: it does not count. */
const FAST_FAILURE_MS = 100;
/** ...but there are no more than so many in all. */
const MOST_TRIES = 10;
/** How long a client whose first member said "unreachable" waits for another one's opinion, when none is ready. */
const SECOND_OPINION_WAIT_MS = 2_000;
/** How many members must say that a target is unreachable; one more where another member reached it a moment ago. */
const OPINIONS = 2;

const NOBODY: readonly string[] = [];

export class Race implements Dialing, AttemptOwner {
  readonly result: Promise<DialResult>;
  readonly #settle: (result: DialResult) => void;
  readonly #parts: DialParts;
  readonly #settings: DialSettings;
  readonly #request: DialRequest;
  /** `host:port` in canonical form. */
  readonly #target: string;
  readonly #verdicts: Verdicts;
  readonly #avoid: string[];
  readonly #startedAt: number;
  #phase: 'open' | 'won' | 'lost' = 'open';
  readonly #running: Attempt[] = [];
  #triedCount = 0;
  /** Tries that failed slowly: those that `attempts` limits. */
  #countedCount = 0;
  #waitedMs = 0;
  /** The request that waits at the pool. */
  #takeId: number | undefined;
  #deadline: Deadline | undefined;
  #hedgeTimer: Deadline | undefined;
  #hedgeCharged = false;

  constructor(parts: DialParts, settings: DialSettings, request: DialRequest) {
    const { promise, resolve } = Promise.withResolvers<DialResult>();
    this.result = promise;
    this.#settle = resolve;
    this.#parts = parts;
    this.#settings = settings;
    this.#request = request;
    this.#target = formatHostPort(request.target.host, request.target.port);
    this.#verdicts = new Verdicts(parts, this.#target);
    this.#avoid = request.avoid === undefined ? [] : [...request.avoid];
    this.#startedAt = parts.clock.monotonic();
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
  }

  attemptAccepted(attempt: Attempt): void {
    const { lease, hedge, elapsedMs: ms } = attempt;
    const { pool, network, witnesses, clock, memoryOf } = this.#parts;
    this.#leave(attempt);
    network.answered();
    witnesses.reached(lease.member, this.#target);
    memoryOf(lease.source).latency.add({ member: lease.member, ms, at: clock.monotonic() });
    pool.report({ lease: lease.id, kind: 'accepted', latencyMs: ms });
    this.#tellAttempt(attempt, 'accepted', ms);
    const way = attempt.takeWay();
    if (way === undefined) return;
    if (this.#phase === 'open') {
      this.#tellHedge(hedge ? 'won' : 'lost');
      this.#win(lease, way, false);
    } else {
      way.socket.destroy(); // slow, but it answered: that is all there was to learn
      pool.report({ lease: lease.id, kind: 'closed', cut: false });
      this.#overIfIdle();
    }
  }

  attemptFailed(attempt: Attempt, failure: AttemptFailure): void {
    this.#leave(attempt);
    this.#verdicts.add(attempt, failure);
    if (this.#phase !== 'open') {
      this.#overIfIdle();
      return;
    }
    if (failure.ms >= FAST_FAILURE_MS) this.#countedCount += 1;
    if (attempt.hedge) this.#tellHedge('failed');
    this.#goOn();
  }

  /** What to do now that an attempt has failed. */
  #goOn(): void {
    if (this.#takeId !== undefined) return; // the pool's answer will decide
    if (this.#running.length > 0) this.#seekHedge();
    else if (this.#mayTryAnother()) this.#seek(false);
    else this.#fail();
  }

  #mayTryAnother(): boolean {
    const opinions = this.#parts.witnesses.isReachable(this.#target) ? OPINIONS + 1 : OPINIONS;
    const triesLeft = this.#settings.attempts - this.#countedCount - this.#running.length;
    return triesLeft > 0 && this.#triedCount < MOST_TRIES && this.#verdicts.doubts < opinions;
  }

  #seek(hedge: boolean): void {
    const id = this.#parts.nextRequestId();
    const answer = this.#parts.pool.take({
      id,
      wish: this.#request.wish,
      targetHost: this.#request.target.host,
      avoid: this.#avoid.length === 0 ? NOBODY : [...this.#avoid],
      waitMs: hedge ? 0 : this.#mayWaitMs(),
    });
    if (!(answer instanceof Promise)) {
      this.#takeAnswer(answer, hedge);
      return;
    }
    this.#takeId = id;
    void answer.then((later) => {
      this.#takeId = undefined;
      this.#takeAnswer(later, hedge);
    });
  }

  #mayWaitMs(): number {
    const elapsedMs = this.#parts.clock.monotonic() - this.#startedAt;
    const { waitForMemberMs, deadlineMs } = this.#settings;
    const mayMs = Math.max(0, Math.min(waitForMemberMs - this.#waitedMs, deadlineMs - elapsedMs));
    return this.#verdicts.doubts > 0 ? Math.min(mayMs, SECOND_OPINION_WAIT_MS) : mayMs;
  }

  #takeAnswer(answer: Lease | Refusal, hedge: boolean): void {
    const { pool } = this.#parts;
    if (isLease(answer)) {
      if (this.#phase === 'open') this.#use(answer, hedge);
      else pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
    } else if (this.#phase === 'open' && this.#running.length === 0) {
      if (hedge)
        this.#goOn(); // the attempt it was for has failed meanwhile
      else this.#refuse(answer);
    }
    if (hedge && (!isLease(answer) || this.#phase !== 'open')) this.#refundHedge();
  }

  #use(lease: Lease, hedge: boolean): void {
    this.#waitedMs += lease.waitedMs;
    this.#avoid.push(lease.member);
    this.#triedCount += 1;
    if (this.#reuse(lease)) return;
    const { target, use } = this.#request;
    const timeoutMs = this.#settings.attemptTimeoutMs;
    const memory = this.#parts.memoryOf(lease.source);
    const attempt = new Attempt(memory, this, { lease, target, use, hedge, timeoutMs });
    this.#running.push(attempt);
    if (!hedge) this.#armHedge(lease, memory.latency.usualMs);
    attempt.start();
  }

  /** An idle connection of the leased member to this target serves a plain HTTP request, if there is one. */
  #reuse(lease: Lease): boolean {
    const { use, fresh } = this.#request;
    if (use === 'tunnel' || fresh === true) return false;
    const idle = this.#parts.idle.take(lease.member, this.#target);
    if (idle === undefined) return false;
    this.#parts.pool.report({ lease: lease.id, kind: 'accepted' });
    this.#win(lease, { ...idle, head: NO_BYTES }, true);
    return true;
  }

  /** A session keeps its member while that lives: slowness is no reason to leave it, so it is not hedged. */
  #armHedge(lease: Lease, usualMs: number | undefined): void {
    if (this.#hedgeTimer !== undefined) this.#parts.deadlines.clear(this.#hedgeTimer);
    this.#hedgeTimer = undefined;
    if (lease.session !== undefined) return;
    const { hedgeAfter, attemptTimeoutMs } = this.#settings;
    const delayMs = hedgeDelayMs(hedgeAfter, attemptTimeoutMs, usualMs, lease.doubtful);
    if (delayMs === undefined) return;
    this.#hedgeTimer = this.#parts.deadlines.set(delayMs, () => this.#seekHedge());
  }

  /** Starts another attempt beside one that is overdue; a hedge that failed itself is replaced. */
  #seekHedge(): void {
    const [first] = this.#running;
    const alone = this.#running.length === 1 && this.#takeId === undefined;
    if (first === undefined || !alone || !this.#mayTryAnother()) return;
    // Beside a member that has yet to prove itself a hedge is no waste.
    this.#hedgeCharged = !first.lease.doubtful && this.#settings.hedgeAfter === 'auto';
    if (this.#hedgeCharged && !this.#parts.budget.spend()) return;
    this.#seek(true);
  }

  #refundHedge(): void {
    if (this.#hedgeCharged) this.#parts.budget.refund();
    this.#hedgeCharged = false;
  }

  #win(lease: Lease, way: RawWay, reused: boolean): void {
    this.#conclude('won', { kind: 'reached', by: lease.member });
    const { clock, pool, idle, memoryOf } = this.#parts;
    const { credentials } = memoryOf(lease.source);
    this.#settle({
      ok: true,
      way: new Way(
        { pool, idle, credentials },
        {
          ...way,
          lease,
          reused,
          reusable: this.#request.use === 'forward',
          attempts: this.#triedCount,
          target: this.#target,
          endsAt:
            lease.remainingMs === undefined
              ? Number.POSITIVE_INFINITY
              : clock.monotonic() + lease.remainingMs,
        },
      ),
    });
    this.#tellEnd('accepted', lease);
    this.#overIfIdle();
  }

  /** There is no further member to be had. */
  #refuse({ refused, reason, retryAfterMs, sources }: Refusal): void {
    if (refused === 'pool-empty' && this.#verdicts.failures.length > 0) {
      this.#fail();
      return;
    }
    const retry = retryAfterMs === undefined ? {} : { retryAfterMs };
    this.#lose({ code: refused, reason, attempts: this.#triedCount, sources, ...retry });
  }

  /** Members were tried, and none of them accepted. */
  #fail(): void {
    const { failures } = this.#verdicts;
    const doubts = failures.filter(({ fault }) => fault === 'target-doubted');
    const targetRefused = doubts.length > 0 && doubts.every((doubt) => doubt.targetRefused);
    this.#lose({
      code: failureCode(failures),
      reason: this.#story(),
      attempts: this.#triedCount,
      targetRefused,
    });
  }

  #abandon(code: 'deadline' | 'client-gone' | 'shutting-down'): void {
    if (this.#phase === 'open') this.#lose({ code, reason: this.#story(), attempts: this.#triedCount });
  }

  #story(): string {
    return explainFailures(this.#verdicts.failures, this.#parts.clock.monotonic() - this.#startedAt);
  }

  #lose(failure: DialFailure): void {
    this.#cancelRunning();
    const gone = failure.code === 'client-gone' || failure.code === 'shutting-down';
    this.#conclude('lost', { kind: gone ? 'client-gone' : 'nobody-reached' });
    this.#settle({ ok: false, failure });
    this.#tellEnd(failure.code);
    this.#overIfIdle();
  }

  /** The outcome is certain: nothing is waited for any more, and the failures so far are judged. */
  #conclude(phase: 'won' | 'lost', end: DialEnd): void {
    const { deadlines, pool } = this.#parts;
    this.#phase = phase;
    if (this.#deadline !== undefined) deadlines.clear(this.#deadline);
    if (this.#hedgeTimer !== undefined) deadlines.clear(this.#hedgeTimer);
    if (this.#takeId !== undefined) pool.cancel(this.#takeId);
    this.#verdicts.close(end);
  }

  #cancelRunning(): void {
    for (const attempt of this.#running.splice(0)) {
      attempt.cancel();
      this.#parts.pool.report({
        lease: attempt.lease.id,
        kind: 'failed',
        blame: 'nobody',
        fault: 'client-gone',
      });
      this.#tellAttempt(attempt, 'cancelled', attempt.elapsedMs);
    }
  }

  #leave(attempt: Attempt): void {
    this.#running.splice(this.#running.indexOf(attempt), 1);
  }

  #overIfIdle(): void {
    if (this.#running.length === 0) this.#parts.raceOver(this);
  }

  #tellAttempt({ lease, hedge, phase }: Attempt, outcome: 'accepted' | 'cancelled', ms: number): void {
    const { bus } = this.#parts;
    if (!bus.hears('dial.attempted')) return;
    const { source, member } = lease;
    bus.emit('dial.attempted', { source, member, outcome, phase, blame: 'nobody', ms, hedge });
  }

  /** Won and failed hedges were no waste; of a lost one it cannot be said. */
  #tellHedge(outcome: NoriaEvents['hedge.ended']['outcome']): void {
    if (outcome === 'lost' && !this.#running.some(({ hedge }) => hedge)) return;
    if (outcome !== 'lost') this.#refundHedge();
    this.#parts.bus.emit('hedge.ended', { outcome });
  }

  #tellEnd(outcome: NoriaEvents['dial.ended']['outcome'], lease?: Lease): void {
    const { bus, clock } = this.#parts;
    if (!bus.hears('dial.ended')) return;
    const remainingMs = lease?.remainingMs;
    bus.emit('dial.ended', {
      outcome,
      attempts: this.#triedCount,
      ms: clock.monotonic() - this.#startedAt,
      waitedMs: this.#waitedMs,
      target: this.#target,
      ...(lease === undefined ? {} : { source: lease.source, member: lease.member }),
      ...(remainingMs === undefined ? {} : { remainingMs }),
    });
  }
}
