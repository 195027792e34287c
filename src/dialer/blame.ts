/**
 * Who a failed attempt is laid at. One pure function; docs/health.md explains it, its table of cases is its test.
 *
 * The question is always whether a member or something else failed: a member at fault rests or goes, and a pool that
 * blames its members for dead targets or for a cut cable empties itself.
 */
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';

export type AttemptPhase = 'connect' | 'answer' | 'done';

/** What became of one attempt. */
export interface FailedAttempt {
  readonly fault: FaultCode;
  /** `connect`: before TCP, and TLS where there is some, stood. `answer`: between our request and the member's answer. */
  readonly phase: AttemptPhase;
  /** This machine could not even try: it is out of sockets or ports. */
  readonly local: boolean;
}

/** What else is known when the dial is over, or as soon as nothing more can change the verdict. */
export interface Evidence {
  /** Another member reached the same target for the same client request. */
  readonly reachedByOther: boolean;
  /** The client left before it could be found out. */
  readonly clientLeft: boolean;
  /** How many members, this one included, came to nothing after they had taken the same request. */
  readonly similarFailures: number;
  /** This member carried another request a moment ago. */
  readonly memberWorked: boolean;
  /** How many different targets in a row, this one included, this member is the only witness against. */
  readonly targetsUnreachable: number;
  /** Members of the same source refuse its credentials, more than one of them. */
  readonly sourceFaulty: boolean;
  /** Our own network was judged to be down. */
  readonly networkDown: boolean;
}

/** From so many different targets in a row it is likelier that the member's own way out is broken. */
export const MAX_TARGETS_UNREACHABLE = 8;
/** A target is at fault when so many members say or show alike. */
const ALIKE = 2;

export function blameFor({ fault, phase, local }: FailedAttempt, evidence: Evidence): Blame {
  if (local) return 'network';
  switch (fault) {
    case 'member-unreachable':
      return evidence.networkDown ? 'network' : 'member';
    case 'member-protocol':
      return 'member';
    case 'member-auth':
      return evidence.sourceFaulty ? 'source' : 'member';
    case 'member-cut':
      return 'half-member';
    case 'member-silent':
    case 'member-closed':
    case 'member-refused':
      if (phase === 'connect') return evidence.networkDown ? 'network' : 'member';
      if (evidence.reachedByOther) return 'member';
      if (evidence.clientLeft) return 'nobody';
      // A dead target can look like this too. Believe it of the target only from members that work otherwise:
      // else a pool that went bad as a whole would never be replaced.
      return evidence.similarFailures >= ALIKE && evidence.memberWorked ? 'target' : 'member';
    case 'target-doubted':
      if (evidence.reachedByOther) return 'member';
      if (evidence.clientLeft) return 'nobody';
      if (evidence.targetsUnreachable > MAX_TARGETS_UNREACHABLE) return 'member';
      return evidence.similarFailures >= ALIKE ? 'target' : 'nobody';
    default:
      return 'nobody';
  }
}

/** Whether what happens next in the same dial can still change the verdict. */
export function isOpenQuestion({ fault, phase }: FailedAttempt): boolean {
  switch (fault) {
    case 'member-silent':
    case 'member-closed':
    case 'member-refused':
      return phase === 'answer';
    case 'target-doubted':
    case 'member-auth':
      return true;
    default:
      return false;
  }
}
