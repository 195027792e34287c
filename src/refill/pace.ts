/**
 * Keeps the pace of an instance of the service: at most one call is in flight, and the arrivals of two calls are at
 * least the interval apart.
 *
 * A turn is a wait in the queue of the pace store, which all processes share (pace-rule.ts). When the wait ends, noria
 * opens a connection and records that it sends the next call (a claim). noria then sends the call immediately, because
 * the claim is valid for only PERMIT_VALID_MS. If the process is stopped for longer than that after the claim, the turn
 * starts again.
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

interface PaceOptions {
  readonly store: PaceStore;
  readonly clock: Clock;
  readonly random: Random;
}

export interface PaceTurn<T> {
  readonly rule: PaceRule;
  /** Called after every wait of the turn. If it returns false, the turn ends without a call. Default: returns true. */
  isWanted?(): boolean;
  /** Opens the connection of the call. If it resolves with undefined, the turn ends without a call. */
  open(signal: AbortSignal): Promise<PreparedCall<T> | undefined>;
  /** Called when a wait of `ms` begins. */
  onWait?(ms: number): void;
}

/** A call that is ready to be sent: its connection is open. */
export interface PreparedCall<T> {
  /**
   * Sends the request if it is still wanted. Calls `permit.beforeWrite` and `permit.answered` as `WriteGate`
   * describes. Aborting the turn does not abort the call.
   */
  send(permit: Permit): Promise<{ readonly result: T; readonly settlement: Settlement }>;
  close(): void;
}

interface Claimed {
  readonly turn: Turn;
  readonly permit: Permit;
  readonly before: LastCall | undefined;
}

/**
 * If this many permits of a turn expire in a row before noria sends the call, the turn fails: the state folder is too
 * slow.
 */
const MAX_EXPIRED_PERMITS = 3;

/** The pace of one instance at one service address, for all callers in this process. */
export class Pace {
  readonly #key: string;
  readonly #options: PaceOptions;
  /**
   * Runs one change of the pace entry at a time. So the turns of this process enter the queue in the order in which
   * they began.
   */
  readonly #changes = new PQueue({ concurrency: 1 });
  /**
   * The monotonic moment of the next possible call, as of this process's last access to the store. Other processes may
   * have changed it since.
   */
  #freeAt = 0;

  constructor(key: string, options: PaceOptions) {
    this.#key = key;
    this.#options = options;
  }

  /** The time in ms until the next call may be sent, as far as this process knows. */
  get nextInMs(): number {
    return Math.max(0, this.#freeAt - this.#options.clock.monotonic());
  }

  /**
   * Waits for its turn, opens the connection, and makes the call.
   *
   * @returns the result of the call; undefined if the call was no longer wanted, or if `signal` aborted before it was
   * sent.
   * @throws the error of `open` or `send`, or NoriaError state-unwritable: the state folder cannot record the call, so
   * noria does not make it.
   */
  async take<T>(paceTurn: PaceTurn<T>, signal: AbortSignal): Promise<T | undefined> {
    const turn: Turn = { id: randomUUID(), rule: paceTurn.rule };
    let expired = 0;
    try {
      while (await this.#waitForTurn(paceTurn, turn, signal)) {
        const call = await this.#open(paceTurn, turn, signal);
        if (call === undefined) return undefined;
        try {
          const claimed = await this.#claim(turn);
          // the turn lost its place in the queue while the connection opened, so it waits again
          if (claimed === undefined) continue;
          const result = await this.#send(call, claimed, signal);
          if (claimed.permit.state !== 'expired') return result;
        } finally {
          call.close();
        }
        expired += 1;
        if (expired === MAX_EXPIRED_PERMITS) throw tooSlow();
      }
      return undefined;
    } finally {
      // ignored: a turn that stays in the queue loses its place after a few seconds
      await this.#change((entry) => leaveQueue(entry, turn)).catch(() => {});
    }
  }

  /** Resolves with true when the turn may make its call, and with false if the call is no longer wanted. */
  async #waitForTurn<T>(paceTurn: PaceTurn<T>, turn: Turn, signal: AbortSignal): Promise<boolean> {
    for (let hasWaited = false; !signal.aborted; hasWaited = true) {
      if (hasWaited && paceTurn.isWanted?.() === false) return false;
      const { waitMs, askInMs } = await this.#change((entry, now) => askTurn(entry, now, turn));
      this.#expectFreeIn(waitMs);
      if (waitMs === 0) return !signal.aborted;
      paceTurn.onWait?.(waitMs);
      await pause(this.#options.clock, askInMs, signal);
    }
    return false;
  }

  /** Opens the connection, and keeps the place in the queue while it opens. */
  async #open<T>(
    paceTurn: PaceTurn<T>,
    turn: Turn,
    signal: AbortSignal,
  ): Promise<PreparedCall<T> | undefined> {
    const opened = new AbortController();
    void this.#keepPlace(turn, opened.signal);
    try {
      return await paceTurn.open(signal);
    } finally {
      opened.abort();
    }
  }

  async #keepPlace(turn: Turn, signal: AbortSignal): Promise<void> {
    for (;;) {
      await pause(this.#options.clock, KEEP_PLACE_EVERY_MS, signal);
      if (signal.aborted) return;
      // ignored: a turn that loses its place in the queue only waits longer. If noria cannot write the pace, `#claim`
      // reports the error.
      await this.#change((entry, now) => askTurn(entry, now, turn)).catch(() => {});
    }
  }

