/** Where a source is in its life, and which moves there are. The picture in docs/architecture.md is the same table. */
import type { DrawOutcome, Suspension } from './reaction.ts';
import { describeOutcome } from './words.ts';

interface Trouble {
  /** Why, in noria's words; without text of the service. */
  readonly reason: string;
  /** What a person can do; empty where nothing needs doing. */
  readonly advice: string;
  /** The service's code, or `transport`; absent where neither is the reason. */
  readonly code?: string;
  /** Monotonic moment from which it is tried again; Infinity: not by itself. */
  readonly untilAt: number;
  /** The same while a client waits for a member. */
  readonly urgentAt: number;
}

/** What is true in each phase, and only there. */
export type SourcePhase =
  /** Nobody wants its members. */
  | { readonly name: 'idle'; readonly reason: string }
  /** It holds as many members as wanted. */
  | { readonly name: 'ready'; readonly reason: string }
  /** It wants to draw, and the pace does not let it yet, or the last answers make it slower. */
  | { readonly name: 'waiting'; readonly reason: string; readonly advice?: string; readonly code?: string }
  | { readonly name: 'drawing'; readonly reason: string }
  /** The service cannot be reached or understood. */
  | ({ readonly name: 'backoff' } & Trouble)
  /** A condition that passes, or a person who said so. */
  | ({ readonly name: 'paused' } & Trouble)
  /** It needs a person. */
  | ({ readonly name: 'halted' } & Trouble);

export type SourcePhaseName = SourcePhase['name'];
export type SuspendedPhase = Extract<SourcePhase, Trouble>;

/** The moves there are. A phase may also follow itself, with another reason. */
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

/** Whether the table lets `from` be followed by `to`. */
export function mayMove(from: SourcePhaseName, to: SourcePhaseName): boolean {
  const allowed: readonly SourcePhaseName[] = SOURCE_MOVES[from];
  return from === to || allowed.includes(to);
}

export const PAUSED_BY_PERSON: SourcePhase = {
  name: 'paused',
  reason: 'a person paused it',
  advice: 'Resume it when it may draw again.',
  untilAt: Infinity,
  urgentAt: Infinity,
};

/** The phase that a call leads to, from monotonic `now` on. */
export function suspendedPhase(
  outcome: DrawOutcome,
  { phase, ms, urgentMs }: Suspension,
  now: number,
): SourcePhase {
  const { code, advice } = outcome;
  return {
    name: phase,
    reason: describeOutcome(outcome),
    advice,
    code,
    untilAt: now + ms,
    urgentAt: now + urgentMs,
  };
}

/** What `source.moved` tells of a phase. */
export function phaseReport(phase: SourcePhase): {
  readonly reason: string;
  readonly advice?: string;
  readonly code?: string;
} {
  const { reason } = phase;
  const { advice = '', code } = 'advice' in phase || 'code' in phase ? phase : {};
  return { reason, ...(advice === '' ? {} : { advice }), ...(code === undefined ? {} : { code }) };
}
