/**
 * Keeps the pace of an instance of the service: at most one call is in flight, and the arrivals of two calls are at
 * least the interval apart.
 *
 * A caller takes a place in the queue of the pace store, which all processes share (pace-rule.ts). When its wait ends,
 * it opens a connection and records that it sends the next call (a claim). It then sends the call immediately, because
 * the claim is valid for only PERMIT_VALID_MS. If the process is stopped for longer than that after the claim, the
 * caller waits again.
 */
import { randomUUID } from 'node:crypto';
import PQueue from 'p-queue';
import { type Clock, pause } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { ServiceAddress } from '../service/request.ts';
import type { WriteGate } from '../service/transport.ts';
import type { Moment } from '../state/moment.ts';
import type { LastCall, PaceDecision, PaceEntry, PaceStore } from '../state/pace-file.ts';
import {
  askTurn,
  claimCall,
  KEEP_PLACE_EVERY_MS,
  leaveQueue,
  PACE_SLACK_MS,
  PACE_UNCHANGED,
  type PaceRule,
  PERMIT_VALID_MS,
  releaseClaim,
  type Settlement,
  settleCall,
  type Turn,
  waitBefore,
} from './pace-rule.ts';

/** If this many permits of a place expire in a row, `send` fails: the state folder is too slow. */
const MAX_EXPIRED_PERMITS = 3;

export class Pace {
  readonly #key: string;
  readonly options: { readonly store: PaceStore; readonly clock: Clock; readonly random: Random };
  /** One change at a time, so that the callers of this process enter the queue in their order. */
  readonly #changes = new PQueue({ concurrency: 1 });
  /** As of this process's last access to the store. Other processes may have changed it since. */
  #freeAt = 0;

  constructor(key: string, options: Pace['options']) {
    this.#key = key;
    this.options = options;
  }

  get nextInMs(): number {
    return Math.max(0, this.#freeAt - this.options.clock.monotonic());
  }

  /** The caller must call `leave` in the end. With an interval of 0, getting members costs no call, so nothing waits. */
  enter(rule: PaceRule): Place {
    return new Place(this, rule);
  }

  expectFreeIn(ms: number): void {
    this.#freeAt = this.options.clock.monotonic() + ms;
  }

  change<T>(decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>): Promise<T> {
    return this.#changes.add(() => this.options.store.change(this.#key, decide));
  }
}

/** The place of one caller in the queue: `waits`, then open the connection, then `send`. In `send`, it is the permit of the call. */
export class Place implements WriteGate {
  readonly #pace: Pace;
  readonly #turn: Turn;
  readonly #isFree: boolean;
  #expired = 0;
  #keeping = new AbortController();
  permit: 'unused' | 'used' | 'expired' = 'unused';
  /** A lower bound, in ms, of the time since the previous call arrived at the service; undefined if unknown. */
  sinceArrivalMs: number | undefined;
  #before: LastCall | undefined;
  /** The permit's age in ms, counted from a moment just before noria recorded the claim. */
  #ageMs = () => 0;
  #answeredAt: Moment | undefined;

  constructor(pace: Pace, rule: PaceRule) {
    this.#pace = pace;
    this.#isFree = rule.intervalMs === 0;
    this.#turn = { id: randomUUID(), rule, process: pace.options.store.process };
  }

  /**
   * Waits until the caller may make its call, or until `signal` aborts. Yields the time in ms of each wait before it. A
   * caller that no longer wants its call leaves the loop.
   *
   * @throws NoriaError state-unwritable: noria cannot record the call, so it must not make it.
   */
  async *waits(signal: AbortSignal): AsyncGenerator<number, void, void> {
    const { clock } = this.#pace.options;
    while (!signal.aborted && !this.#isFree) {
      const { waitMs, askInMs } = await this.#ask();
      this.#pace.expectFreeIn(waitMs);
      if (waitMs === 0) {
        void this.#keep();
        return;
      }
      yield waitMs;
      await pause(clock, askInMs, signal);
    }
  }

