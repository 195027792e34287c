/**
 * What the last draws were worth: draws that bring nothing new, or members that die before anyone could use them, are
 * spaced more and more widely, so that a day of them stays a few hundred calls and a few members.
 */

/** Fruitless draws in a row before the next ones are spaced: an empty answer now and then is normal. */
const PATIENCE = 3;
/** Members in a row that failed unused before a source is doubted; free proxies are mostly dead. */
const DOUBT_AFTER = 10;
const DOUBT_AFTER_UNPROVEN = 100;
const SPACING_MOST_MS = 120_000;

export class DrawSpacing {
  readonly #doubtAfter: number;
  /** Draws in a row after which no more members were usable than before. */
  #fruitless = 0;
  #diedInARow = 0;
  /** Draws since the source is doubted. */
  #doubtedDraws = 0;
  /** Monotonic. */
  #notBeforeAt = 0;

  constructor(unproven: boolean) {
    this.#doubtAfter = unproven ? DOUBT_AFTER_UNPROVEN : DOUBT_AFTER;
  }

  /** Whether the next draw may be expected to bring members that serve. */
  get promising(): boolean {
    return this.#fruitless === 0 && !this.#isDoubted;
  }

  get fruitless(): number {
    return this.#fruitless;
  }

  get diedInARow(): number {
    return this.#diedInARow;
  }

  /** One at a time while it is doubted: enough to see whether it has recovered. */
  get mostPerCall(): number {
    return this.#isDoubted ? 1 : Infinity;
  }

  /**
   * Monotonic moment before which no further draw is worth it.
   *
   * @param urgent - a client waits and nothing is usable: then an empty answer is asked again at the pace, while members that
   * die at once would not help it.
   */
  notBeforeAt(urgent: boolean): number {
    return urgent && !this.#isDoubted ? 0 : this.#notBeforeAt;
  }

  /** A draw ended with an answer at monotonic `now`, and so many more members are usable. */
  drew(gained: number, now: number, gapMs: number): void {
    this.#fruitless = gained > 0 ? 0 : this.#fruitless + 1;
    this.#doubtedDraws = this.#isDoubted ? this.#doubtedDraws + 1 : 0;
    const doublings = Math.max(this.#fruitless - PATIENCE + 1, this.#doubtedDraws);
    this.#notBeforeAt = doublings > 0 ? now + Math.min(SPACING_MOST_MS, gapMs * 2 ** doublings) : 0;
  }

  /** A member failed before anyone could use it. True when that makes the source a doubted one. */
  died(): boolean {
    this.#diedInARow += 1;
    return this.#diedInARow === this.#doubtAfter;
  }

  /** A member served. */
  proved(): void {
    if (this.#diedInARow === 0) return;
    if (this.#isDoubted) this.#notBeforeAt = 0;
    this.#diedInARow = 0;
    this.#doubtedDraws = 0;
  }

  /** What was learned counts no more. */
  reset(): void {
    this.#fruitless = 0;
    this.#diedInARow = 0;
    this.#doubtedDraws = 0;
    this.#notBeforeAt = 0;
  }

  get #isDoubted(): boolean {
    return this.#diedInARow >= this.#doubtAfter;
  }
}
