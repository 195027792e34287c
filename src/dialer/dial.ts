/**
 * One dial: tries one member after the other until one accepts, none is left, the deadline passes or the client
 * disconnects. A slow attempt gets a hedge in parallel. Owns its attempts, its deadlines and its waiting request in the
 * pool. It decides the blame for each failed attempt: at once, or at its own end if a later attempt can change it.
 *
 * After success, a slower attempt continues until its own timeout, to find out whether its member is slow or silent.
 * The dialer keeps the dial until then.
 */
import type { Deadline } from '../core/deadlines.ts';
import type { Blame, NoriaEvents } from '../core/events.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import type { Listed } from '../core/live-list.ts';
import { roundMs } from '../core/request-record.ts';
import { isLease, type Lease, type LeaseRefusal } from '../pool/lease.ts';
import { Attempt, type AttemptFailure, type AttemptPhase, type RawConnection } from './attempt.ts';
import { blameFor, isTargetUnreachable, isUndecided, reportPoints, targetCanCause } from './blame.ts';
import type { DialFailure, Dialing, DialRequest, DialResult } from './contract.ts';
import { describeFrontFailure, helpsAnotherMember } from './front-proxy.ts';
import { NO_BYTES } from './handshake.ts';
import {
  type DialerSettings,
  FAST_FAILURE_MS,
  hedgeDelayMs,
  MAX_ATTEMPTS,
  maxReportPoints,
  SECOND_REPORT_WAIT_MS,
} from './limits.ts';
import { type DialParts, LeasedConnection } from './member-connections.ts';
import { networkSign } from './reachability.ts';

const NONE: readonly string[] = [];
const FRONT_NAMES = { front: 'the front proxy', server: 'a member', key: 'dial.via' };

type DialEnded = NoriaEvents['dial.ended'];

export class Dial implements Dialing, Listed {
  listIndex = -1;
  readonly #parts: DialParts;
  readonly #settings: DialerSettings;
  readonly #request: DialRequest;
  readonly #onResult: (result: DialResult) => void;
  readonly #startedAt: number;
  #phase: 'open' | 'connected' | 'failed' = 'open';
  readonly #running: Attempt[] = [];
  readonly #failures: AttemptFailure[] = [];
  /** Failed attempts whose blame a later one can change, until the end of the dial. */
  readonly #undecided: { readonly attempt: Attempt; readonly failure: AttemptFailure }[] = [];
  #reportPoints = 0;
  /** Undefined in absolute form: only the response shows whether the member reached the target. */
  #reachedBy: string | undefined;
  #clientLeft = false;
  #deadline: Deadline | undefined;
  #attempts = 0;
  #slowFailures = 0;
  #tried: readonly string[];
  #startedOver = false;
  #waitingId: number | undefined;
  #waitingSince = 0;
  #waitedMs = 0;
  #hedgeDeadline: Deadline | undefined;

  constructor(
    parts: DialParts,
    settings: DialerSettings,
    request: DialRequest,
    onResult: (result: DialResult) => void,
  ) {
    this.#parts = parts;
    this.#settings = settings;
    this.#request = request;
    this.#onResult = onResult;
    this.#tried = request.avoid ?? NONE;
    this.#startedAt = parts.clock.monotonic();
  }

