/**
 * What a source has learned from how its calls ended and what became of its members: how much to ask for, how long to
 * wait, what to tell the operator.
 */
import type { Clock } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import { DrawSpacing } from './draw-spacing.ts';
import { type DrawOutcome, PARAMS_WRONG, type Reaction, reactTo } from './reaction.ts';
import type { SourceRecords } from './source-records.ts';
import { describeOutcome } from './words.ts';

export interface ExperienceOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly ledger: SourceRecords;
  /** Members have to be proven first: many of them being dead is normal. */
  readonly unproven: boolean;
  readonly warn: (message: string) => void;
}

/** A call that ended. */
export interface Ended {
  readonly outcome: DrawOutcome;
  readonly asked: number;
  /** How many more members will be usable because of it. */
  readonly gained: number;
  readonly gapMs: number;
}

/** After so many empty answers in a row the operator is told what may help. */
const EMPTY_WORTH_TELLING = 3;

export class DrawHistory {
  readonly #options: ExperienceOptions;
  readonly #yield: DrawSpacing;
  #last: DrawOutcome | undefined;
  /** How many calls in a row ended with the same verdict. */
  #row = { kind: '', length: 0 };
  /** That draws bring what may not be used was told, and none has brought anything better since. */
  #toldDropped = false;

  constructor(options: ExperienceOptions) {
    this.#options = options;
    this.#yield = new DrawSpacing(options.unproven);
  }

  /** How the last call ended. */
  get last(): DrawOutcome | undefined {
    return this.#last;
  }

  /** Whether the next draw may be expected to bring members that serve. */
  get promising(): boolean {
    return this.#yield.promising;
  }

  get mostPerCall(): number {
    return Math.min(this.#options.ledger.learnedMost, this.#yield.mostPerCall);
  }

  /** Monotonic moment before which a further draw is not worth it; see Yield. */
  notBeforeAt(urgent: boolean): number {
    return this.#yield.notBeforeAt(urgent);
  }

  /** Takes in how a call ended, and says what follows for the pace and for the source. */
  learn({ outcome, asked, gained, gapMs }: Ended): Reaction {
    const { clock, random } = this.#options;
    this.#last = outcome;
    if (outcome.code === PARAMS_WRONG && asked > 1) return this.#askForLess(asked);
    const { kind } = outcome.verdict;
    this.#row = { kind, length: this.#row.kind === kind ? this.#row.length + 1 : 1 };
    if (kind === 'ok' || kind === 'empty') this.#yield.drew(gained, clock.monotonic(), gapMs);
    if (kind === 'ok') this.#toldDropped = false;
    this.#tell(outcome);
    return reactTo(outcome, this.#row.length, clock.now(), random);
  }

  /** A member is gone that failed before anyone could use it. */
  died(): void {
    if (!this.#yield.died()) return;
    this.#options.warn(
      `${this.#yield.diedInARow} members in a row failed before anyone could use them, so it draws one at a time and more slowly: check that this machine's address is bound in the console, and upstream.protocol and upstream.auth`,
    );
  }

  /** A tunnel through one of its members was accepted. On the hot path. */
  proved(): void {
    this.#yield.proved();
  }

  /** The configuration changed: what the old one led to counts no more. */
  forget(): void {
    this.#last = undefined;
    this.#yield.reset();
    this.#row = { kind: '', length: 0 };
    this.#toldDropped = false;
  }

  /** The refusal may mean the count alone, which noria chose; only one at 1 is the configuration's fault. */
  #askForLess(asked: number): Reaction {
    const most = Math.floor(asked / 2);
    this.#options.ledger.learnedMost = most;
    this.#options.warn(
      `the service refused a count of ${asked} (${PARAMS_WRONG}): from now on at most ${most} are asked for at once`,
    );
    return { settlement: { kind: 'done' } };
  }

  #tell(outcome: DrawOutcome): void {
    const { warn } = this.#options;
    const { kind } = outcome.verdict;
    if (outcome.allDropped) {
      if (!this.#toldDropped) warn(`${describeOutcome(outcome)} ${outcome.advice}`);
      this.#toldDropped = true;
    } else if (kind === 'empty' && this.#row.length === EMPTY_WORTH_TELLING) {
      warn(`${EMPTY_WORTH_TELLING} empty answers in a row: ${describeOutcome(outcome)} ${outcome.advice}`);
    }
    if (kind === 'slow-down') {
      warn(
        `${describeOutcome(outcome)} noria kept its pace, so something else may be using this instance: stop it, or raise interval`,
      );
    }
  }
}
