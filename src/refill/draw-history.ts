/**
 * Keeps what a source learns from its calls and from failed members. Decides how the source reacts to a call, how
 * many members it requests at most, and what it warns about.
 */
import type { Clock } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import { DrawSpacing } from './draw-spacing.ts';
import { PACE_UNCHANGED } from './pace-rule.ts';
import { type DrawOutcome, describeOutcome, PARAMS_WRONG, type Reaction, reactTo } from './reaction.ts';
import type { SourceRecords } from './source-records.ts';

export interface DrawHistoryOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly records: SourceRecords;
  /** Whether members must pass a probe before their first use. Many of them then fail, which is normal. */
  readonly unproven: boolean;
  readonly warn: (message: string) => void;
}

interface EndedCall {
  readonly outcome: DrawOutcome;
  readonly asked: number;
  /** The number of additional usable members that the call brought. */
  readonly gained: number;
  /** The time in ms from the answer of one call to the next call. */
  readonly gapMs: number;
  /**
   * When noria reserved this call, at least this time in ms had passed since the previous call arrived at the service; undefined
   * if unknown.
   */
  readonly sinceArrivalMs: number | undefined;
}

/** noria warns the operator after this many draws in a row without a member. */
const EMPTY_BEFORE_WARNING = 3;
/** Advice for members that fail before their first use. */
export const UNUSED_FAILURES_ADVICE =
  "Check that this machine's address is bound in the console, and check upstream.protocol and upstream.auth.";
const NO_STREAK = { kind: '', length: 0 };

export class DrawHistory {
  readonly #options: DrawHistoryOptions;
  readonly spacing: DrawSpacing;
  #last: DrawOutcome | undefined;
  /** The kind of verdict on the last call (see codes.ts), and the number of calls in a row with this kind. */
  #streak = NO_STREAK;
  /** True after noria has warned that it dropped all proxies of an answer. A successful draw resets the flag. */
  #warnedOfDropped = false;

  constructor(options: DrawHistoryOptions) {
    this.#options = options;
    this.spacing = new DrawSpacing(options.unproven);
  }

  get last(): DrawOutcome | undefined {
    return this.#last;
  }

  /**
   * Whether the last call failed, but the next call may succeed without an action of the operator. The source then repeats the
   * call even without demand. Otherwise noria might never be ready again: a load balancer sends no clients to a noria that is not
   * ready, so there is no demand. An empty answer does not count as a failure, because repeating the call may cost money.
   */
  get mayRecover(): boolean {
    const kind = this.#last?.verdict.kind ?? 'ok';
    return kind !== 'ok' && kind !== 'empty' && kind !== 'halt';
  }

  get maxPerCall(): number {
    return Math.min(this.#options.records.learnedMax, this.spacing.maxPerCall);
  }

  /** Records how a call ended. Returns the effects on the pace and on the source. */
  recordCall({ outcome, asked, gained, gapMs, sinceArrivalMs }: EndedCall): Reaction {
    const { clock, random } = this.#options;
    this.#last = outcome;
    if (outcome.code === PARAMS_WRONG && asked > 1) return this.#requestLess(asked);
    const { kind } = outcome.verdict;
    this.#streak = { kind, length: this.#streak.kind === kind ? this.#streak.length + 1 : 1 };
    if (kind === 'ok' || kind === 'empty') this.spacing.recordDraw(gained, clock.monotonic(), gapMs);
    if (kind === 'ok') this.#warnedOfDropped = false;
    this.#warnAbout(outcome, sinceArrivalMs);
    return reactTo(outcome, this.#streak.length, clock.now(), random);
  }

  /** Records that the pool removed a member because it failed before its first use. */
  recordUnusedFailure(): void {
    const failures = this.spacing.recordUnusedFailure();
    if (failures === undefined) return;
    this.#options.warn(
      `${failures} members in a row failed before their first use, so noria now draws one at a time and less often. ${UNUSED_FAILURES_ADVICE}`,
    );
  }

  /**
   * Forgets that the service refused this noria's last call. Call it when another noria of the fleet has drawn from the instance,
   * because the refusal is then out of date.
   */
  forgetRefusalOfInstance(): void {
    if (this.#last?.concerns === 'instance') this.#last = undefined;
  }

  /** Forgets what was learned with an old configuration. */
  reset(): void {
    this.#last = undefined;
    this.spacing.reset();
    this.#streak = NO_STREAK;
    this.#warnedOfDropped = false;
  }

  /**
   * Halves the number of members that noria requests per call, because the service may have rejected only that number. If the
   * service also rejects a request for 1 member, the configuration is wrong.
   */
  #requestLess(asked: number): Reaction {
    const max = Math.floor(asked / 2);
    this.#options.records.learnedMax = max;
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
 * Explains why the service may have refused a call that came too early (12002). Names another program as a possible cause only if
 * noria knows that its own calls were not too close to each other.
 */
function causeOfRefusal(sinceArrivalMs: number | undefined): string {
  if (sinceArrivalMs === undefined) {
    return 'noria has no record of when its previous call arrived, so its own calls may be the cause; noria now calls less often. If this repeats, raise interval';
  }
  return `noria's previous call arrived at least ${Math.floor(sinceArrivalMs)} ms earlier, so another program may be using this instance, or the service wants a longer interval: stop the other program, or raise interval`;
}