  /**
   * Claims the call, sends it, and records how it ended. If `call` does not use the permit, the claim is removed.
   *
   * @param settle - returns the effect of the call on the next one.
   * @returns undefined if noria sent nothing, because the caller had lost its place or the permit had expired: the
   * caller must wait again.
   */
  async send<T>(
    call: (permit: Place) => Promise<T>,
    settle: (result: T) => Settlement = () => PACE_UNCHANGED,
  ): Promise<{ readonly result: T } | undefined> {
    if (!(await this.#claim())) return undefined;
    let settlement = PACE_UNCHANGED;
    try {
      const result = await call(this);
      settlement = settle(result);
      if (this.permit !== 'expired') return { result };
    } catch (error) {
      if (this.permit !== 'expired') throw error;
    } finally {
      await this.#end(settlement);
    }
    this.#expired += 1;
    if (this.#expired < MAX_EXPIRED_PERMITS) return undefined;
    throw new NoriaError(
      'state-unwritable',
      `recording a call in the state folder took longer than ${PERMIT_VALID_MS} ms, ${MAX_EXPIRED_PERMITS} times in a row, so noria made no call; put state.dir on a faster disk`,
    );
  }

  async leave(): Promise<void> {
    this.#keeping.abort();
    if (this.#isFree) return;
    // ignored: a turn that stays in the queue loses its place after a few seconds
    await this.#pace.change((entry) => leaveQueue(entry, this.#turn)).catch(() => {});
  }

  /**
   * @throws NoriaError pace-held if the permit is older than PERMIT_VALID_MS: by then, other processes assume that its
   * call has been sent, and one of them may soon send the next call.
   */
  beforeWrite(): void {
    const ageMs = this.#ageMs();
    if (this.permit === 'unused' && ageMs < PERMIT_VALID_MS) {
      this.permit = 'used';
      return;
    }
    this.permit = 'expired';
    throw new NoriaError(
      'pace-held',
      `noria did not send the call: the reservation of the call was already ${Math.round(ageMs)} ms old (limit ${PERMIT_VALID_MS} ms); noria tries again`,
      { context: { ms: Math.round(ageMs) } },
    );
  }

  answered(): void {
    this.#answeredAt = this.#pace.options.store.now();
  }

  /** @returns whether the call may be sent. */
  async #claim(): Promise<boolean> {
    this.#keeping.abort();
    this.permit = 'unused';
    this.#answeredAt = undefined;
    if (this.#isFree) return true;
    this.#ageMs = this.#pace.options.store.stopwatch();
    const claim = await this.#pace.change((entry, now) => claimCall(entry, now, this.#turn));
    const { intervalMs } = this.#turn.rule;
    this.#pace.expectFreeIn(claim.granted ? intervalMs + PACE_SLACK_MS : claim.waitMs);
    if (!claim.granted) return false;
    this.#before = claim.before;
    this.sinceArrivalMs = claim.sinceArrivalMs;
    return true;
  }

  #ask() {
    return this.#pace.change((entry, now) => askTurn(entry, now, this.#turn));
  }

  async #keep(): Promise<void> {
    this.#keeping = new AbortController();
    const { signal } = this.#keeping;
    for (;;) {
      await pause(this.#pace.options.clock, KEEP_PLACE_EVERY_MS, signal);
      if (signal.aborted) return;
      // ignored: a turn that loses its place only waits longer. If noria cannot write the pace, `claim` reports it.
      await this.#ask().catch(() => {});
    }
  }

  async #end(settlement: Settlement): Promise<void> {
    if (this.#isFree) return;
    const turn = this.#turn;
    const { random } = this.#pace.options;
    const ended = { turn, answeredAt: this.#answeredAt, settlement, random };
    const waitMs = await this.#pace.change((entry, now) => {
      const { newEntry, result } =
        this.permit === 'used' ? settleCall(entry, now, ended) : releaseClaim(entry, turn, this.#before);
      return { newEntry, result: result === undefined ? 0 : waitBefore(result, now, turn.rule) };
    });
    this.#pace.expectFreeIn(waitMs);
  }
}

/** A pace remains until the process ends, even if a reload removes its sources. */
export function openPaces(options: Pace['options']): (key: string) => Pace {
  const paces = new Map<string, Pace>();
  return (key) => {
    const pace = paces.get(key) ?? new Pace(key, options);
    paces.set(key, pace);
    return pace;
  };
}

/** The key for the pace of an instance at a service address. All sources of the instance have the same key. */
export function paceKey(call: ServiceAddress & { readonly instance: string }): string {
  const address = call.baseUrl ?? call.extractHost ?? '';
  return `${address.replace(/^([^/]*(?:\/+[^/]+)*)\/*$/, '$1').toLowerCase()} ${call.instance}`;
}
