/**
 * Decides what caused a failed attempt: the member, the target, the source, our own network, or none of them. A wrong
 * decision is costly: a pool that blamed its members for dead targets or a cut cable would evict them all.
 * docs/health.md explains the rules.
 */
import type { Blame } from '../core/events.ts';
import type { AttemptFailure } from './attempt.ts';
import { FULL_REPORT_POINTS } from './limits.ts';
import { LOCAL_CODES } from './member-socket.ts';

export type FailedAttempt = Pick<AttemptFailure, 'fault' | 'phase' | 'detail'>;

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
  if (LOCAL_CODES.has(failure.detail)) return 'network';
  if (targetCanCause(failure)) {
    if (evidence.reachedByOther) return 'member-for-target';
    if (evidence.clientLeft) return 'nobody';
    // If no member of the source worked recently, the blame is unclear: either the target or all members may be dead.
    const isTarget = evidence.sourceWorked && (evidence.similarFailures ?? 0) >= MIN_DEAD_TARGET_FAILURES;
    return isTarget ? 'target' : 'unclear';
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
      return evidence.reachedByOther ? 'member' : 'front-proxy';
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
export function reportPoints(failure: FailedAttempt, memberWorked: boolean): number {
  if (!targetCanCause(failure)) return 0;
  if (memberWorked || failure.fault === 'target-doubted') return FULL_REPORT_POINTS;
  return failure.fault === 'member-silent' ? 0 : UNPROVEN_REPORT_POINTS;
}

/** Judged by the members that received the request. */
export function isTargetUnreachable(failures: readonly FailedAttempt[], points: number): boolean {
  const answered = failures.filter(({ phase }) => phase === 'answer');
  if (answered.length === 0 || !answered.every(targetCanCause)) return false;
  return points >= Math.min(answered.length, MIN_DEAD_TARGET_FAILURES) * FULL_REPORT_POINTS;
}
