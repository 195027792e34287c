/**
 * Keeps what a source learns from its calls and from failed members. Decides how the source reacts to a call, how
 * many members it requests at most, and what it warns about.
 */
import type { Clock } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import { roughDuration } from '../core/words.ts';
import { PACE_UNCHANGED } from './pace-rule.ts';
import {
  type DrawOutcome,
  describeOutcome,
  isLossOfStore,
  PARAMS_WRONG,
  type Reaction,
  reactTo,
} from './reaction.ts';
import type { SourceStatistics } from './source-statistics.ts';

interface DrawHistoryOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly statistics: SourceStatistics;
  /** Whether members must pass a probe before their first use. It is normal that many of these members fail. */
  readonly unproven: boolean;
  readonly warn: (message: string) => void;
}

export interface RecordedDraw {
  readonly outcome: DrawOutcome;
  readonly asked: number;
  /** How many more members are usable because of the call. */
  readonly gained: number;
  /** The time in ms from the answer of one call to the next call. */
  readonly gapMs: number;
  /**
   * A lower bound, in ms, of the time between the arrival of the previous call at the service and this call; undefined
   * if unknown.
   */
  readonly sinceArrivalMs: number | undefined;
}

/** The number of draws in a row that brought no member, after which noria warns the operator. */
const EMPTY_BEFORE_WARNING = 3;
export const UNUSED_FAILURES_ADVICE =
  "Check that this machine's address is bound in the console of the service, and check upstream.protocol and upstream.auth of the source.";
/**
 * After this number of draws in a row that added no usable member, the time between draws grows. The number is above 1,
 * because a single empty answer is normal.
 */
const MAX_FRUITLESS_DRAWS = 3;
/** noria distrusts a source after this number of its members in a row have failed before their first use. */
const DISTRUST_AFTER = 10;
/**
 * Like DISTRUST_AFTER, but for members that need a probe. The number is higher because most free proxies do not work.
 */
const DISTRUST_AFTER_UNPROVEN = 100;
const MAX_SPACING_MS = 120_000;
const NO_STREAK = { kind: '', length: 0 };

export class DrawHistory {
  readonly #options: DrawHistoryOptions;
  readonly spacing: DrawSpacing;
  #last: DrawOutcome | undefined;
  /**
   * Set if noria could not make the latest call because the fleet's store was lost. In this case, `last` returns this
   * outcome.
   */
  #lossOfStore: DrawOutcome | undefined;
  /** The kind of the last call's result (`CodeVerdict.kind`), and the number of calls in a row with this kind. */
  #streak = NO_STREAK;
  /** True after noria has warned that it dropped all proxies of an answer. A successful draw resets the flag. */
  #warnedOfDropped = false;

  constructor(options: DrawHistoryOptions) {
    this.#options = options;
    this.spacing = new DrawSpacing(options.unproven);
  }

  get last(): DrawOutcome | undefined {
    return this.#lossOfStore ?? this.#last;
  }

  /**
   * Whether the last call failed, but a repeated call may succeed without an action of the operator. The source then
   * repeats the call even without demand. Reason: a load balancer sends no clients to a noria that is not ready, so
   * noria would wait for demand forever. An empty answer does not count as a failure, because repeating the call may
   * cost money.
   */
  get mayRecover(): boolean {
    const kind = this.last?.verdict.kind ?? 'ok';
    return kind !== 'ok' && kind !== 'empty' && kind !== 'halt';
  }

