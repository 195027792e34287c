/**
 * When a second attempt starts beside a slow first one, and how many such may be spent.
 *
 * A hedge that helped costs nothing; what is bounded is the waste: hedges beside a first attempt that would have come
 * through anyway. So a good pool sees at most a tenth more attempts, and a bad one as many as it needs.
 */

/** `auto`: learned from the source's successes. `off`: never. A number: after so many ms, always. */
export type HedgeAfter = 'auto' | 'off' | number;

/** Never sooner: the members are a network away, and a hedge costs one of them a connection. */
export const HEDGE_FLOOR_MS = 50;
/** What one dial adds to the budget, in hedges. */
const EARNED_BY_A_DIAL = 0.1;
/** The most hedges saved up, and what a new dialer starts with. */
const MOST_SAVED = 10;

/**
 * How long to wait for a first attempt before a second starts beside it; undefined: for ever.
 *
 * @param usualMs - what the source's good members need nearly always; undefined until that is known.
 * @param doubtful - the first one's member has yet to prove itself: reason for half the patience.
 */
export function hedgeDelayMs(
  hedgeAfter: HedgeAfter,
  attemptTimeoutMs: number,
  usualMs: number | undefined,
  doubtful: boolean,
): number | undefined {
  if (hedgeAfter === 'off') return undefined;
  if (hedgeAfter !== 'auto') return hedgeAfter;
  const patienceMs = usualMs ?? attemptTimeoutMs / 4;
  return Math.max(HEDGE_FLOOR_MS, doubtful ? patienceMs / 2 : patienceMs);
}

export class HedgeBudget {
  #saved = MOST_SAVED;

  /** A dial began. */
  earn(): void {
    this.#saved = Math.min(MOST_SAVED, this.#saved + EARNED_BY_A_DIAL);
  }

  /** Takes one hedge from what is saved; false when there is none. */
  spend(): boolean {
    if (this.#saved < 1) return false;
    this.#saved -= 1;
    return true;
  }

  /** A hedge turned out not to be waste: it won, or never ran, or the pool is bad enough that it failed itself. */
  refund(): void {
    this.#saved = Math.min(MOST_SAVED, this.#saved + 1);
  }
}
