/**
 * The phases of a source, the allowed moves between them, and the reasons that status shows. The diagram in
 * docs/architecture.md draws the same moves, held by test/held/phases.test.ts.
 */

import { roughDuration } from '../core/words.ts';
import { type DrawOutcome, describeOutcome, type Suspension } from './reaction.ts';

interface SuspendedState {
  /** Why, in noria's words, without text of the service. */
  readonly reason: string;
  /** What the operator can do; empty when nothing is needed. */
  readonly advice: string;
  /** The service's code, or `transport`, where that is the reason. */
  readonly code?: string;
  /** Monotonic moment of the next attempt; Infinity: none without the operator. */
  readonly untilAt: number;
  /** The same while clients are waiting. */
  readonly urgentAt: number;
}

export type SourcePhase =
  /** There is no demand for its members. */
  | { readonly name: 'idle'; readonly reason: string }
  /** It has enough members. */
  | { readonly name: 'ready'; readonly reason: string }
  /** It is going to draw, after a wait for the pace or for the spacing of fruitless draws. */
  | { readonly name: 'waiting'; readonly reason: string; readonly advice?: string; readonly code?: string }
  | { readonly name: 'drawing'; readonly reason: string }
  /** The service cannot be reached or understood. */
  | ({ readonly name: 'backoff' } & SuspendedState)
  /** A temporary condition, or the operator paused it. */
  | ({ readonly name: 'paused' } & SuspendedState)
  /** The operator has to act. */
  | ({ readonly name: 'halted' } & SuspendedState);

export type SourcePhaseName = SourcePhase['name'];
export type SuspendedPhase = Extract<SourcePhase, SuspendedState>;

/** A phase may also be followed by itself, with another reason. */
export const SOURCE_MOVES = {
  idle: ['ready', 'waiting', 'paused'],
  ready: ['idle', 'waiting', 'paused'],
  waiting: ['idle', 'ready', 'drawing', 'paused', 'backoff'],
  drawing: ['idle', 'ready', 'waiting', 'backoff', 'paused', 'halted'],
  backoff: ['idle', 'ready', 'waiting', 'paused'],
  paused: ['idle', 'ready', 'waiting'],
  halted: ['idle', 'waiting', 'paused'],
} as const satisfies Record<SourcePhaseName, readonly SourcePhaseName[]>;

export function isSuspended(phase: SourcePhase): phase is SuspendedPhase {
  return phase.name === 'backoff' || phase.name === 'paused' || phase.name === 'halted';
}

/** Whether `SOURCE_MOVES` allows the move. */
export function mayMove(from: SourcePhaseName, to: SourcePhaseName): boolean {
  const allowed: readonly SourcePhaseName[] = SOURCE_MOVES[from];
  return from === to || allowed.includes(to);
}

export function pausedByOperator(source: string): SourcePhase {
  const advice = `Run noria resume ${source}, or resume it in the dashboard.`;
  return { name: 'paused', reason: 'paused by the operator', advice, untilAt: Infinity, urgentAt: Infinity };
}

/** The phase of a source that wants to draw but has to wait, because of its last call or else of the pace. */
export function waitingPhase(last: DrawOutcome | undefined, intervalMs: number): SourcePhase {
  if (last === undefined || last.verdict.kind === 'ok') {
    return { name: 'waiting', reason: `the pace allows one call every ${roughDuration(intervalMs)}` };
  }
  return { name: 'waiting', reason: describeOutcome(last), advice: last.advice, code: last.code };
}

/** The phase of `source`, which a call suspended at monotonic `now`. */
export function suspendedPhase(
  outcome: DrawOutcome,
  { phase, ms, urgentMs }: Suspension,
  { source, now }: { readonly source: string; readonly now: number },
): SourcePhase {
  const { code } = outcome;
  const reason = describeOutcome(outcome);
  const after = ` Then run noria resume ${source}, or noria reload after a change of the configuration.`;
  const advice = phase === 'halted' ? `${outcome.advice}${after}` : outcome.advice;
  return { name: phase, reason, advice, code, untilAt: now + ms, urgentAt: now + urgentMs };
}

/** The fields of a phase that the event `source.moved` and the status contain. */
export function phaseReport(phase: SourcePhase): {
  readonly reason: string;
  readonly advice?: string;
  readonly code?: string;
} {
  const { reason } = phase;
  const { advice = '', code } = 'advice' in phase || 'code' in phase ? phase : {};
  return { reason, ...(advice === '' ? {} : { advice }), ...(code === undefined ? {} : { code }) };
}
