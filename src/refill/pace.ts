/**
 * One call in flight for each instance of the service, and never two starts closer than its pace.
 *
 * p-queue serialises the calls of this process; the moment comes from the pace store (pace-rule.ts), which other
 * processes share, and is waited for on the Clock. Not p-queue's own interval: it counts on the wall clock and knows
 * nothing of the call that an earlier run, or another process, made.
 */
import PQueue from 'p-queue';
import { type Clock, pause } from '../core/clock.ts';
import type { Random } from '../core/random.ts';
import type { ServiceAddress } from '../service/request.ts';
import type { Moment } from '../state/moment.ts';
import type { PaceStore } from '../state/pace-file.ts';
import {
  claimCall,
  PACE_SLACK_MS,
  type PaceRule,
  type SettledCall,
  type Settlement,
  settleCall,
  waitBefore,
} from './pace-rule.ts';

export interface PaceOptions {
  readonly store: PaceStore;
  readonly clock: Clock;
  readonly random: Random;
}

/** One call that waits for its turn. */
export interface PaceTurn<T> {
  readonly rule: PaceRule;
  /** Asked before each attempt at a permit: false gives the turn up, and no permit is used. */
  wanted(): boolean;
  /** Makes the call; the permit is written down. Runs to its end also when the turn's signal aborts meanwhile. */
  call(): Promise<{ readonly result: T; readonly settlement: Settlement }>;
  /** Told how long until the next attempt, when a wait begins. */
  onWait?(ms: number): void;
}

/** Either the call was made (or not wanted), or it has to wait. */
type Tried<T> = { readonly result: T | undefined; readonly waitMs?: undefined } | { readonly waitMs: number };

/** How a call that threw is written down: it went out, and brought nothing that concerns the pace. */
const DONE: Settlement = { kind: 'done' };

/** The pace of one instance at one service address, for everyone in this process. */
export class Pace {
  readonly #key: string;
  readonly #options: PaceOptions;
  readonly #queue = new PQueue({ concurrency: 1 });
  /** Monotonic; what is known here of the store, which another process may have moved on. */
  #freeAt = 0;

  constructor(key: string, options: PaceOptions) {
    this.#key = key;
    this.#options = options;
  }

  /** Ms until the next call may start, as far as is known without looking at the disk. */
  get nextInMs(): number {
    return Math.max(0, this.#freeAt - this.#options.clock.monotonic());
  }

  /**
   * Waits for the moment, then makes the call. Resolves with its result, or with undefined when it was not wanted any more
   * or `signal` aborted before it started.
   *
   * @throws what the call throws, and NoriaError state-unwritable: a start that cannot be written down is not made.
   */
  async take<T>(turn: PaceTurn<T>, signal: AbortSignal): Promise<T | undefined> {
    while (!signal.aborted && turn.wanted()) {
      const tried = await this.#queue.add(() => this.#try(turn, signal));
      if (tried.waitMs === undefined) return tried.result;
      turn.onWait?.(tried.waitMs);
      // Not in the queue: who may call sooner, by an interval of its own, is not held up.
      await pause(this.#options.clock, tried.waitMs, signal);
    }
    return undefined;
  }

  async #try<T>(turn: PaceTurn<T>, signal: AbortSignal): Promise<Tried<T>> {
    const { store, clock } = this.#options;
    if (signal.aborted || !turn.wanted()) return { result: undefined }; // another one's call took its time
    const claim = await store.change(this.#key, (entry, now) => claimCall(entry, now, turn.rule));
    const waitMs = claim.granted ? turn.rule.intervalMs + PACE_SLACK_MS : claim.waitMs;
    this.#freeAt = clock.monotonic() + waitMs;
    return claim.granted ? { result: await this.#call(turn, claim.claimedAt, signal) } : { waitMs };
  }

  async #call<T>(turn: PaceTurn<T>, claimedAt: Moment, signal: AbortSignal): Promise<T | undefined> {
    const startedAt = this.#options.store.now();
    let settlement = DONE;
    try {
      if (signal.aborted) return undefined; // while the claim was written: perhaps it is for another instance now
      const called = await turn.call();
      settlement = called.settlement;
      return called.result;
    } finally {
      await this.#settle({ claimedAt, startedAt, rule: turn.rule, settlement });
    }
  }

  async #settle(call: SettledCall): Promise<void> {
    const { store, clock, random } = this.#options;
    const waitMs = await store.change(this.#key, (entry, now) => {
      const { next, result } = settleCall(entry, now, call, random);
      const waitMs = result === undefined ? 0 : waitBefore(result, now, call.rule);
      return next === undefined ? { result: waitMs } : { next, result: waitMs };
    });
    this.#freeAt = clock.monotonic() + waitMs;
  }
}

/** The paces of all instances; sources of the same one share theirs. */
export class Paces {
  readonly #options: PaceOptions;
  readonly #paces = new Map<string, Pace>();

  constructor(options: PaceOptions) {
    this.#options = options;
  }

  /** @param key - service address and instance, see `paceKey`. Kept for as long as noria runs, also across a reload. */
  of(key: string): Pace {
    const known = this.#paces.get(key);
    if (known !== undefined) return known;
    const pace = new Pace(key, this.#options);
    this.#paces.set(key, pace);
    return pace;
  }
}

/**
 * Names the pace of an instance: whoever uses the same instance at the same address shares it, under whatever source
 * name, and for whichever operation.
 */
export function paceKey(call: ServiceAddress & { readonly instance: string }): string {
  const address = call.baseUrl ?? call.extractHost ?? '';
  return `${address.replace(/\/+$/, '').toLowerCase()} ${call.instance}`;
}
