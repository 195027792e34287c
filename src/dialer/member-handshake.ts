/**
 * The handshake with a member: chooses how an attempt performs its next handshake, and records what the handshakes show
 * about pipelining. An attempt may perform two handshakes: a trial of a pipelined SOCKS5 handshake, and after a failed
 * trial a plain handshake.
 */

import type { Clock } from '../core/clock.ts';
import type { HostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Lease } from '../pool/lease.ts';
import { ConnectHandshake } from './connect-handshake.ts';
import type { PreparedLogin } from './credentials.ts';
import type { Handshake } from './handshake.ts';
import type { HandshakeMode, Pipelining } from './pipelining.ts';
import { Socks4Handshake, Socks5Handshake } from './socks-handshake.ts';

export class HandshakeChoice {
  readonly #clock: Clock;
  readonly #lease: Lease;
  readonly #pipelining: Pipelining;
  #mode: HandshakeMode = 'plain';
  #sentAt = 0;
  /**
   * Pipelining was the cause of a failed trial if the plain handshake that follows takes less than this number of ms.
   * Undefined before the trial has failed.
   */
  #maxPlainMs: number | undefined;

  constructor(clock: Clock, lease: Lease, pipelining: Pipelining) {
    this.#clock = clock;
    this.#lease = lease;
    this.#pipelining = pipelining;
  }

  /** Whether the current handshake is a trial of pipelining. */
  get isTrial(): boolean {
    return this.#mode === 'trial';
  }

  /** The time limit in ms of a trial of pipelining; Infinity for any other handshake. */
  get limitMs(): number {
    return this.#mode === 'trial' ? this.#pipelining.silenceMs : Number.POSITIVE_INFINITY;
  }

  get elapsedMs(): number {
    return this.#clock.monotonic() - this.#sentAt;
  }

  next(target: HostPort, login: PreparedLogin | undefined): Handshake {
    const { protocol, member } = this.#lease;
    const isFree = protocol === 'socks5' && this.#maxPlainMs === undefined;
    this.#mode = isFree ? this.#pipelining.modeFor(member, login !== undefined) : 'plain';
    return memberHandshake(protocol, { target, login, pipelined: this.#mode !== 'plain' });
  }

  /** Call it when the attempt continues the handshake of a warm connection. This handshake is plain. */
  setPlain(): void {
    this.#mode = 'plain';
  }

  sent(now: number): void {
    this.#sentAt = now;
  }

  /**
   * Call it when the trial of pipelining failed.
   * @param maxPlainMs - see `#maxPlainMs`.
   */
  endTrial(maxPlainMs = Number.POSITIVE_INFINITY): void {
    this.#maxPlainMs = maxPlainMs;
  }

  accepted(login: PreparedLogin | undefined): void {
    if (this.#lease.protocol !== 'socks5') return;
    const { member } = this.#lease;
    const ms = this.elapsedMs;
    this.#pipelining.accepted(member, this.#mode, ms);
    if (this.#mode !== 'plain') return;
    if (login !== undefined) this.#pipelining.loginAccepted();
    if (this.#maxPlainMs !== undefined && ms < this.#maxPlainMs) this.#pipelining.refused(member);
  }

  failed(): void {
    if (this.#mode === 'pipelined') this.#pipelining.failed(this.#lease.member);
  }
}

interface HandshakeTerms {
  readonly target: HostPort;
  readonly login?: PreparedLogin | undefined;
  /** Whether greeting, login and request are sent in one write. Only for SOCKS5. */
  readonly pipelined?: boolean;
}

export function memberHandshake(
  protocol: MemberProtocol,
  { target, login, pipelined = false }: HandshakeTerms,
): Handshake {
  switch (protocol) {
    case 'http':
    case 'https':
      return new ConnectHandshake(target, login?.authorization);
    case 'socks5':
      return new Socks5Handshake(target, login, pipelined);
    case 'socks4':
      return new Socks4Handshake(target, login);
  }
}
