/**
 * What a source is doing, and what it was asked to do. Only `move` writes the phase. It rejects every move that
 * SOURCE_MOVES does not list, and emits the others as `source.moved`.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { isSuspended, mayMove, phaseReport, type SourcePhase } from './phase.ts';

export class SourceState {
  readonly #source: string;
  readonly #clock: Clock;
  readonly #bus: EventBus;
  #phase: SourcePhase = { name: 'idle', reason: 'no client request yet' };
  /** The monotonic moment of the last move to a phase with another name. */
  #movedAt: number;
  isPausedByOperator = false;
  /** The operator requested a draw now, also without demand and despite a suspension. */
  refillRequested = false;
  /** The draw before the first client is still pending. */
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

  /** How long the source has been in a phase of this name. */
  get lastedMs(): number {
    return this.#clock.monotonic() - this.#movedAt;
  }

  /**
   * How long the source draws nothing, even if clients wait. If waiting clients shorten the suspension, it counts as 0,
   * because they must wait to do so.
   */
  get suspendedMs(): number {
    if (!isSuspended(this.#phase) || this.refillRequested) return 0;
    const { untilAt, urgentAt } = this.#phase;
    return urgentAt < untilAt ? 0 : untilAt - this.#clock.monotonic();
  }

  /**
   * The monotonic moment at which the suspension ends; 0 when the source is not suspended, or when the operator
   * requested a draw despite the suspension.
   */
  suspendedUntilAt(clientsAreWaiting: boolean): number {
    if (!isSuspended(this.#phase) || this.refillRequested) return 0;
    return clientsAreWaiting ? this.#phase.urgentAt : this.#phase.untilAt;
  }

  /** Ends a suspension that the old options caused. The source makes one attempt with the new options. */
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
