/**
 * Decides what caused a failed attempt: the member, the target, the source, our own network, or none of them.
 * `blameFor` decides from the evidence. `DialBlame` collects the evidence of one dial. A wrong decision is costly: a
 * pool that blamed its members for dead targets or a cut cable would evict them all. docs/health.md explains the rules.
 */
import type { Blame, NoriaEvents } from '../core/events.ts';
import { FAULTS } from '../core/faults.ts';
import { type OpenRequest, roundMs } from '../core/request-record.ts';
import { exitOf } from '../pool/lease.ts';
import type { Attempt, AttemptFailure, AttemptPhase, RawConnection } from './attempt.ts';
import { FULL_REPORT_POINTS } from './limits.ts';
import type { DialParts } from './member-connections.ts';
import { networkSign } from './network-watch.ts';

export type FailedAttempt = Pick<AttemptFailure, 'fault' | 'phase' | 'local'>;

export interface Evidence {
  readonly reachedByOther?: boolean;
  readonly clientLeft?: boolean;
  /** Includes the member of this attempt. */
  readonly similarFailures?: number;
  readonly sourceWorked?: boolean;
  readonly sourceFaulty: boolean;
  readonly credentialsWork: boolean;
  readonly networkDown: boolean;
}

/** If so many members failed like this and the source works, the target is at fault. */
const MIN_DEAD_TARGET_FAILURES = 2;

export function blameFor(failure: FailedAttempt, evidence: Evidence): Blame {
  if (failure.local) return 'network';
  if (targetCanCause(failure)) {
    if (evidence.reachedByOther === true) return 'member-for-target';
    if (evidence.clientLeft === true) return 'nobody';
    // If no member of the source worked recently, the blame is unclear: either the target or all members may be dead.
    const { similarFailures = 1, sourceWorked = false } = evidence;
    return sourceWorked && similarFailures >= MIN_DEAD_TARGET_FAILURES ? 'target' : 'unclear';
  }
  switch (failure.fault) {
    case 'member-unreachable':
    case 'member-silent':
    case 'member-closed':
    case 'member-refused':
      return evidence.networkDown ? 'network' : 'member';
    case 'member-protocol':
      return 'member';
    case 'front-proxy-failed':
    case 'proxy-loop':
      return 'front-proxy';
    case 'front-proxy-silent':
      return evidence.reachedByOther === true ? 'member' : 'front-proxy';
    case 'member-auth':
      if (evidence.sourceFaulty) return 'source';
      return evidence.credentialsWork ? 'member' : 'nobody';
    default:
      return 'nobody';
  }
}

export function isUndecided(failure: FailedAttempt): boolean {
  return failure.fault === 'member-auth' || failure.fault === 'front-proxy-silent' || targetCanCause(failure);
}

/** It cannot if the member has not received the request. */
export function targetCanCause({ fault, phase }: FailedAttempt): boolean {
  switch (fault) {
    case 'member-silent':
    case 'member-closed':
    case 'member-refused':
      return phase === 'answer';
    case 'target-doubted':
      return true;
    default:
      return false;
  }
}

/** A member that has not worked recently may answer every request with an error. */
const UNPROVEN_REPORT_POINTS = 2;

/** Proxies report an unreachable target with 502 to 504, a SOCKS reply, another status, or by closing. */
function reportPoints(failure: FailedAttempt, memberWorked: boolean): number {
  if (!targetCanCause(failure)) return 0;
  if (memberWorked || failure.fault === 'target-doubted') return FULL_REPORT_POINTS;
  return failure.fault === 'member-silent' ? 0 : UNPROVEN_REPORT_POINTS;
}

export interface DialEnd {
  /** Undefined in absolute form: only the response shows whether the member reached the target. */
  readonly reachedBy?: string | undefined;
  readonly clientLeft?: boolean;
}

interface Failed {
  readonly attempt: Attempt;
  readonly failure: AttemptFailure;
}

/** Collects the results of one dial's attempts. What a later attempt can change is decided at its end. */
export class DialBlame {
  readonly #parts: DialParts;
  readonly #target: string;
  readonly #record: OpenRequest | undefined;
  readonly failures: AttemptFailure[] = [];
  readonly #undecided: Failed[] = [];
  reportPoints = 0;
  #end: DialEnd | undefined;

  constructor(parts: DialParts, target: string, record?: OpenRequest) {
    this.#record = record;
    this.#parts = parts;
    this.#target = target;
  }

