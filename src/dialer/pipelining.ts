/**
 * Learns which SOCKS5 members of one source accept a pipelined handshake: greeting, login and request in one write.
 * By RFC 1928, a client waits for each reply, and some servers depend on it: they close, answer out of order, or drop
 * early bytes. So `auto` first measures a plain handshake, then tries a pipelined one; if that fails, the same member
 * gets a plain one at once, and if it fails with most members, all do.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';

/**
 * `pipelined`: noria does not wait for replies. Until a member has accepted a login in a plain handshake, those with
 * a login are plain.
 */
export type HandshakeSetting = 'auto' | 'plain' | 'pipelined';

/** `trial`: if it fails, the same member gets a plain handshake. */
export type HandshakeMode = 'plain' | 'trial' | 'pipelined';

export const RELEARN_HANDSHAKE_MS = 10 * 60_000;
/** While no member has accepted a pipelined handshake, at most one tunnel in this time tries it. */
export const TRIAL_INTERVAL_MS = 1_000;
const MIN_SILENCE_MS = 100;
const SILENCE_FACTOR = 2;
/** So that an old maximum fades. */
const DECAY = 0.98;
const MAX_MEMBERS = 1_024;

export class Pipelining {
  readonly #clock: Clock;
  readonly #setting: HandshakeSetting;
  readonly #accepting: AgedMap<string>;
  readonly #refusing: AgedMap<string>;
  #longestMs: number | undefined;
  #trialAt = Number.NEGATIVE_INFINITY;
  /** Whether a member has accepted a login in a plain handshake. */
  #isLoginNeeded = false;

  constructor(clock: Clock, setting: HandshakeSetting) {
    this.#clock = clock;
    this.#setting = setting;
    this.#accepting = new AgedMap(clock, RELEARN_HANDSHAKE_MS, MAX_MEMBERS);
    this.#refusing = new AgedMap(clock, RELEARN_HANDSHAKE_MS, MAX_MEMBERS);
  }

  modeFor(member: string, hasLogin: boolean): HandshakeMode {
    const known = this.#knownMode(member, hasLogin);
    if (known !== undefined) return known;
    return this.#longestMs !== undefined && this.#startTrial() ? 'trial' : 'plain';
  }

  isPlain(member: string, hasLogin: boolean): boolean {
    return this.#knownMode(member, hasLogin) === 'plain';
  }

  /** How long a trial may wait for its last reply. */
  get silenceMs(): number {
    return Math.max(MIN_SILENCE_MS, SILENCE_FACTOR * (this.#longestMs ?? 0));
  }

  accepted(member: string, mode: HandshakeMode, ms: number, hasLogin = false): void {
    this.#longestMs = Math.max(ms, DECAY * (this.#longestMs ?? 0));
    if (mode === 'plain') this.#isLoginNeeded ||= hasLogin;
    if (mode === 'plain' || this.#accepting.has(member)) return;
    this.#refusing.delete(member);
    this.#accepting.set(member, true);
  }

  /** It failed a pipelined handshake, and then accepted a plain one. */
  refused(member: string): void {
    this.#refusing.set(member, true);
  }

  failed(member: string): void {
    this.#accepting.delete(member);
  }

  /** Undefined if nothing is known about the source's members. */
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
