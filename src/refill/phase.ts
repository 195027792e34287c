/**
 * The phases of a source, the allowed moves between them, the reasons that the status shows, and the state of a source.
 * The diagram in docs/architecture.md has the same moves, checked by test/held/phases.test.ts.
 */

import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { roughDuration } from '../core/words.ts';
import type { InstanceSuspension } from './instance-report.ts';
import { type DrawOutcome, describeOutcome, type Suspension } from './reaction.ts';

interface SuspendedState {
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
  /** There is no demand, or a source with a smaller priority number can serve the clients. */
  | { readonly name: 'idle'; readonly reason: string }
  /** The source has enough members. */
  | { readonly name: 'ready'; readonly reason: string }
  /**
   * The source will draw. It waits for the pace, or it waits longer because earlier draws brought no usable members.
   */
  | { readonly name: 'waiting'; readonly reason: string; readonly advice?: string; readonly code?: string }
  | { readonly name: 'drawing'; readonly reason: string }
  /** noria cannot reach the service or cannot read its answers. */
  | ({ readonly name: 'backoff' } & SuspendedState)
  /** The service reported a temporary condition, or the operator paused the source. */
  | ({ readonly name: 'paused' } & SuspendedState)
  /** The source does not draw until the operator acts. */
  | ({ readonly name: 'halted' } & SuspendedState);

export type SourcePhaseName = SourcePhase['name'];
type SuspendedPhase = Extract<SourcePhase, SuspendedState>;

/** The phases that may follow each phase. A phase may also follow itself, with another reason. */
export const SOURCE_MOVES = {
  idle: ['ready', 'waiting', 'paused', 'halted'],
  ready: ['idle', 'waiting', 'paused', 'halted'],
  waiting: ['idle', 'ready', 'drawing', 'paused', 'backoff', 'halted'],
  drawing: ['idle', 'ready', 'waiting', 'backoff', 'paused', 'halted'],
  backoff: ['idle', 'ready', 'waiting', 'paused', 'halted'],
  paused: ['idle', 'ready', 'waiting', 'halted'],
  halted: ['idle', 'waiting', 'paused'],
} as const satisfies Record<SourcePhaseName, readonly SourcePhaseName[]>;

export function isSuspended(phase: SourcePhase): phase is SuspendedPhase {
  return phase.name === 'backoff' || phase.name === 'paused' || phase.name === 'halted';
}

export function mayMove(from: SourcePhaseName, to: SourcePhaseName): boolean {
  const allowed: readonly SourcePhaseName[] = SOURCE_MOVES[from];
  return from === to || allowed.includes(to);
}

export function pausedByOperator(source: string): SourcePhase {
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

/** Returns the phase of a suspended source. The suspension begins at the monotonic moment `now`. */
export function suspendedPhase(
  outcome: DrawOutcome,
  { phase, ms, urgentMs }: Suspension,
  { source, now }: { readonly source: string; readonly now: number },
): SourcePhase {
  const { code } = outcome;
  const reason = describeOutcome(outcome);
  const advice = adviceOf(outcome, phase, source);
  const endsWithAnyDraw = outcome.concernsInstance === true;
  return { name: phase, reason, advice, code, untilAt: now + ms, urgentAt: now + urgentMs, endsWithAnyDraw };
}

/** The phase of `source` after another noria of the fleet reported a suspension of the instance. */
export function phaseFromReport(suspension: InstanceSuspension, source: string): SuspendedPhase {
  const { phase, code, untilAt = Infinity } = suspension;
  const reason = `${describeOutcome(suspension)} Another noria of the fleet got this answer.`;
  const advice = adviceOf(suspension, phase, source);
  return { name: phase, reason, advice, code, untilAt, urgentAt: untilAt, endsWithAnyDraw: true };
}

function adviceOf(
  { advice }: Pick<DrawOutcome, 'advice'>,
  phase: Suspension['phase'],
  source: string,
): string {
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

/**
 * Keeps the phase of a source, and what the operator requested. Only `move` changes the phase. `move` emits
 * `source.moved` if the phase or its reason changes, and throws for a move that SOURCE_MOVES does not list.
 */
export class SourceState {
  readonly #source: string;
  readonly #clock: Clock;
  readonly #bus: EventBus;
  #phase: SourcePhase = { name: 'idle', reason: 'no client request yet' };
  /** The monotonic moment of the last move to a phase with another name. */
  #movedAt: number;
  isPausedByOperator = false;
  /** Whether the operator requested a draw. Such a draw needs no demand and ignores a suspension. */
  refillRequested = false;
  /** Whether the source has to make a draw that needs no client request, such as its first draw. */
  drawsAhead = false;

  constructor(source: string, { clock, bus }: { readonly clock: Clock; readonly bus: EventBus }) {
    this.#source = source;
    this.#clock = clock;
    this.#bus = bus;
    this.#movedAt = clock.monotonic();
  }

  get phase(): SourcePhase {
    return this.#phase;
  }

  get isSuspended(): boolean {
    return isSuspended(this.#phase);
  }

  get drawsWithoutDemand(): boolean {
    return this.refillRequested || this.drawsAhead;
  }

  /** The time in ms since the source moved to its phase. A change of the reason alone does not restart this time. */
  get lastedMs(): number {
    return this.#clock.monotonic() - this.#movedAt;
  }

  /**
   * The remaining time in ms of a suspension that waiting clients cannot shorten. 0 if the source is not suspended, or
   * if it draws earlier while clients are waiting (`urgentAt`).
   */
  get suspendedMs(): number {
    if (!isSuspended(this.#phase) || this.refillRequested) return 0;
    const { untilAt, urgentAt } = this.#phase;
    return urgentAt < untilAt ? 0 : Math.max(0, untilAt - this.#clock.monotonic());
  }

  /**
   * The monotonic moment at which the suspension ends; 0 if the source is not suspended, or if the operator requested
   * a draw.
   */
  suspendedUntilAt(clientsAreWaiting: boolean): number {
    if (!isSuspended(this.#phase) || this.refillRequested) return 0;
    return clientsAreWaiting ? this.#phase.urgentAt : this.#phase.untilAt;
  }

  /**
   * Ends a suspension, so that the source tries one draw with the new options. The old options may have caused the
   * suspension.
   */
  optionsChanged(): void {
    if (!this.isSuspended || this.isPausedByOperator) return;
    this.move({ name: 'idle', reason: 'the configuration changed' });
    this.refillRequested = true;
  }

  move(next: SourcePhase): void {
    const from = this.#phase;
    const source = this.#source;
    if (!mayMove(from.name, next.name)) {
      throw new TypeError(`source ${source}: ${from.name} -> ${next.name} is not a move`);
    }
    if (from.name !== next.name) this.#movedAt = this.#clock.monotonic();
    this.#phase = next;
    if (from.name === next.name && from.reason === next.reason) return;
    this.#bus.emit('source.moved', { source, from: from.name, to: next.name, ...phaseReport(next) });
  }
}
