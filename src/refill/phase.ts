/**
 * The phases of a source, the allowed moves between them, and the reasons that the status shows. The diagram in
 * docs/architecture.md has the same moves, checked by test/held/phases.test.ts.
 */
import { roughDuration } from '../core/words.ts';
import { type DrawOutcome, describeOutcome, type Suspension } from './reaction.ts';
import type { SourceState } from './status.ts';

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

/** The reason of the wait is the last call if that was not successful, else the pace. */
export function waitingPhase(last: DrawOutcome | undefined, intervalMs: number): SourcePhase {
  if (last === undefined || last.verdict.kind === 'ok') {
    return { name: 'waiting', reason: `the pace allows one call every ${roughDuration(intervalMs)}` };
  }
  return { name: 'waiting', reason: describeOutcome(last), advice: last.advice, code: last.code };
}

/** What the event `source.moved` and the status tell of a phase. */
export function phaseReport(
  phase: SourcePhase,
): Pick<Suspension, 'reason' | 'code'> & { readonly advice?: string } {
  const { advice = '', code } = 'advice' in phase || 'code' in phase ? phase : {};
  return { reason: phase.reason, ...(advice !== '' && { advice }), ...(code !== undefined && { code }) };
}
