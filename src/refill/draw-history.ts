/**
 * Keeps what a source learned from its calls and from failed members: the reaction to a call, the maximum to request,
 * and warnings.
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
  /** True: members must pass a probe before their first use, so it is normal that many fail. */
  readonly unproven: boolean;
  readonly warn: (message: string) => void;
}

export interface EndedCall {
  readonly outcome: DrawOutcome;
  /** The number of members that the call requested. */
  readonly asked: number;
  /** How many more members are usable after the call than without it. */
  readonly gained: number;
  /** The pace: ms from the start of one call to the start of the next. */
  readonly gapMs: number;
  /** The service received the previous call at least this long before this one; undefined: unknown. */
  readonly sinceArrivalMs: number | undefined;
}

/** After this many draws in a row without a member, noria warns the operator. */
const EMPTY_BEFORE_WARNING = 3;
/** Why drawn members may fail before their first use. */
export const UNUSED_FAILURES_ADVICE =
  "Check that this machine's address is bound in the console, and check upstream.protocol and upstream.auth.";
const NO_STREAK = { kind: '', length: 0 };

export class DrawHistory {
  readonly #options: DrawHistoryOptions;
  readonly spacing: DrawSpacing;
  #last: DrawOutcome | undefined;
  /** How many calls in a row ended with the same kind of verdict. */
  #streak = NO_STREAK;
  /** True from the warning that no drawn proxy is usable until a draw succeeds. */
  #warnedOfDropped = false;

  constructor(options: DrawHistoryOptions) {
    this.#options = options;
    this.spacing = new DrawSpacing(options.unproven);
  }

  /** The outcome of the last call. */
  get last(): DrawOutcome | undefined {
    return this.#last;
  }

  /**
   * The last call failed for a reason that may end without the operator. The source then repeats it even without
   * demand, because a load balancer sends no client to a noria that is not ready. An empty answer does not count as a
   * failure, because it may cost money.
   */
  get mayRecover(): boolean {
    const kind = this.#last?.verdict.kind ?? 'ok';
    return kind !== 'ok' && kind !== 'empty' && kind !== 'halt';
  }

  get maxPerCall(): number {
    return Math.min(this.#options.records.learnedMax, this.spacing.maxPerCall);
  }

  /** Records how a call ended. Returns how to continue with the pace and the source. */
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

  /** Records a member that was removed because it failed before its first use. */
  recordUnusedFailure(): void {
    const failures = this.spacing.recordUnusedFailure();
    if (failures === undefined) return;
    this.#options.warn(
      `${failures} members in a row failed before their first use, so noria now draws one at a time and less often. ${UNUSED_FAILURES_ADVICE}`,
    );
  }

  /** Forgets everything that was learned under an old configuration. */
  reset(): void {
    this.#last = undefined;
    this.spacing.reset();
    this.#streak = NO_STREAK;
    this.#warnedOfDropped = false;
  }

  /**
   * The service may have rejected only the count, which noria chose. Only if it rejects a count of 1, the configuration
   * is wrong.
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

/** Blames another program only if noria's own calls cannot be the cause. */
function causeOfRefusal(sinceArrivalMs: number | undefined): string {
  if (sinceArrivalMs === undefined) {
    return "noria does not know when its previous call arrived, because there is no record of one or it got no answer, so noria's own calls may be the cause; noria now calls less often. If this repeats, raise interval";
  }
  return `noria's previous call arrived at least ${Math.floor(sinceArrivalMs)} ms earlier, so another program may be using this instance, or the service wants a longer interval: stop the other program, or raise interval`;
}
