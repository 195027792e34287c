/**
 * Lengthens the time between draws while the draws bring no members, or only members that fail before their first use. So even a
 * whole day of such draws costs only a few hundred calls and members.
 */

/** The time between draws grows after this number of draws in a row without a gain. A single empty answer is normal. */
const MAX_FRUITLESS_DRAWS = 3;
/** After this many members in a row that failed before their first use, noria distrusts the source. */
const DISTRUST_AFTER = 10;
/** Like DISTRUST_AFTER, but for members that need a probe. The number is higher because most free proxies do not work. */
const DISTRUST_AFTER_UNPROVEN = 100;
const MAX_SPACING_MS = 120_000;

export class DrawSpacing {
  readonly #distrustAfter: number;
  /** The number of draws in a row that did not increase the number of usable members. */
  #fruitlessDraws = 0;
  #unusedFailures = 0;
  /** The number of draws since noria began to distrust the source. */
  #distrustedDraws = 0;
  /** The monotonic moment before which no draw starts. */
  #notBeforeAt = 0;

  constructor(unproven: boolean) {
    this.#distrustAfter = unproven ? DISTRUST_AFTER_UNPROVEN : DISTRUST_AFTER;
  }

  /** Whether the next draw will probably bring usable members. */
  get isPromising(): boolean {
    return this.#fruitlessDraws === 0 && !this.#isDistrusted;
  }

  /** The number of members in a row that failed before their first use; undefined while noria trusts the source. */
  get unusedFailures(): number | undefined {
    return this.#isDistrusted ? this.#unusedFailures : undefined;
  }

  /**
   * How many members a call may request. While noria distrusts the source, a call requests only 1 member: that is enough to see
   * whether the members of the source work again.
   */
  get maxPerCall(): number {
    return this.#isDistrusted ? 1 : Infinity;
  }

  /**
   * The monotonic moment before which no draw should start.
   *
   * @param urgent - whether clients are waiting and no member is usable. An urgent draw is delayed only while noria
   * distrusts the source: more members that fail immediately would not help the clients.
   */
  notBeforeAt(urgent: boolean): number {
    return urgent && !this.#isDistrusted ? 0 : this.#notBeforeAt;
  }

  /**
   * Records an answered draw at the monotonic moment `now`.
   *
   * @param gained - how many more members are usable because of the draw.
   * @param gapMs - the time from the answer of one call to the next call.
   */
  recordDraw(gained: number, now: number, gapMs: number): void {
    this.#fruitlessDraws = gained > 0 ? 0 : this.#fruitlessDraws + 1;
    this.#distrustedDraws = this.#isDistrusted ? this.#distrustedDraws + 1 : 0;
    const doublings = Math.max(this.#fruitlessDraws - MAX_FRUITLESS_DRAWS + 1, this.#distrustedDraws);
    this.#notBeforeAt = doublings > 0 ? now + Math.min(MAX_SPACING_MS, gapMs * 2 ** doublings) : 0;
  }

  /**
   * Records a member that failed before its first use.
   *
   * @returns the number of such members in a row if noria now begins to distrust the source, else undefined.
   */
  recordUnusedFailure(): number | undefined {
    this.#unusedFailures += 1;
    return this.#unusedFailures === this.#distrustAfter ? this.#unusedFailures : undefined;
  }

  /** Records that a member accepted a tunnel. Runs for every tunnel, so it must be fast. */
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
