/**
 * The phases of a source, the allowed moves between them, and the reasons that the status shows. The diagram in
 * docs/architecture.md has the same moves, checked by test/held/phases.test.ts.
 */
import { roughDuration } from '../core/words.ts';
import { type DrawOutcome, describeOutcome, type InstanceReport, type Reaction } from './reaction.ts';
import type { SourceState } from './status.ts';

/** Why a source draws nothing for some time, and for how long. */
export interface Suspension {
  /**
   * `backoff`: noria cannot reach the service or cannot read its answers. `paused`: the service reported a temporary
   * condition, the daily budget is used up, or the operator paused the source. `halted`: the operator has to act.
   */
  readonly name: 'backoff' | 'paused' | 'halted';
  /** The reason in noria's own words, not in those of the service. */
  readonly reason: string;
  /** What the operator can do; empty if nothing is necessary. */
  readonly advice: string;
  /** The code of the call that is the reason; absent if the reason is not a call. */
  readonly code?: string;
  /** The monotonic moment of the next draw. With Infinity, the operator has to act first. */
  readonly untilAt: number;
  /** The monotonic moment of the next draw if clients are waiting. */
  readonly urgentAt: number;
  /** Whether the suspension ends as soon as any noria of the fleet draws from the instance. */
  readonly endsWithAnyDraw?: boolean;
}

export type SourcePhase =
  /**
   * `idle`: there is no demand, or a source with a smaller priority number can serve the clients. `ready`: the source has
   * enough members.
   */
  | { readonly name: 'idle' | 'ready' | 'drawing'; readonly reason: string }
  /** The source will draw. It waits for the pace, or longer because earlier draws brought no usable members. */
  | { readonly name: 'waiting'; readonly reason: string; readonly advice?: string; readonly code?: string }
  | Suspension;

/** The phases that may follow each phase. A phase may also follow itself, with another reason. */
export const SOURCE_MOVES = {
  idle: ['ready', 'waiting', 'paused', 'halted'],
  ready: ['idle', 'waiting', 'paused', 'halted'],
  drawing: ['idle', 'ready', 'waiting', 'backoff', 'paused', 'halted'],
  waiting: ['idle', 'ready', 'drawing', 'paused', 'backoff', 'halted'],
  backoff: ['idle', 'ready', 'waiting', 'paused', 'halted'],
  paused: ['idle', 'ready', 'waiting', 'halted'],
  halted: ['idle', 'waiting', 'paused'],
} as const satisfies Record<SourceState, readonly SourceState[]>;

export function isSuspended(phase: SourcePhase): phase is Suspension {
  return 'untilAt' in phase;
}

export function mayMove(from: SourceState, to: SourceState): boolean {
  const allowed: readonly string[] = SOURCE_MOVES[from];
  return from === to || allowed.includes(to);
}

export function pausedByOperator(source: string): Suspension {
  const advice = `Run noria resume ${source}, or resume it in the dashboard.`;
  return { name: 'paused', reason: 'paused by the operator', advice, untilAt: Infinity, urgentAt: Infinity };
}

/**
 * The phase of a source that waits before it draws. Its reason is the last call if that was not successful, else the
 * pace.
 */
export function waitingPhase(last: DrawOutcome | undefined, intervalMs: number): SourcePhase {
  if (last === undefined || last.verdict.kind === 'ok') {
    return { name: 'waiting', reason: `the pace allows one call every ${roughDuration(intervalMs)}` };
  }
  return { name: 'waiting', reason: describeOutcome(last), advice: last.advice, code: last.code };
}

/** The suspension of `source` by the outcome of its call, which ended at the monotonic moment `now`. */
export function suspensionBy(
  outcome: DrawOutcome,
  { phase: name, ms, urgentMs }: NonNullable<Reaction['suspension']>,
  { source, now }: { readonly source: string; readonly now: number },
): Suspension {
  const { code } = outcome;
  const reason = describeOutcome(outcome);
  const advice = adviceOf(outcome.advice, name, source);
  const endsWithAnyDraw = outcome.concernsInstance === true;
  return { name, reason, advice, code, untilAt: now + ms, urgentAt: now + urgentMs, endsWithAnyDraw };
}

/** The suspension of `source` after another noria of the fleet reported one of the instance. */
export function suspensionByReport(
  report: NonNullable<InstanceReport['suspension']>,
  source: string,
): Suspension {
  const { phase: name, code, untilAt = Infinity } = report;
  const reason = `${describeOutcome(report)} Another noria of the fleet got this answer.`;
  const advice = adviceOf(report.advice, name, source);
  return { name, reason, advice, code, untilAt, urgentAt: untilAt, endsWithAnyDraw: true };
}

function adviceOf(advice: string, phase: Suspension['name'], source: string): string {
  if (phase !== 'halted') return advice;
  return `${advice} Then run noria resume ${source}, or noria reload after a change of the configuration.`;
}

/** The fields of a phase that appear in the event `source.moved` and in the status. */
export function phaseReport(phase: SourcePhase): {
  readonly reason: string;
  readonly advice?: string;
  readonly code?: string;
} {
  const { reason } = phase;
  const { advice = '', code } = 'advice' in phase || 'code' in phase ? phase : {};
  return { reason, ...(advice === '' ? {} : { advice }), ...(code === undefined ? {} : { code }) };
}