  start(): void {
    this.#parts.hedgeBudget.earn();
    const { deadlineMs } = this.#settings;
    this.#deadline = this.#parts.deadlines.set(deadlineMs, () => this.#abort('deadline'), this.#startedAt);
    // If members were tried before this dial, it is a retry. The client's budget for further attempts must allow it.
    if (this.#tried.length > 0 && !this.#parts.clientBudgets.allows(this.#client)) this.#failAfterAttempts();
    else this.#acquireNext();
  }

  cancel(): void {
    this.#abort('client-gone');
  }

  close(): void {
    this.#abort('shutting-down');
    this.#cancelAttempts();
    this.#finishIfIdle();
  }

  /**
   * After a failed attempt, prefers a member without an overdue attempt: a second silent member would cost another
   * `attemptTimeout`. A session keeps its member.
   */
  #acquireNext(): void {
    const { reachability, overdueAttempts } = this.#parts;
    const { routing, target } = this.#request;
    let avoid = NONE;
    if (routing.session === undefined) {
      avoid = reachability.membersToAvoid(target.text);
      if (this.#attempts > 0) avoid = overdueAttempts.membersToAvoid(avoid, this.#tried);
    }
    this.#acquire(false, avoid);
  }

  /** @param avoid - in addition to the tried members. Rather than waiting, the dial accepts one of them. */
  #acquire(hedge: boolean, avoid: readonly string[]): void {
    this.#parts.lastRequestId += 1;
    const id = this.#parts.lastRequestId;
    const answer = this.#parts.leases.acquire({
      id,
      routing: this.#request.routing,
      targetHost: this.#request.target.host,
      hedge,
      avoid: avoid.length === 0 ? this.#tried : [...this.#tried, ...avoid],
      waitMs: hedge || avoid.length > 0 ? 0 : this.#maxWaitMs,
    });
    if (!(answer instanceof Promise)) {
      this.#onAnswer(answer, hedge, avoid);
      return;
    }
    this.#waitingId = id;
    this.#waitingSince = this.#parts.clock.monotonic();
    void answer.then((later) => {
      this.#stopWaiting();
      this.#onAnswer(later, hedge, avoid);
    });
  }

  get #maxWaitMs(): number {
    const { waitForMemberMs, deadlineMs } = this.#settings;
    if (this.#attempts === 0) return Math.min(waitForMemberMs, deadlineMs);
    if (this.#allRequireCredentials || this.#allAtFrontProxy) return 0;
    const leftMs = Math.max(0, Math.min(waitForMemberMs - this.#waitedMs, deadlineMs - this.#elapsedMs));
    return this.#reportPoints > 0 ? Math.min(leftMs, SECOND_REPORT_WAIT_MS) : leftMs;
  }

  #onAnswer(answer: Lease | LeaseRefusal, hedge: boolean, avoid: readonly string[]): void {
    const { pool } = this.#parts;
    if (this.#phase !== 'open') {
      if (isLease(answer))
        pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      if (hedge) this.#refundHedge();
    } else if (isLease(answer)) this.#attempt(answer, hedge);
    else if (avoid.length > 0) this.#acquire(hedge, NONE);
    else if (hedge) {
      this.#refundHedge();
      // The slow attempt may have failed while the dial waited for the pool. No attempt is then in progress, so the
      // dial has to continue here.
      if (this.#running.length === 0) this.#continue();
    } else this.#onRefusal(answer);
  }

  #onRefusal(refusal: LeaseRefusal): void {
    const tried = refusal.code === 'pool-empty' && this.#failures.length > 0;
    const isWithheld = this.#allRequireCredentials && this.#failures.some(({ withheld }) => withheld);
    if (tried && isWithheld && !this.#startedOver) {
      // Every member that the dial tried required credentials. noria did not send the instance's credentials to some of
      // these members, because it did not know yet that all of them require credentials. The dial now tries all members
      // again, and sends the credentials to each member that requires them.
      this.#startedOver = true;
      this.#tried = this.#request.avoid ?? NONE;
      this.#acquire(false, NONE);
    } else if (tried) this.#failAfterAttempts();
    else this.#fail({ ...refusal, attempts: this.#attempts });
  }

  #attempt(lease: Lease, hedge: boolean): void {
    this.#tried = this.#tried.length === 0 ? [lease.member] : [...this.#tried, lease.member];
    this.#attempts += 1;
    this.#parts.clientBudgets.attempted();
    const { use, noReuse, target } = this.#request;
    if (use === 'forward' && noReuse !== true && this.#reuseIdle(lease, hedge)) return;
    // noria must not send a request with `noReuse` twice. A request in absolute form is lost if the member has already
    // closed the warm connection. So noria opens a new connection for it.
    const mustBeNew =
      noReuse === true && this.#parts.memoryOf(lease.source).forwardMode.first(target.text) === 'absolute';
    const task = {
      lease,
      request: this.#request,
      hedge,
      timeoutMs: this.#settings.attemptTimeoutMs,
      warm: mustBeNew ? undefined : this.#parts.warm.take(lease),
    };
    const attempt = new Attempt(this.#parts, task, this.#onAttemptEnd);
    this.#running.push(attempt);
    if (!hedge) this.#armHedge(attempt);
    const isFirst = this.#attempts === 1;
    attempt.start();
    if (isFirst) this.#parts.warm.used(this.#request.routing, lease);
  }

  #reuseIdle(lease: Lease, hedge: boolean): boolean {
    const { target, owner = '' } = this.#request;
    const { clock, pool, idle: idleConnections, memoryOf } = this.#parts;
    const idle = idleConnections.take({
      member: lease.member,
      target: target.text,
      forwardMode: memoryOf(lease.source).forwardMode.first(target.text),
      owner,
    });
    if (idle === undefined) return false;
    pool.report({ lease: lease.id, kind: 'accepted' });
    if (hedge) this.#hedgeEnded('won');
    const { member, source } = lease;
    const at = clock.monotonic();
    const attempt = { member, source, exit: lease.exit, ms: 0, code: null, startedAt: at };
    this.#request.record?.addAttempt(attempt);
    this.#succeed(lease, { ...idle, at, early: NO_BYTES, connectStatus: undefined }, true);
    return true;
  }

  readonly #onAttemptEnd = (attempt: Attempt, connection: RawConnection | AttemptFailure): void => {
    this.#remove(attempt);
    if (connection.kind === 'failed') {
      this.#onFailed(attempt, connection);
      return;
    }
    const { lease, hedge } = attempt;
    const { member } = lease;
    const { at } = connection;
    const { pool, network, reachability } = this.#parts;
    const isLate = this.#phase !== 'open';
    const ms = at - attempt.startedAt;
    // Adds the time that a warm connection saved, so that latencies are comparable.
    const latencyMs = ms + attempt.savedMs;
    network.answered(at);
    if (connection.forwardMode === 'direct')
      reachability.recordReached(member, this.#request.target.text, at);
    attempt.memory.latency.add({ member, ms: latencyMs, at });
    pool.report({ lease: lease.id, kind: 'accepted', latencyMs, ...(isLate && { late: true }) });
    this.#emitAttempted(attempt, 'accepted', 'done', 'nobody', ms);
    if (!isLate) {
      if (hedge) this.#hedgeEnded('won');
      else if (this.#running.length > 0) this.#hedgeEnded('lost');
      this.#succeed(lease, connection, connection.isWarm);
    } else {
      connection.socket.destroy();
      pool.report({ lease: lease.id, kind: 'closed', cut: false });
      this.#finishIfIdle();
    }
  };

  #onFailed(attempt: Attempt, failure: AttemptFailure): void {
    const { network, reachability } = this.#parts;
    const { member } = attempt.lease;
    const sign = networkSign(failure.fault, failure.detail);
    if (sign === 'down') network.lost(member, failure.ms);
    else if (sign === 'up') network.answered();
    this.#failures.push(failure);
    this.#reportPoints += reportPoints(failure, reachability.memberWorked(member));
    if (this.#phase === 'open' && isUndecided(failure)) this.#undecided.push({ attempt, failure });
    else this.#decide(attempt, failure);
    if (this.#phase !== 'open') {
      this.#finishIfIdle();
      return;
    }
    if (!failure.withheld && failure.ms >= FAST_FAILURE_MS) this.#slowFailures += 1;
    if (attempt.hedge) this.#hedgeEnded('failed');
    this.#continue();
  }

  #continue(): void {
    if (this.#waitingId !== undefined) return; // the dial waits for the pool, and continues when the pool answers
    if (this.#running.length > 0) this.#startHedge();
    else if (this.#mayTryAnother()) this.#acquireNext();
    else this.#failAfterAttempts();
  }

  #mayTryAnother(): boolean {
    const left = this.#settings.attempts - this.#slowFailures - this.#running.length;
    if (left <= 0 || this.#attempts >= MAX_ATTEMPTS) return false;
    if (this.#mayBeTarget && !this.#parts.clientBudgets.allows(this.#client)) return false;
    if (this.#allAtFrontProxy && !helpsAnotherMember(this.#failures, this.#settings.attempts)) return false;
    const sinceReachedMs = this.#parts.reachability.sinceReachedMs(this.#request.target.text);
    return this.#reportPoints < maxReportPoints(sinceReachedMs);
  }

  /**
   * The same delay on a warm connection, although it is faster: with a shorter one, the pauses of a busy machine
   * would start a hedge for every twentieth tunnel.
   */
  #armHedge({ lease, memory, startedAt }: Attempt): void {
    this.#parts.deadlines.clear(this.#hedgeDeadline);
    const delayMs = hedgeDelayMs(this.#settings, memory.latency.profile?.p95Ms, lease.doubtful);
    if (delayMs !== undefined)
      this.#hedgeDeadline = this.#parts.deadlines.set(delayMs, this.#onOverdue, startedAt);
  }

  readonly #onOverdue = (): void => {
    for (const attempt of this.#running) this.#parts.overdueAttempts.add(attempt);
    this.#startHedge();
  };

  #startHedge(): void {
    const { overdueAttempts, hedgeBudget } = this.#parts;
    const [first] = this.#running;
    if (first === undefined || !this.#mayTryAnother()) return;
    // With a configured delay, hedges have no budget.
    if (this.#settings.hedgeAfter === 'auto' && !hedgeBudget.spend()) return;
    const slow = first.memory.latency.profile?.slowMembers ?? NONE;
    this.#acquire(true, overdueAttempts.membersToAvoid(slow, this.#tried));
  }

  #refundHedge(): void {
    if (this.#settings.hedgeAfter === 'auto') this.#parts.hedgeBudget.refund();
  }

  /** `lost`: the first attempt succeeded, so the hedge is wasted. */
  #hedgeEnded(outcome: 'won' | 'lost' | 'failed'): void {
    if (outcome !== 'lost') this.#refundHedge();
    this.#parts.bus.emit('hedge.ended', { outcome });
  }

  #succeed(lease: Lease, raw: RawConnection, reused: boolean): void {
    if (raw.forwardMode === 'direct') this.#reachedBy = lease.member;
    this.#end('connected');
    for (const slower of this.#running) this.#parts.overdueAttempts.add(slower);
    const facts = { lease, reused, attempts: this.#attempts };
    const connection = new LeasedConnection(this.#parts, this.#request, raw, facts);
    this.#emitEnded('accepted', lease);
    this.#finishIfIdle();
    this.#onResult({ ok: true, connection });
  }

  #failAfterAttempts(): void {
    const attempts = this.#attempts;
    if (this.#allAtFrontProxy) {
      const front = this.#failures.at(-1)?.frontFailure;
      const code = front?.problem === 'loop' ? 'proxy-loop' : 'front-proxy-failed';
      const reason = front === undefined ? '' : describeFrontFailure(front, FRONT_NAMES);
      this.#fail({ code, reason, attempts });
      return;
    }
    const reason = this.#describeAttempts();
    // If one member reports a refused connection, the target refused it. Other members may report the same refusal as
    // "unreachable" or as status 502.
    const targetRefused = this.#failures.some((failure) => failure.targetRefused);
    const isUnreachable = isTargetUnreachable(this.#failures, this.#reportPoints);
    if (isUnreachable) this.#fail({ code: 'target-unreachable', reason, attempts, targetRefused });
    else this.#fail({ code: 'members-failed', reason, attempts });
  }

  #abort(code: 'deadline' | 'client-gone' | 'shutting-down'): void {
    if (this.#phase !== 'open') return;
    this.#fail({ code, reason: this.#describeAttempts(), attempts: this.#attempts });
  }

  #fail(failure: DialFailure): void {
    this.#cancelAttempts();
    if (this.#mayBeTarget) this.#parts.clientBudgets.charge(this.#client, this.#attempts - 1);
    this.#clientLeft = failure.code === 'client-gone' || failure.code === 'shutting-down';
    this.#end('failed');
    this.#emitEnded(failure.code);
    this.#finishIfIdle();
    this.#onResult({ ok: false, failure });
  }

  #end(phase: 'connected' | 'failed'): void {
    const { deadlines, pool } = this.#parts;
    this.#phase = phase;
    deadlines.clear(this.#deadline);
    deadlines.clear(this.#hedgeDeadline);
    if (this.#waitingId !== undefined) {
      pool.cancel(this.#waitingId);
      this.#stopWaiting();
    }
    if (this.#undecided.length === 0) return;
    for (const { attempt, failure } of this.#undecided.splice(0)) this.#decide(attempt, failure);
  }

  #stopWaiting(): void {
    this.#waitingId = undefined;
    this.#waitedMs += this.#parts.clock.monotonic() - this.#waitingSince;
  }

  #cancelAttempts(): void {
    for (const attempt of [...this.#running]) {
      const { phase } = attempt;
      attempt.cancel();
      this.#remove(attempt);
      // A cancelled attempt is no evidence against its member or the target.
      const lease = attempt.lease.id;
      this.#parts.pool.report({ lease, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      this.#emitAttempted(attempt, 'cancelled', phase, 'nobody', attempt.elapsedMs);
    }
  }

  #decide(attempt: Attempt, failure: AttemptFailure): void {
    const { pool, network, reachability } = this.#parts;
    const { lease, memory } = attempt;
    const { credentials } = memory;
    const { fault, phase, ms } = failure;
    const blame = blameFor(failure, {
      reachedByOther: this.#reachedBy !== undefined && this.#reachedBy !== lease.member,
      clientLeft: this.#clientLeft,
      similarFailures: this.#failures.filter(targetCanCause).length,
      sourceWorked: memory.worked,
      sourceFaulty: credentials.faulty,
      credentialsWork: credentials.isFaultOfMember(attempt.login),
      networkDown: network.down,
    });
    if (blame === 'member-for-target') reachability.avoid(lease.member, this.#request.target.text);
    pool.report({ lease: lease.id, kind: 'failed', blame, fault });
    this.#emitAttempted(attempt, fault, phase, blame, ms);
  }

  #emitAttempted(
    { lease, hedge, startedAt }: Attempt,
    outcome: NoriaEvents['dial.attempted']['outcome'],
    phase: AttemptPhase,
    blame: Blame,
    ms: number,
  ): void {
    const { bus } = this.#parts;
    const { source, member } = lease;
    const { record } = this.#request;
    const code = outcome === 'accepted' ? null : outcome;
    record?.addAttempt({ member, source, exit: lease.exit, ms: roundMs(ms), code, startedAt });
    const request = record?.id;
    bus.emit('dial.attempted', { source, member, outcome, phase, blame, ms, hedge, request });
  }

  #remove(attempt: Attempt): void {
    const at = this.#running.indexOf(attempt);
    if (at === this.#running.length - 1) this.#running.pop();
    else this.#running.splice(at, 1);
    this.#parts.overdueAttempts.delete(attempt);
  }

  #finishIfIdle(): void {
    if (this.#running.length === 0) this.#parts.dials.delete(this);
  }

  #emitEnded(outcome: DialEnded['outcome'], lease?: Lease): void {
    const { bus } = this.#parts;
    const event: { -readonly [Key in keyof DialEnded]: DialEnded[Key] } = {
      outcome,
      attempts: this.#attempts,
      ms: this.#elapsedMs,
      waitedMs: this.#waitedMs,
      target: this.#request.target.text,
      request: this.#request.record?.id,
    };
    if (lease !== undefined) {
      event.source = lease.source;
      event.member = lease.member;
      if (lease.remainingMs !== undefined) event.remainingMs = lease.remainingMs;
    }
    bus.emit('dial.ended', event);
  }

  get #mayBeTarget(): boolean {
    return this.#failures.some(targetCanCause);
  }

  get #allRequireCredentials(): boolean {
    return this.#failures.every(({ fault }) => fault === 'member-auth');
  }

  get #allAtFrontProxy(): boolean {
    const isAtFront = ({ fault }: AttemptFailure) => FAULTS[fault].side === 'front-proxy';
    return this.#failures.length > 0 && this.#failures.every(isAtFront);
  }

  get #elapsedMs(): number {
    return this.#parts.clock.monotonic() - this.#startedAt;
  }

  get #client(): string {
    return this.#request.routing.client ?? '';
  }

  /** Returns for example `2 members tried in 812 ms: 1 did not answer in time, 1 refused the request`. */
  #describeAttempts(): string {
    const counts = new Map<string, number>();
    for (const { fault } of this.#failures) {
      const description = DESCRIPTIONS[fault] ?? 'failed';
      counts.set(description, (counts.get(description) ?? 0) + 1);
    }
    const members = this.#attempts === 1 ? 'member' : 'members';
    const tried = `${this.#attempts} ${members} tried in ${Math.round(this.#elapsedMs)} ms`;
    const list = [...counts].map(([description, count]) => `${count} ${description}`).join(', ');
    return list === '' ? tried : `${tried}: ${list}`;
  }
}

/** What members did. Each text follows a count, as in `2 could not be reached`. */
const DESCRIPTIONS: Partial<Record<FaultCode, string>> = {
  'member-unreachable': 'could not be reached',
  'member-silent': 'did not answer in time',
  'member-closed': 'closed the connection',
  'member-protocol': 'sent an invalid proxy response',
  'member-refused': 'refused the request',
  'member-auth': 'required other credentials',
  'front-proxy-failed': 'failed at the front proxy',
  'front-proxy-silent': 'got no answer from the front proxy',
  'member-incapable': 'cannot address this target',
  'target-doubted': 'could not reach the target',
};
