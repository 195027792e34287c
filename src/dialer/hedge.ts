/**
 * Hedging: noria starts a second attempt (a hedge) in parallel with a slow first attempt. A hedge is wasted if the
 * first attempt succeeds after all. A budget limits only wasted hedges. So a good pool gets at most a tenth more
 * attempts, and a bad pool gets as many hedges as it needs.
 */
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import type { Lease } from '../pool/lease.ts';

/**
 * When a hedge, a second attempt, starts. `auto`: after a delay that noria learns from the source's successful
 * attempts. `off`: never. A number: after this delay in ms.
 */
export type HedgeAfter = 'auto' | 'off' | number;

export interface HedgeSettings {
  readonly hedgeAfter: HedgeAfter;
  readonly attemptTimeoutMs: number;
}

/** The minimum of a learned delay. It prevents needless hedges: each hedge opens a connection to a member. */
export const MIN_HEDGE_DELAY_MS = 50;

/**
 * How long a first attempt may take before its hedge starts; undefined for no hedge.
 * @param p95Ms - the 95th percentile of the latency of the source's faster members, if known.
 * @param doubtful - whether the first member is unproven. The hedge for an unproven member starts after half the usual
 * time.
 */
export function hedgeDelayMs(
  { hedgeAfter, attemptTimeoutMs }: HedgeSettings,
  p95Ms: number | undefined,
  doubtful: boolean,
): number | undefined {
  if (hedgeAfter === 'off') return undefined;
  if (hedgeAfter !== 'auto') return hedgeAfter;
  const usualMs = p95Ms ?? attemptTimeoutMs / 4;
  return Math.max(MIN_HEDGE_DELAY_MS, doubtful ? usualMs / 2 : usualMs);
}

/** Each dial adds this number of hedges to the budget, so ten dials add one hedge. */
const EARNED_PER_DIAL = 0.1;
/** The maximum number of hedges in the budget. The budget starts with this number. */
const MAX_BALANCE = 10;

/** Limits the wasted hedges of a dialer to a share of its dials. */
export class HedgeBudget {
  #balance = MAX_BALANCE;

  earn(): void {
    this.#balance = Math.min(MAX_BALANCE, this.#balance + EARNED_PER_DIAL);
  }

  /** Takes one hedge from the budget. Returns false if the budget is used up. */
  spend(): boolean {
    if (this.#balance < 1) return false;
    this.#balance -= 1;
    return true;
  }

  /** Returns a hedge to the budget, because it is not wasted: it won, did not start, or failed. */
  refund(): void {
    this.#balance = Math.min(MAX_BALANCE, this.#balance + 1);
  }
}

export interface HedgeParts {
  readonly deadlines: Deadlines;
  readonly bus: EventBus;
  readonly hedgeBudget: HedgeBudget;
}

/** Starts the hedge of one dial. Owns the deadline after which the first attempt is overdue. */
export class Hedge {
  readonly #parts: HedgeParts;
  readonly #settings: HedgeSettings;
  readonly #onOverdue: () => void;
  #deadline: Deadline | undefined;
  /** Whether a hedge was taken from the budget and has not ended. */
  #charged = false;

  constructor(parts: HedgeParts, settings: HedgeSettings, onOverdue: () => void) {
    this.#parts = parts;
    this.#settings = settings;
    this.#onOverdue = onOverdue;
  }

  /** Call it when a first attempt starts. `now` is the monotonic moment of this start. */
  arm(lease: Lease, p95Ms: number | undefined, now: number): void {
    this.disarm();
    const delayMs = hedgeDelayMs(this.#settings, p95Ms, lease.doubtful);
    if (delayMs !== undefined) this.#deadline = this.#parts.deadlines.set(delayMs, this.#onOverdue, now);
  }

  disarm(): void {
    if (this.#deadline !== undefined) this.#parts.deadlines.clear(this.#deadline);
    this.#deadline = undefined;
  }

  /** Whether a hedge may start. With the setting `auto`, takes the hedge from the budget. */
  spend(): boolean {
    if (this.#settings.hedgeAfter !== 'auto') return true;
    this.#charged = this.#parts.hedgeBudget.spend();
    return this.#charged;
  }

  /** Returns the hedge to the budget, because it did not start or ended without a result. */
  refund(): void {
    if (this.#charged) this.#parts.hedgeBudget.refund();
    this.#charged = false;
  }

  /** Ends the hedge. `lost`: the first attempt succeeded, so the hedge is wasted. */
  ended(outcome: 'won' | 'lost' | 'failed'): void {
    if (outcome === 'lost') this.#charged = false;
    else this.refund();
    this.#parts.bus.emit('hedge.ended', { outcome });
  }
}

interface OverdueAttempt {
  readonly lease: { readonly member: string };
}

/**
 * The maximum number of members that a hedge avoids, because each of them slows the search in the pool. If more members
 * than this are slow, the rest are probably slow as well.
 */
const MAX_AVOIDED = 64;

/**
 * The overdue attempts of a dialer: those that have taken longer than their hedge delay. Hedges avoid the members of
 * these attempts, because an attempt through a silent member fails only at its timeout.
 */
export class OverdueAttempts {
  readonly #overdue = new Set<OverdueAttempt>();

  add(attempt: OverdueAttempt): void {
    this.#overdue.add(attempt);
  }

  delete(attempt: OverdueAttempt): void {
    this.#overdue.delete(attempt);
  }

  get size(): number {
    return this.#overdue.size;
  }

  /**
   * The members that a hedge avoids: slow members, and members with an overdue attempt. Members in `tried` are left
   * out, because the dial avoids them anyway.
   */
  membersToAvoid(slow: readonly string[], tried: readonly string[]): readonly string[] {
    const members = new Set(slow);
    for (const { lease } of this.#overdue) members.add(lease.member);
    for (const member of tried) members.delete(member);
    return [...members].slice(0, MAX_AVOIDED);
  }
}
