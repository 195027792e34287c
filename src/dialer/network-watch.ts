/**
 * Tells a broken network of our own from broken members: many members at once that nobody answers at.
 *
 * A refused connection is an answer: somebody's machine sent it. Only silence and a missing route count, of several
 * members in a row, while nobody at all answers. While the network is judged to be down, members are not blamed.
 */
import type { Clock } from '../core/clock.ts';

/** Distinct members that must be lost, without an answer from any. */
export const LOST_MEMBERS_OF_A_DOWN_NETWORK = 4;
/** Losses further apart than this have nothing to do with each other. */
const LOST_WITHIN_MS = 60_000;
/** After so long without an answer, the members are likelier dead than the network; then they are blamed again until an answer comes. */
const LONGEST_FREEZE_MS = 2 * 60_000;

export class NetworkWatch {
  readonly #clock: Clock;
  readonly #onJudged: (down: boolean) => void;
  readonly #lostAt = new Map<string, number>();
  #phase: 'up' | 'down' | 'given-up' = 'up';
  #downAt = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, onJudged: (down: boolean) => void) {
    this.#clock = clock;
    this.#onJudged = onJudged;
  }

  get down(): boolean {
    if (this.#phase === 'down' && this.#clock.monotonic() - this.#downAt > LONGEST_FREEZE_MS) {
      this.#move('given-up');
    }
    return this.#phase === 'down';
  }

  /** Somebody out there answered, whatever the answer. */
  answered(): void {
    this.#answeredAt = this.#clock.monotonic();
    if (this.#lostAt.size > 0) this.#lostAt.clear();
    if (this.#phase !== 'up') this.#move('up');
  }

  /** For `ms` it was tried to connect to `member`, and there was no answer, or no route. */
  lost(member: string, ms: number): void {
    const now = this.#clock.monotonic();
    if (this.#answeredAt >= now - ms) return; // the network was up meanwhile
    for (const [other, at] of this.#lostAt) if (now - at > LOST_WITHIN_MS) this.#lostAt.delete(other);
    this.#lostAt.set(member, now);
    if (this.#phase !== 'up' || this.#lostAt.size < LOST_MEMBERS_OF_A_DOWN_NETWORK) return;
    this.#downAt = now;
    this.#move('down');
  }

  #move(phase: 'up' | 'down' | 'given-up'): void {
    const wasDown = this.#phase === 'down';
    this.#phase = phase;
    const isDown = phase === 'down';
    if (isDown !== wasDown) this.#onJudged(isDown);
  }
}
