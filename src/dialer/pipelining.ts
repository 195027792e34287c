/**
 * Learns which SOCKS5 members of one source accept a pipelined handshake: greeting, login and request in one write.
 *
 * By RFC 1928, a client waits for each reply. Some servers depend on this order: after a pipelined handshake, they
 * close the connection, answer out of order, or drop bytes that arrive too early. So in the mode `auto`, noria first
 * measures a plain handshake, and then tries a pipelined one. If this trial fails, the same member gets a plain
 * handshake immediately. If the trial fails with most members of a source, all its members get plain handshakes. A
 * login is pipelined only after a member of the source has accepted a login in a plain handshake.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/**
 * How noria performs SOCKS5 handshakes. `auto`: noria learns from the members. `plain`: noria waits for each reply.
 * `pipelined`: noria does not wait. Exception: until a member of the source has accepted a login, a handshake with a
 * login is plain.
 */
export type HandshakeSetting = 'auto' | 'plain' | 'pipelined';

/**
 * How one handshake is performed. `trial`: a pipelined handshake; if it fails, the same member gets a plain handshake.
 */
export type HandshakeMode = 'plain' | 'trial' | 'pipelined';

/** noria forgets after this time whether a member accepts pipelined handshakes. */
export const RELEARN_HANDSHAKE_MS = 10 * 60_000;
/** While no member has accepted a pipelined handshake, at most one tunnel in this time tries it. */
export const TRIAL_INTERVAL_MS = 1_000;
/** The minimum time in ms to wait for the answer to a trial of pipelining. */
const MIN_SILENCE_MS = 100;
/** The time limit of a trial of pipelining, as a multiple of the longest recent handshake. */
const SILENCE_FACTOR = 2;
/** Each handshake multiplies the recorded longest duration by this factor, so that an old maximum fades. */
const DECAY = 0.98;
const MAX_MEMBERS = 1_024;

export class Pipelining {
  readonly #clock: Clock;
  readonly #setting: HandshakeSetting;
  /** `#accepting` contains the members that accept pipelining, and `#refusing` the members that do not. */
  readonly #accepting: AgedMap<string>;
  readonly #refusing: AgedMap<string>;
  #longestMs: number | undefined;
  #trialAt = Number.NEGATIVE_INFINITY;
  #isLoginNeeded = false;

  constructor(clock: Clock, setting: HandshakeSetting) {
    this.#clock = clock;
    this.#setting = setting;
    this.#accepting = new AgedMap(clock, RELEARN_HANDSHAKE_MS, MAX_MEMBERS);
    this.#refusing = new AgedMap(clock, RELEARN_HANDSHAKE_MS, MAX_MEMBERS);
  }

  /** Returns the mode of the next handshake with this member. @param hasLogin - whether the handshake sends a login. */
  modeFor(member: string, hasLogin: boolean): HandshakeMode {
    const known = this.#knownMode(member, hasLogin);
    if (known !== undefined) return known;
    return this.#longestMs !== undefined && this.#startTrial() ? 'trial' : 'plain';
  }

  /** Whether noria already knows that the next handshake with this member will not be pipelined. */
  isPlain(member: string, hasLogin: boolean): boolean {
    return this.#knownMode(member, hasLogin) === 'plain';
  }

  /**
   * How long a trial of pipelining may wait for its last reply, in ms after the connection is established.
   */
  get silenceMs(): number {
    return Math.max(MIN_SILENCE_MS, SILENCE_FACTOR * (this.#longestMs ?? 0));
  }

  /** Records that a handshake succeeded after `ms`. */
  accepted(member: string, mode: HandshakeMode, ms: number): void {
    this.#longestMs = Math.max(ms, DECAY * (this.#longestMs ?? 0));
    if (mode === 'plain' || this.#accepting.has(member)) return;
    this.#refusing.delete(member);
    this.#accepting.set(member, true);
  }

  /** Records that a member accepted a login in a plain handshake. */
  loginAccepted(): void {
    this.#isLoginNeeded = true;
  }

  /** Records that the member failed a pipelined handshake, and then accepted a plain one. */
  refused(member: string): void {
    this.#refusing.set(member, true);
  }

  /** Forgets that the member accepts pipelined handshakes, because one has failed. */
  failed(member: string): void {
    this.#accepting.delete(member);
  }

  /**
   * The mode that follows from the setting and from what is known about the source's members. Undefined if nothing is
   * known about any of them.
   */
  #knownMode(member: string, hasLogin: boolean): HandshakeMode | undefined {
    if (this.#setting === 'plain' || (hasLogin && !this.#isLoginNeeded)) return 'plain';
    if (this.#setting === 'pipelined') return 'pipelined';
    if (this.#accepting.has(member)) return 'pipelined';
    if (this.#refusing.has(member) || this.#refusing.size > this.#accepting.size) return 'plain';
    return this.#accepting.size > 0 ? 'trial' : undefined;
  }

  #startTrial(): boolean {
    const now = this.#clock.monotonic();
    if (now - this.#trialAt < TRIAL_INTERVAL_MS) return false;
    this.#trialAt = now;
    return true;
  }
}
