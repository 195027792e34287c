/**
 * One connection to a member that is opened before a tunnel needs it: TCP, and TLS where the member speaks it. It waits until it
 * is taken, expires, or is closed by the member.
 *
 * A SOCKS5 member that does not take a pipelined handshake gets greeting and login ahead of the request, too. Each waits for the
 * member's reply, so that the login goes only to a member that asks for it.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { UpcomingMember } from '../pool/lease.ts';
import type { PreparedLogin } from './credentials.ts';
import { type OpenSocket, readyEvent } from './member-socket.ts';
import { Socks5Handshake } from './socks-handshake.ts';

export interface WarmParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
}

/** `unopened`: it could not be established. `closed`: by the member. `expired`: its time ended. */
export type WarmEnd = 'unopened' | 'closed' | 'expired';

export interface WarmOwner {
  /** TCP, and TLS if any, are established. */
  warmOpened(connection: WarmConnection, ms: number): void;
  /** It ended without being used. `keptMs`: since it was ready. */
  warmEnded(connection: WarmConnection, end: WarmEnd, keptMs: number): void;
}

/** A connection that its user owns now. */
export interface TakenConnection {
  readonly socket: Socket;
  readonly login: PreparedLogin | undefined;
  /** TCP, and TLS if any, are established. */
  readonly isConnected: boolean;
  /** SOCKS5 only: has written its opening. */
  readonly handshake: Socks5Handshake | undefined;
  /** The time that its user saves. */
  readonly savedMs: number;
}

export interface WarmTask {
  readonly member: UpcomingMember;
  readonly login: PreparedLogin | undefined;
  /** SOCKS5: send greeting and login ahead. */
  readonly greets: boolean;
  /** The longest time until it is used, from now. */
  readonly keepMs: number;
}

export class WarmConnection {
  readonly member: UpcomingMember;
  readonly login: PreparedLogin | undefined;
  readonly #parts: WarmParts;
  readonly #owner: WarmOwner;
  readonly #socket: Socket;
  readonly #openedAt: number;
  readonly #deadline: Deadline;
  #isConnected = false;
  #readyAt: number | undefined;
  readonly #handshake: Socks5Handshake | undefined;

  constructor(parts: WarmParts, owner: WarmOwner, { member, login, greets, keepMs }: WarmTask) {
    this.member = member;
    this.login = login;
    this.#parts = parts;
    this.#owner = owner;
    this.#handshake = greets ? new Socks5Handshake(undefined, login) : undefined;
    this.#openedAt = parts.clock.monotonic();
    this.#deadline = parts.deadlines.set(keepMs, this.#onExpired);
    this.#socket = parts.openSocket(member, 'tunnel');
    this.#socket.on(readyEvent(member.protocol), this.#onReady).on('close', this.#onClosed);
  }

  take(): TakenConnection {
    this.#release();
    const handshake = this.#isConnected ? this.#handshake : undefined;
    const savedMs = (this.#readyAt ?? this.#parts.clock.monotonic()) - this.#openedAt;
    return { socket: this.#socket, login: this.login, isConnected: this.#isConnected, handshake, savedMs };
  }

  /** Closes it without a call to its owner. */
  close(): void {
    this.#release();
    this.#socket.destroy();
  }

  readonly #onReady = (): void => {
    const now = this.#parts.clock.monotonic();
    this.#isConnected = true;
    this.#owner.warmOpened(this, now - this.#openedAt);
    this.#socket.on('data', this.#onData).on('end', this.#onClosed);
    if (this.#handshake === undefined) this.#readyAt = now;
    else this.#socket.write(this.#handshake.opening);
  };

  readonly #onData = (bytes: Buffer): void => {
    const step = this.#handshake?.take(bytes);
    if (step?.kind === 'send') this.#socket.write(step.bytes);
    else if (step?.kind !== 'more')
      this.#end('closed'); // nothing else is expected before a request
    else if (this.#handshake?.isWaiting === true) this.#readyAt ??= this.#parts.clock.monotonic();
  };

  readonly #onClosed = (): void => this.#end(this.#isConnected ? 'closed' : 'unopened');

  readonly #onExpired = (): void => this.#end(this.#isConnected ? 'expired' : 'unopened');

  #end(end: WarmEnd): void {
    const now = this.#parts.clock.monotonic();
    this.close();
    this.#owner.warmEnded(this, end, now - (this.#readyAt ?? now));
  }

  #release(): void {
    this.#parts.deadlines.clear(this.#deadline);
    this.#socket
      .off(readyEvent(this.member.protocol), this.#onReady)
      .off('close', this.#onClosed)
      .off('data', this.#onData)
      .off('end', this.#onClosed);
  }
}
