/**
 * A warm connection: a connection to a member that is opened before a tunnel needs it, with TLS if the member speaks
 * TLS. It ends when a tunnel takes it, when it expires, or when the member closes it.
 *
 * If a SOCKS5 member does not accept pipelined handshakes, greeting and login are sent early as well, one after the
 * other. The login is sent only if the member asks for a login.
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

/**
 * How a warm connection ended unused. `unopened`: noria could not establish it. `closed`: the member closed it.
 * `expired`: it reached its time limit.
 */
export type WarmEnd = 'unopened' | 'closed' | 'expired';

export interface WarmOwner {
  /** Called when the connection is established. `ms`: how long that took, TLS included. */
  warmOpened(connection: WarmConnection, ms: number): void;
  /** Called when the connection has ended unused. `keptMs`: the time since the connection was ready. */
  warmEnded(connection: WarmConnection, end: WarmEnd, keptMs: number): void;
}

/** A warm connection that a tunnel has taken. The tunnel owns it. */
export interface TakenConnection {
  readonly socket: Socket;
  readonly login: PreparedLogin | undefined;
  /** Whether TCP, and TLS if used, are established. */
  readonly isConnected: boolean;
  /** SOCKS5 only: the handshake of this connection, which has already sent its opening message. */
  readonly handshake: Socks5Handshake | undefined;
  /** How many ms a tunnel saves by using this connection instead of a new one. */
  readonly savedMs: number;
}

interface WarmTask {
  readonly member: UpcomingMember;
  readonly login: PreparedLogin | undefined;
  /** SOCKS5 only: whether to send greeting and login before a tunnel needs the connection. */
  readonly greets: boolean;
  /** The connection expires when this number of ms has passed since noria began to open it. */
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

  /** Closes the connection. Does not call `warmEnded`. */
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
      this.#end('closed'); // before the request, a member may send only replies of the handshake
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
