/**
 * The second attempt of one dial: when it may start beside a slow first one, what it costs and how it ended.
 *
 * Owns the one deadline after which a first attempt is overdue.
 */
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import type { Lease } from '../pool/lease.ts';
import { type HedgeAfter, type HedgeBudget, hedgeDelayMs } from './hedging.ts';

export interface HedgeParts {
  readonly deadlines: Deadlines;
  readonly bus: EventBus;
  readonly budget: HedgeBudget;
}

export interface HedgeSettings {
  readonly hedgeAfter: HedgeAfter;
  readonly attemptTimeoutMs: number;
}

export class Hedge {
  readonly #parts: HedgeParts;
  readonly #settings: HedgeSettings;
  readonly #onOverdue: () => void;
  #deadline: Deadline | undefined;
  /** One hedge was taken from the budget, and it is not known yet whether it was waste. */
  #charged = false;

  /** @param onOverdue - the attempt for which it was armed takes longer than it should. */
  constructor(parts: HedgeParts, settings: HedgeSettings, onOverdue: () => void) {
    this.#parts = parts;
    this.#settings = settings;
    this.#onOverdue = onOverdue;
  }

  /**
   * A first attempt starts through the member of `lease`. A session keeps its member while that lives: slowness is no
   * reason to leave it, so it is not hedged.
   */
  arm(lease: Lease, usualMs: number | undefined): void {
    this.disarm();
    if (lease.session !== undefined) return;
    const { hedgeAfter, attemptTimeoutMs } = this.#settings;
    const delayMs = hedgeDelayMs(hedgeAfter, attemptTimeoutMs, usualMs, lease.doubtful);
    if (delayMs !== undefined) this.#deadline = this.#parts.deadlines.set(delayMs, this.#onOverdue);
  }

  disarm(): void {
    if (this.#deadline !== undefined) this.#parts.deadlines.clear(this.#deadline);
    this.#deadline = undefined;
  }

  /** Whether there is a hedge to spend; if so it is spent. A delay that the operator has chosen needs no budget. */
  spend(): boolean {
    if (this.#settings.hedgeAfter !== 'auto') return true;
    this.#charged = this.#parts.budget.spend();
    return this.#charged;
  }

  /** It ended before it began, or before it could show anything. */
  refund(): void {
    if (this.#charged) this.#parts.budget.refund();
    this.#charged = false;
  }

  /** `lost`: the first attempt came through after all, so it was waste. */
  ended(outcome: 'won' | 'lost' | 'failed'): void {
    if (outcome === 'lost') this.#charged = false;
    else this.refund();
    this.#parts.bus.emit('hedge.ended', { outcome });
  }
}
