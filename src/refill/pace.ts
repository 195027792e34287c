/**
 * Keeps the pace of an instance of the service: one call in flight, and never two arrivals closer than the interval.
 *
 * A turn waits in the queue of the pace store, which other processes share (pace-rule.ts), opens its connection, claims
 * the call, and sends it at once. Everything that may take long happens before the claim. If the process stops for too
 * long after the claim, the permit expires and the turn starts again.
 */
import { randomUUID } from 'node:crypto';
import PQueue from 'p-queue';
import { type Clock, pause } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { ServiceAddress } from '../service/request.ts';
import type { Moment } from '../state/moment.ts';
import type { LastCall, PaceDecision, PaceEntry, PaceStore } from '../state/pace-file.ts';
import {
  askTurn,
  claimCall,
  giveBackClaim,
  KEEP_PLACE_EVERY_MS,
  leaveQueue,
  PACE_SLACK_MS,
  PACE_UNCHANGED,
  type PaceRule,
  type Settlement,
  settleCall,
  type Turn,
  USE_BY_MS,
  waitBefore,
} from './pace-rule.ts';
import { Permit } from './permit.ts';

export interface PaceOptions {
  readonly store: PaceStore;
  readonly clock: Clock;
  readonly random: Random;
}

/** A call that waits for its permit. */
export interface PaceTurn<T> {
  readonly rule: PaceRule;
  /** Called after every wait: false ends the turn. Default: true. */
  isWanted?(): boolean;
  /** Opens the connection of the call. Undefined ends the turn. */
  open(signal: AbortSignal): Promise<PreparedCall<T> | undefined>;
  /** Called when a wait for the pace begins. */
  onWait?(ms: number): void;
}

/** A call with an open connection. */
export interface PreparedCall<T> {
  /**
   * Sends the request if it is still wanted, and calls the methods of the permit as `WriteGate` says. An abort of the
   * turn does not end the call.
   */
  send(permit: Permit): Promise<{ readonly result: T; readonly settlement: Settlement }>;
  /** Idempotent. */
  close(): void;
}

/** A claimed call, and the last call before it. */
interface Claimed {
  readonly permit: Permit;
  readonly before: LastCall | undefined;
}

/** After this many expired permits in a row, the pace gives up: the state folder is too slow. */
const MAX_EXPIRED_PERMITS = 3;

/** The pace of one instance at one service address, for all callers in this process. */
export class Pace {
  readonly #key: string;
  readonly #options: PaceOptions;
  /**
   * The changes of the entry, one at a time, so that turns of this process enter the queue in the order in which they
   * began.
   */
  readonly #changes = new PQueue({ concurrency: 1 });
  /**
   * Monotonic moment of the next possible call, as last seen in the store. Another process may have changed it since.
   */
  #freeAt = 0;

  constructor(key: string, options: PaceOptions) {
    this.#key = key;
    this.#options = options;
  }

  /** Ms until the next call may be sent, as far as this process knows. */
  get nextInMs(): number {
    return Math.max(0, this.#freeAt - this.#options.clock.monotonic());
  }

  /**
   * Waits for its turn, opens the connection, and makes the call. The caller must want the call when it starts the
   * turn.
   *
   * @returns the result of the call; undefined when the call was no longer wanted, or `signal` aborted before the call
   * was sent.
   * @throws what `open` and `send` throw, and NoriaError state-unwritable: a call that cannot be recorded is not made.
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
          if (claimed === undefined) continue; // the turn lost its place while it was connecting
          const result = await this.#send(call, turn, claimed, signal);
          if (claimed.permit.state !== 'expired') return result;
        } finally {
          call.close();
        }
        expired += 1;
        if (expired === MAX_EXPIRED_PERMITS) throw tooSlow();
      }
      return undefined;
    } finally {
      // ignored: the place in the queue expires
      await this.#change((entry) => leaveQueue(entry, turn)).catch(() => {});
    }
  }

  /** Resolves with true when the turn may claim, and with false when the turn has ended. */
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

  /** Opens the connection, and keeps the place in the queue meanwhile. */
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
      // ignored: a lost place costs time only, and the claim reports an unwritable folder
      await this.#change((entry, now) => askTurn(entry, now, turn)).catch(() => {});
    }
  }

  async #claim(turn: Turn): Promise<Claimed | undefined> {
    const { store } = this.#options;
    const ageMs = store.stopwatch();
    const claim = await this.#change((entry, now) => claimCall(entry, now, turn));
    this.#expectFreeIn(claim.granted ? turn.rule.intervalMs + PACE_SLACK_MS : claim.waitMs);
    if (!claim.granted) return undefined;
    return { permit: new Permit(store, ageMs, claim.sinceArrivalMs), before: claim.before };
  }

  /** Sends the call and settles it. Gives the claim back if the call was not sent. */
  async #send<T>(
    call: PreparedCall<T>,
    turn: Turn,
    { permit, before }: Claimed,
    signal: AbortSignal,
  ): Promise<T | undefined> {
    let settlement = PACE_UNCHANGED; // this settlement also applies to a call that throws
    try {
      if (signal.aborted) return undefined; // the turn was aborted while the claim was being written
      const sent = await call.send(permit);
      settlement = sent.settlement;
      return sent.result;
    } catch (error) {
      if (permit.state === 'expired') return undefined; // ignored: the turn starts again
      throw error;
    } finally {
      const { answeredAt } = permit;
      const ended = { turn, answeredAt, settlement };
      await this.#end(turn, (entry, now) =>
        permit.state === 'used'
          ? settleCall(entry, now, ended, this.#options.random)
          : giveBackClaim(entry, turn, before),
      );
    }
  }

  async #end(
    { rule }: Turn,
    decide: (entry: PaceEntry | undefined, now: Moment) => PaceDecision<PaceEntry | undefined>,
  ): Promise<void> {
    const waitMs = await this.#change((entry, now) => {
      const { next, result } = decide(entry, now);
      const waitMs = result === undefined ? 0 : waitBefore(result, now, rule);
      return next === undefined ? { result: waitMs } : { next, result: waitMs };
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
    `recording a call in the state folder took longer than ${USE_BY_MS} ms, ${MAX_EXPIRED_PERMITS} times in a row, so noria made no call; put state.dir on a faster disk`,
  );
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
