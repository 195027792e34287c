/** The phases of a member, and the moves between them. docs/architecture.md shows the same moves as a diagram. */
import type { FaultCode } from '../core/faults.ts';

/**
 * The reasons `failed`, `used-up` and `evicted` bar the proxy: no draw can bring it back before the end of its life (see
 * `DepartedMembers`).
 */
export type LeaveReason = 'expired' | 'failed' | 'used-up' | 'evicted' | 'removed';

/** Why a member leaves. `fault` is the member's last fault, if this fault was the cause. */
export interface Departure {
  readonly reason: LeaveReason;
  readonly fault?: FaultCode;
}

/** Each phase with its data. Moments are monotonic. */
export type MemberPhase =
  /** Unproven: clients do not get the member before a probe succeeds. */
  | { readonly name: 'joining' }
  | { readonly name: 'ready' }
  /**
   * Until `untilAt`, the pool picks the member only if no other member fits. After that, one attempt decides whether
   * the member is ready again.
   */
  | {
      readonly name: 'quarantined';
      readonly sinceAt: number;
      readonly untilAt: number;
      readonly fault: FaultCode;
      /**
       * Whether a draw replaces the member. False if only one client failed through it, because one client must not cause draws.
       */
      readonly replaced: boolean;
    }
  /** The member gets no new lease; open leases continue. */
  | { readonly name: 'draining'; readonly departure: Departure }
  | { readonly name: 'left' };

export type MemberPhaseName = MemberPhase['name'];

/** The allowed moves. From `quarantined` to `quarantined`: an attempt failed, so a longer quarantine starts. */
export const MEMBER_MOVES = {
  joining: ['ready', 'draining', 'left'],
  ready: ['quarantined', 'draining', 'left'],
  quarantined: ['ready', 'quarantined', 'draining', 'left'],
  draining: ['left'],
  left: [],
} as const satisfies Record<MemberPhaseName, readonly MemberPhaseName[]>;
