/**
 * Keeps the pace of an instance of the service: one call in flight, and never two starts closer than the interval.
 *
 * p-queue serialises the calls of this process. The pace store, which other processes share, decides when a call may start
 * (pace-rule.ts), and the Clock waits for that moment. p-queue's own interval cannot do it: it uses the wall clock and does
 * not know the calls of an earlier run or of another process.
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
  PACE_UNCHANGED,
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

/** A call that waits for its permit. */
export interface PaceTurn<T> {
  readonly rule: PaceRule;
  /** Checked after every wait, before the next claim: false ends the turn without using a permit. Default: true. */
  isWanted?(): boolean;
  /** Makes the call, after the permit was written to disk. An abort of the turn does not end it. */
  call(): Promise<{ readonly result: T; readonly settlement: Settlement }>;
  /** Called when a wait for the pace begins. */
  onWait?(ms: number): void;
}

/** A turn either ends, with the result of its call if it made one, or has to wait. */
type Attempt<T> =
  | { readonly result: T | undefined; readonly waitMs?: undefined }
  | { readonly waitMs: number };

/** The pace of one instance at one service address, for all callers in this process. */
export class Pace {
  readonly #key: string;
  readonly #options: PaceOptions;
  readonly #queue = new PQueue({ concurrency: 1 });
  /** Monotonic moment of the next possible start, as last seen in the store. Another process may have moved it since. */
  #freeAt = 0;

  constructor(key: string, options: PaceOptions) {
    this.#key = key;
    this.#options = options;
  }

  /** Ms until the next call may start, as far as this process knows. */
  get nextInMs(): number {
    return Math.max(0, this.#freeAt - this.#options.clock.monotonic());
  }

  /**
   * Waits for a permit and makes the call. The caller must want the call when it starts the turn.
   *
   * @returns the result of the call; undefined when it was no longer wanted or `signal` aborted before its start.
   * @throws what the call throws, and NoriaError state-unwritable: a call whose start cannot be recorded is not made.
   */
  async take<T>(turn: PaceTurn<T>, signal: AbortSignal): Promise<T | undefined> {
    let hasWaited = this.#queue.pending > 0;
    while (!signal.aborted) {
      const attempt = await this.#queue.add(() => this.#attempt(turn, hasWaited, signal));
      if (attempt.waitMs === undefined) return attempt.result;
      turn.onWait?.(attempt.waitMs);
      // Outside the queue, so that a caller with a shorter interval is not blocked.
      await pause(this.#options.clock, attempt.waitMs, signal);
      hasWaited = true;
    }
    return undefined;
  }

  async #attempt<T>(turn: PaceTurn<T>, hasWaited: boolean, signal: AbortSignal): Promise<Attempt<T>> {
    const { store, clock } = this.#options;
    if (signal.aborted || (hasWaited && turn.isWanted?.() === false)) return { result: undefined };
    const claim = await store.change(this.#key, (entry, now) => claimCall(entry, now, turn.rule));
    const waitMs = claim.granted ? turn.rule.intervalMs + PACE_SLACK_MS : claim.waitMs;
    this.#freeAt = clock.monotonic() + waitMs;
    return claim.granted ? { result: await this.#call(turn, claim.claimedAt, signal) } : { waitMs };
  }

  async #call<T>(turn: PaceTurn<T>, claimedAt: Moment, signal: AbortSignal): Promise<T | undefined> {
    const startedAt = this.#options.store.now();
    let settlement = PACE_UNCHANGED; // also for a call that throws
    try {
      if (signal.aborted) return undefined; // while the claim was being written
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

/** The paces of all instances. Sources of one instance share its pace. */
export class Paces {
  readonly #options: PaceOptions;
  readonly #paces = new Map<string, Pace>();

  constructor(options: PaceOptions) {
    this.#options = options;
  }

  /** @param key - see `paceKey`. A pace lives as long as the process, also when a reload removes its sources. */
  of(key: string): Pace {
    const known = this.#paces.get(key);
    if (known !== undefined) return known;
    const pace = new Pace(key, this.#options);
    this.#paces.set(key, pace);
    return pace;
  }
}

/** Names the pace of an instance at a service address. Sources with the same key share it, whatever their name or operation. */
export function paceKey(call: ServiceAddress & { readonly instance: string }): string {
  const address = call.baseUrl ?? call.extractHost ?? '';
  return `${address.replace(/\/+$/, '').toLowerCase()} ${call.instance}`;
}
