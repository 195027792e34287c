/**
 * Keeps the phase of a source, and what the operator requested. Only `move` changes the phase. `move` emits `source.moved` for
 * each move that SOURCE_MOVES lists, and throws for any other move.
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
  /** Whether the operator requested a draw. Such a draw needs no demand and ignores a suspension. */
  refillRequested = false;
  /** Whether the source still has to make its first draw, which needs no client request. */
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

  /** How long the source has been in its phase. The time continues if only the reason changes. */
  get lastedMs(): number {
    return this.#clock.monotonic() - this.#movedAt;
  }

  /**
   * The time in ms for which the source will not draw, even if clients wait. 0 if the suspension is shorter when clients wait:
   * noria then lets clients wait instead of refusing them.
   */
  get suspendedMs(): number {
    if (!isSuspended(this.#phase) || this.refillRequested) return 0;
    const { untilAt, urgentAt } = this.#phase;
    return urgentAt < untilAt ? 0 : untilAt - this.#clock.monotonic();
  }

  /**
   * The monotonic moment at which the suspension ends; 0 if the source is not suspended, or if the operator requested
   * a draw.
   */
  suspendedUntilAt(clientsAreWaiting: boolean): number {
    if (!isSuspended(this.#phase) || this.refillRequested) return 0;
    return clientsAreWaiting ? this.#phase.urgentAt : this.#phase.untilAt;
  }

  /** Ends a suspension that the old options caused, so that the source makes one attempt with the new options. */
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