  async #claim(turn: Turn): Promise<Claimed | undefined> {
    const { store } = this.#options;
    const ageMs = store.stopwatch();
    const claim = await this.#change((entry, now) => claimCall(entry, now, turn));
    this.#expectFreeIn(claim.granted ? turn.rule.intervalMs + PACE_SLACK_MS : claim.waitMs);
    if (!claim.granted) return undefined;
    return { turn, permit: new Permit(store, ageMs, claim.sinceArrivalMs), before: claim.before };
  }

  /** Sends the call and records how it ended. If the call was not sent, removes the claim. */
  async #send<T>(
    call: PreparedCall<T>,
    { turn, permit, before }: Claimed,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    let settlement = PACE_UNCHANGED;
    try {
      if (signal.aborted) return undefined; // `signal` aborted while the claim was written
      const sent = await call.send(permit);
      settlement = sent.settlement;
      return sent.result;
    } catch (error) {
      if (permit.state === 'expired') return undefined; // ignored: `take` waits for another permit
      throw error;
    } finally {
      const { answeredAt } = permit;
      const ended = { turn, answeredAt, settlement, random: this.#options.random };
      await this.#end(turn, (entry, now) =>
        permit.state === 'used' ? settleCall(entry, now, ended) : releaseClaim(entry, turn, before),
      );
    }
  }

  async #end(
    { rule }: Turn,
    decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<PaceEntry | undefined>,
  ): Promise<void> {
    const waitMs = await this.#change((entry, now) => {
      const { newEntry: next, result } = decide(entry, now);
      const waitMs = result === undefined ? 0 : waitBefore(result, now, rule);
      return next === undefined ? { result: waitMs } : { newEntry: next, result: waitMs };
    });
    this.#expectFreeIn(waitMs);
  }

  #expectFreeIn(ms: number): void {
    this.#freeAt = this.#options.clock.monotonic() + ms;
  }

  #change<T>(decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<T>): Promise<T> {
    return this.#changes.add(() => this.#options.store.change(this.#key, decide));
  }
}

function tooSlow(): NoriaError {
  return new NoriaError(
    'state-unwritable',
    `recording a call in the state folder took longer than ${PERMIT_VALID_MS} ms, ${MAX_EXPIRED_PERMITS} times in a row, so noria made no call; put state.dir on a faster disk`,
  );
}

/** The paces of all instances. All sources of an instance share its pace. */
export class Paces {
  readonly #options: PaceOptions;
  readonly #paces = new Map<string, Pace>();

  constructor(options: PaceOptions) {
    this.#options = options;
  }

  /**
   * Returns the pace of an instance. The pace remains until the process ends, even if a reload removes its sources.
   * @param key - the result of `paceKey`.
   */
  of(key: string): Pace {
    const known = this.#paces.get(key);
    if (known !== undefined) return known;
    const pace = new Pace(key, this.#options);
    this.#paces.set(key, pace);
    return pace;
  }
}

/** The key for the pace of an instance at a service address. All sources of the instance have the same key. */
export function paceKey(call: ServiceAddress & { readonly instance: string }): string {
  const address = call.baseUrl ?? call.extractHost ?? '';
  return `${address.replace(/^([^/]*(?:\/+[^/]+)*)\/*$/, '$1').toLowerCase()} ${call.instance}`;
}

/** The right to send one call to the service within PERMIT_VALID_MS. */
export class Permit implements WriteGate {
  readonly #store: PaceStore;
  readonly #ageMs: () => number;
  /**
   * At least this time, in ms, has passed between the arrival of the previous call at the service and this permit.
   * undefined if unknown.
   */
  readonly sinceArrivalMs: number | undefined;
  /**
   * What happened to the permit. `used`: noria sent the request. `expired`: the permit was too old, and noria did not
   * send the request.
   */
  state: 'unused' | 'used' | 'expired' = 'unused';
  /** The moment at which the first byte of the answer arrived; undefined until then. */
  answeredAt: Moment | undefined;

  /** @param ageMs - returns the permit's age in ms, counted from a moment just before noria recorded the claim. */
  constructor(store: PaceStore, ageMs: () => number, sinceArrivalMs: number | undefined) {
    this.#store = store;
    this.#ageMs = ageMs;
    this.sinceArrivalMs = sinceArrivalMs;
  }

  /**
   * @throws NoriaError pace-held if the permit is older than PERMIT_VALID_MS: by then, other processes assume that its
   * call has been sent, and one of them may soon send the next call.
   */
  beforeWrite(): void {
    const ageMs = this.#ageMs();
    if (this.state === 'unused' && ageMs < PERMIT_VALID_MS) {
      this.state = 'used';
      return;
    }
    this.state = 'expired';
    throw new NoriaError(
      'pace-held',
      `noria did not send the call: the reservation of the call was already ${Math.round(ageMs)} ms old (limit ${PERMIT_VALID_MS} ms); noria tries again`,
      { context: { ms: Math.round(ageMs) } },
    );
  }

  answered(): void {
    this.answeredAt = this.#store.now();
  }
}