  get maxPerCall(): number {
    return Math.min(this.#options.statistics.learnedMax, this.spacing.maxPerCall);
  }

  /** Records how a call ended. Returns the effects on the pace and on the source. */
  recordDraw({ outcome, asked, gained, gapMs, sinceArrivalMs }: RecordedDraw): Reaction {
    const { clock, random } = this.#options;
    const isLoss = isLossOfStore(outcome.code);
    this.#lossOfStore = isLoss ? outcome : undefined;
    if (!isLoss) this.#last = outcome;
    if (outcome.code === PARAMS_WRONG && asked > 1) return this.#requestLess(asked);
    const { kind } = outcome.verdict;
    this.#streak = { kind, length: this.#streak.kind === kind ? this.#streak.length + 1 : 1 };
    if (kind === 'ok' || kind === 'empty') this.spacing.recordDraw(gained, clock.monotonic(), gapMs);
    if (kind === 'ok') this.#warnedOfDropped = false;
    this.#warnAbout(outcome, sinceArrivalMs);
    return reactTo(outcome, { consecutive: this.#streak.length, wallAt: clock.now(), random });
  }

  /** Records that the pool removed a member because it failed before its first use. */
  recordUnusedFailure(): void {
    const failures = this.spacing.recordUnusedFailure();
    if (failures === undefined) return;
    this.#options.warn(
      `${failures} members in a row failed before their first use, so noria now draws one member at a time, and less often. ${UNUSED_FAILURES_ADVICE}`,
    );
  }

  /**
   * Forgets that the service refused this noria's last call. Call it when another noria of the fleet has drawn from the
   * instance: the refusal no longer applies.
   */
  forgetRefusalOfInstance(): void {
    if (this.#last?.concernsInstance) this.#last = undefined;
  }

  /**
   * Forgets that noria could not make the latest call because the fleet's store was lost. Call it when the store is
   * available again.
   */
  forgetLossOfStore(): void {
    if (this.#lossOfStore === undefined) return;
    this.#lossOfStore = undefined;
    this.#streak = NO_STREAK;
  }

  /** Forgets what was learned with an old configuration. */
  reset(): void {
    this.#last = undefined;
    this.#lossOfStore = undefined;
    this.spacing.reset();
    this.#streak = NO_STREAK;
    this.#warnedOfDropped = false;
  }

  /**
   * Halves the number of members that noria requests per call, because the service may have rejected only that number.
   * If the service also rejects a request for 1 member, the configuration is wrong.
   */
  #requestLess(asked: number): Reaction {
    const max = Math.floor(asked / 2);
    this.#options.statistics.learnedMax = max;
    this.#options.warn(
      `the service rejected a count of ${asked} (${PARAMS_WRONG}), so noria now requests at most ${max} per call; set params.count to the maximum of the instance`,
    );
    return { settlement: PACE_UNCHANGED };
  }

  #warnAbout(outcome: DrawOutcome, sinceArrivalMs: number | undefined): void {
    const { warn } = this.#options;
    const { kind } = outcome.verdict;
    if (outcome.allDropped) {
      if (!this.#warnedOfDropped) warn(`${describeOutcome(outcome)} ${outcome.advice}`);
      this.#warnedOfDropped = true;
    } else if (kind === 'empty' && this.#streak.length === EMPTY_BEFORE_WARNING) {
      warn(
        `${EMPTY_BEFORE_WARNING} draws in a row brought no member: ${describeOutcome(outcome)} ${outcome.advice}`,
      );
    }
    if (kind === 'slow-down') warn(`${describeOutcome(outcome)} ${causeOfRefusal(sinceArrivalMs)}`);
  }
}

/**
 * Explains why a call may have come too early for the service (12002). Names another program as a possible cause only
 * if noria knows that its own calls were not too close to each other.
 */
function causeOfRefusal(sinceArrivalMs: number | undefined): string {
  if (sinceArrivalMs === undefined) {
    return 'noria has no record of when its previous call arrived, so its own calls may be the cause; noria now calls less often. If this repeats, raise interval';
  }
  return `noria's previous call arrived about ${roughDuration(sinceArrivalMs)} before this one, or earlier, so another program may be using this instance; stop that program. If there is none, raise interval`;
}

/**
 * Lengthens the time between draws while draws bring no members, or only members that fail before their first use. So
 * even a whole day of fruitless draws costs only a few hundred calls and members.
 */
export class DrawSpacing {
  readonly #distrustAfter: number;
  /** The number of draws in a row that did not increase the number of usable members. */
  #fruitlessDraws = 0;
  #unusedFailures = 0;
  /** The number of draws since noria began to distrust the source. */
  #distrustedDraws = 0;
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
   * The maximum number of members of one call. It is 1 while noria distrusts the source, because one member shows
   * whether the members of the source work again.
   */
  get maxPerCall(): number {
    return this.#isDistrusted ? 1 : Infinity;
  }

  /**
   * The monotonic moment before which no draw should start.
   *
   * @param urgent - whether clients are waiting and no member is usable. An urgent draw starts at once. Exception: it
   * waits while noria distrusts the source, because new members of this source would probably fail.
   */
  notBeforeAt(urgent: boolean): number {
    return urgent && !this.#isDistrusted ? 0 : this.#notBeforeAt;
  }

  /**
   * Records an answered draw at the monotonic moment `now`.
   *
   * @param gained - how many more members are usable because of the draw.
   * @param gapMs - the time in ms from the answer of one call to the next call.
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
