/**
 * What the service said about an instance. The norias of a fleet report it to each other, so that one refused call stops the draws
 * of all. A refusal that may concern one machine alone, such as an IP address that is not bound, is not reported.
 */
import { isSame } from '../core/is-same.ts';
import type { Quota } from '../service/answer.ts';
import type { DrawOutcome, Suspension } from './reaction.ts';

/** Plain data that survives JSON. */
export interface InstanceReport {
  readonly quota: Quota;
  /** Absent: the service accepted the call. */
  readonly suspension?: InstanceSuspension | undefined;
}

export interface InstanceSuspension extends Pick<DrawOutcome, 'code' | 'summary' | 'advice'> {
  readonly phase: 'paused' | 'halted';
  /** Monotonic moment of the next attempt; absent: the operator has to act first. */
  readonly untilAt?: number | undefined;
  /** Norias with another key or other parameters may get another answer. */
  readonly dependsOnConfig: boolean;
  readonly limitsConnections: boolean;
}

export interface EndedDraw {
  readonly outcome: DrawOutcome;
  readonly suspension: Suspension | undefined;
  readonly quota: Quota;
  /** The present monotonic moment. */
  readonly now: number;
}

const NO_NEWS: InstanceReport = { quota: {} };

/** The reports about the instance of one source: decides which ones to send, and which ones to follow. */
export class InstanceReports {
  #last: InstanceReport | undefined;
  #unread: InstanceReport | undefined;
  /** The service has accepted a call with the present configuration of this noria. */
  #hasDrawn = false;

  /** Records a call of this noria. Returns the report for the other norias; undefined if it has no news for them. */
  conclude({ outcome, suspension, quota, now }: EndedDraw): InstanceReport | undefined {
    this.#unread = undefined; // this noria now knows more
    const { kind } = outcome.verdict;
    const isAccepted = kind === 'ok' || kind === 'empty' || kind === 'slow-down';
    this.#hasDrawn ||= isAccepted;
    const reported = suspension && suspensionOf(outcome, suspension, now);
    if (!isAccepted && reported === undefined) return undefined;
    const report = { quota, ...(reported !== undefined && { suspension: reported }) };
    if (isSame(report, this.#last ?? NO_NEWS)) return undefined;
    this.#last = report;
    return report;
  }

  /** Records the report of another noria. Returns whether this noria must stop drawing. */
  hear(report: InstanceReport): boolean {
    this.#last = report;
    // A single noria with a wrong configuration must not stop those that have drawn with theirs.
    const isOfOther = report.suspension?.dependsOnConfig === true && this.#hasDrawn;
    this.#unread = isOfOther ? undefined : report;
    return this.mustStop;
  }

  /** Whether an unread report suspends the instance. */
  get mustStop(): boolean {
    return this.#unread?.suspension !== undefined;
  }

  /** Returns the unread report once. */
  read(): InstanceReport | undefined {
    const report = this.#unread;
    this.#unread = undefined;
    return report;
  }

  /** The configuration of the source has changed. */
  reset(): void {
    this.#hasDrawn = false;
    this.#unread = undefined;
  }
}

/** Undefined if the refusal may concern this noria alone. */
function suspensionOf(
  { code, summary, advice, concerns, limitsConnections }: DrawOutcome,
  { phase, ms }: Suspension,
  now: number,
): InstanceSuspension | undefined {
  if (concerns === undefined || phase === 'backoff') return undefined;
  const dependsOnConfig = concerns === 'configuration';
  const end = ms === Infinity ? {} : { untilAt: now + ms };
  return {
    phase,
    code,
    summary,
    advice,
    ...end,
    dependsOnConfig,
    limitsConnections: limitsConnections === true,
  };
}
