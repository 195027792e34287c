/**
 * What the service says about an instance. If the service refuses a call of one noria, this noria reports the refusal
 * to the other norias of its fleet, so that one refusal stops the draws of all norias. A noria does not report a
 * refusal that may concern only itself: the service refused the address of its machine, its key or its parameters.
 */
import { isSame } from '../core/is-same.ts';
import type { Quota } from '../service/answer.ts';
import type { DrawOutcome, Suspension } from './reaction.ts';

/** A report that one noria of the fleet sends to the others. It is plain data that JSON can represent. */
export interface InstanceReport {
  readonly quota: Quota;
  /** How the answer suspends the instance. Absent if the service accepted the call. */
  readonly suspension?: InstanceSuspension | undefined;
}

export interface InstanceSuspension extends Pick<DrawOutcome, 'code' | 'summary' | 'advice'> {
  readonly phase: 'paused' | 'halted';
  /** The monotonic moment of the next draw. If absent, the operator has to act first. */
  readonly untilAt?: number | undefined;
  readonly limitsConnections: boolean;
}

interface ConcludedDraw {
  readonly outcome: DrawOutcome;
  readonly suspension: Suspension | undefined;
  readonly quota: Quota;
  /** The monotonic moment at which the call ended. */
  readonly now: number;
}

const NO_NEWS: InstanceReport = { quota: {} };

/**
 * Decides which reports about the instance of one source this noria sends, and which reports of other norias it
 * follows.
 */
export class InstanceReports {
  #last: InstanceReport | undefined;
  #unread: InstanceReport | undefined;

  /**
   * Records a call of this noria.
   *
   * @returns the report for the other norias; undefined if the call has no news for them.
   */
  conclude({ outcome, suspension, quota, now }: ConcludedDraw): InstanceReport | undefined {
    this.#unread = undefined; // outdated, because this noria has made a call since it received the report
    const { kind } = outcome.verdict;
    const isAccepted = kind === 'ok' || kind === 'empty' || kind === 'slow-down';
    const reported = suspension && suspensionOf(outcome, suspension, now);
    if (!isAccepted && reported === undefined) return undefined;
    const report = { quota, ...(reported !== undefined && { suspension: reported }) };
    if (isSame(report, this.#last ?? NO_NEWS)) return undefined;
    this.#last = report;
    return report;
  }

  /**
   * Records a report of another noria.
   *
   * @returns whether this noria must stop drawing.
   */
  receive(report: InstanceReport): boolean {
    this.#last = report;
    this.#unread = report;
    return this.mustStop;
  }

  /** Whether a received report, which this noria has not read yet, suspends the instance. */
  get mustStop(): boolean {
    return this.#unread?.suspension !== undefined;
  }

  /** Returns the unread report, and marks it as read. */
  read(): InstanceReport | undefined {
    const report = this.#unread;
    this.#unread = undefined;
    return report;
  }

  /** Forgets the unread report. Call it when the configuration of the source has changed. */
  reset(): void {
    this.#unread = undefined;
  }
}

/** Returns what to report to the fleet; undefined if the refusal may concern only this noria. */
function suspensionOf(
  { code, summary, advice, concernsInstance, limitsConnections }: DrawOutcome,
  { phase, ms }: Suspension,
  now: number,
): InstanceSuspension | undefined {
  if (concernsInstance === undefined || phase === 'backoff') return undefined;
  const end = ms === Infinity ? {} : { untilAt: now + ms };
  return {
    phase,
    code,
    summary,
    advice,
    ...end,
    limitsConnections: limitsConnections === true,
  };
}
