/**
 * Increases the time between draws while they bring no members, or only members that fail before their first use. So a
 * whole day of fruitless draws costs only a few hundred calls and members.
 */

/** After this many fruitless draws in a row, draws are spaced. A single empty answer is normal. */
const MAX_FRUITLESS_DRAWS = 3;
/** After this many members in a row that failed before their first use, noria distrusts the source. */
const DISTRUST_AFTER = 10;
/** The same limit for unproven members. It is higher, because most free proxies are dead. */
const DISTRUST_AFTER_UNPROVEN = 100;
const MAX_SPACING_MS = 120_000;

export class DrawSpacing {
  readonly #distrustAfter: number;
  /** Draws in a row that did not increase the number of usable members. */
  #fruitlessDraws = 0;
  #unusedFailures = 0;
  /** Draws since the source became distrusted. */
  #distrustedDraws = 0;
  /** No draw starts before this monotonic moment. */
  #notBeforeAt = 0;

  constructor(unproven: boolean) {
    this.#distrustAfter = unproven ? DISTRUST_AFTER_UNPROVEN : DISTRUST_AFTER;
  }

  /** Whether the next draw is likely to bring usable members. */
  get isPromising(): boolean {
    return this.#fruitlessDraws === 0 && !this.#isDistrusted;
  }

  /** The number of members in a row that failed before their first use, if it makes the source distrusted. */
  get unusedFailures(): number | undefined {
    return this.#isDistrusted ? this.#unusedFailures : undefined;
  }

  /** The maximum per call. It is 1 while the source is distrusted: one member shows whether the source works again. */
  get maxPerCall(): number {
    return this.#isDistrusted ? 1 : Infinity;
  }

  /**
   * Monotonic moment before which no draw should start.
   *
   * @param urgent - clients are waiting and no member is usable. Then an empty answer does not delay the next draw.
   * Distrust still does, because more members that fail at once would not help the clients.
   */
  notBeforeAt(urgent: boolean): number {
    return urgent && !this.#isDistrusted ? 0 : this.#notBeforeAt;
  }

  /**
   * Records a draw with an answer, at monotonic `now`.
   *
   * @param gained - how many more members are usable because of the draw.
   * @param gapMs - the pace.
   */
  recordDraw(gained: number, now: number, gapMs: number): void {
    this.#fruitlessDraws = gained > 0 ? 0 : this.#fruitlessDraws + 1;
    this.#distrustedDraws = this.#isDistrusted ? this.#distrustedDraws + 1 : 0;
    const doublings = Math.max(this.#fruitlessDraws - MAX_FRUITLESS_DRAWS + 1, this.#distrustedDraws);
    this.#notBeforeAt = doublings > 0 ? now + Math.min(MAX_SPACING_MS, gapMs * 2 ** doublings) : 0;
  }

  /**
   * Records a member that failed before its first use. Returns the number of such members in a row, if it makes the
   * source distrusted.
   */
  recordUnusedFailure(): number | undefined {
    this.#unusedFailures += 1;
    return this.#unusedFailures === this.#distrustAfter ? this.#unusedFailures : undefined;
  }

  /** Records that a member accepted a tunnel. On the hot path. */
  recordUse(): void {
    if (this.#unusedFailures === 0) return;
    if (this.#isDistrusted) this.#notBeforeAt = 0;
    this.#unusedFailures = 0;
    this.#distrustedDraws = 0;
  }

  reset(): void {
    this.#fruitlessDraws = 0;
    this.#unusedFailures = 0;
    this.#distrustedDraws = 0;
    this.#notBeforeAt = 0;
  }

  get #isDistrusted(): boolean {
    return this.#unusedFailures >= this.#distrustAfter;
  }
}