  get mayBeTarget(): boolean {
    return this.failures.some(targetCanCause);
  }

  get allRequireCredentials(): boolean {
    return this.failures.length > 0 && this.failures.every(({ fault }) => fault === 'member-auth');
  }

  get allAtFrontProxy(): boolean {
    return (
      this.failures.length > 0 && this.failures.every(({ fault }) => FAULTS[fault].side === 'front-proxy')
    );
  }

  /** Judged by the members that received the request. */
  get isTargetUnreachable(): boolean {
    const answered = this.failures.filter(({ phase }) => phase === 'answer');
    if (answered.length === 0 || !answered.every(targetCanCause)) return false;
    return this.reportPoints >= Math.min(answered.length, MIN_DEAD_TARGET_FAILURES) * FULL_REPORT_POINTS;
  }

  /** @param isLate - the dial had already ended: another attempt has served the client. */
  accepted(attempt: Attempt, { forwardMode, at }: RawConnection, isLate: boolean): void {
    const { lease } = attempt;
    const ms = at - attempt.startedAt;
    // Adds the time that a warm connection saved, so that latencies are comparable.
    const latencyMs = ms + attempt.savedMs;
    const { pool, network, reachability } = this.#parts;
    network.answered(at);
    if (forwardMode === 'direct') reachability.recordReached(lease.member, this.#target, at);
    attempt.memory.recordAccepted({ member: lease.member, ms: latencyMs, at });
    pool.report({ lease: lease.id, kind: 'accepted', latencyMs, ...(isLate && { late: true }) });
    this.#emit(attempt, 'accepted', 'done', 'nobody', ms);
  }

  failed(attempt: Attempt, failure: AttemptFailure): void {
    const { network, reachability } = this.#parts;
    const sign = networkSign(failure.fault, failure.detail);
    if (sign === 'down') network.lost(attempt.lease.member, failure.ms);
    else if (sign === 'up') network.answered();
    this.failures.push(failure);
    this.reportPoints += reportPoints(failure, reachability.memberWorked(attempt.lease.member));
    const failed = { attempt, failure };
    if (this.#end !== undefined) this.#decide(failed, this.#end);
    else if (isUndecided(failure)) this.#undecided.push(failed);
    else this.#decide(failed, {});
  }

  /** A cancelled attempt is no evidence against its member or the target. */
  cancelled(attempt: Attempt, phase: AttemptPhase): void {
    const { pool } = this.#parts;
    pool.report({ lease: attempt.lease.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
    this.#emit(attempt, 'cancelled', phase, 'nobody', attempt.elapsedMs);
  }

  /** Decides all pending blames. From then on, `failed` decides at once. */
  close(end: DialEnd): void {
    this.#end = end;
    if (this.#undecided.length === 0) return;
    for (const failed of this.#undecided.splice(0)) this.#decide(failed, end);
  }

  #decide({ attempt, failure }: Failed, end: DialEnd): void {
    const { pool, network, reachability } = this.#parts;
    const { lease, memory } = attempt;
    const { credentials } = memory;
    const { fault, phase, ms } = failure;
    const blame = blameFor(failure, {
      reachedByOther: end.reachedBy !== undefined && end.reachedBy !== lease.member,
      clientLeft: end.clientLeft === true,
      similarFailures: this.failures.filter(targetCanCause).length,
      sourceWorked: memory.worked,
      sourceFaulty: credentials.faulty,
      credentialsWork: credentials.isFaultOfMember(attempt.login),
      networkDown: network.down,
    });
    if (blame === 'member-for-target') reachability.avoid(lease.member, this.#target);
    pool.report({ lease: lease.id, kind: 'failed', blame, fault });
    this.#emit(attempt, fault, phase, blame, ms);
  }

  #emit(
    { lease, hedge, startedAt }: Attempt,
    outcome: NoriaEvents['dial.attempted']['outcome'],
    phase: AttemptPhase,
    blame: Blame,
    ms: number,
  ): void {
    const { bus } = this.#parts;
    const { source, member } = lease;
    const record = this.#record;
    const code = outcome === 'accepted' ? null : outcome;
    record?.addAttempt({ member, source, exit: exitOf(lease), ms: roundMs(ms), code, startedAt });
    if (!bus.hasSubscribers('dial.attempted')) return;
    const request = record?.id;
    bus.emit('dial.attempted', { source, member, outcome, phase, blame, ms, hedge, request });
  }
}
