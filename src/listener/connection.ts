/**
 * One client connection as the fronts see it: what the listener was opened with, who the client is, and whom to
 * tell how it went.
 *
 * The listener makes one for each accepted connection, owns its handshake deadline and tells `connection.closed` when
 * its socket closes, whatever closed it. A front (HTTP, SOCKS) owns the socket from the moment it is given it.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { ClientProtocol, EventBus } from '../core/events.ts';
import type { FaultCode, NoriaError } from '../core/faults.ts';
import type { Dialed, Dialer } from '../dialer/dial.ts';
import type { Access, Identity } from './access.ts';
import type { WishContext } from './wish.ts';

/** What a front needs beyond the connection itself. Durations in ms. */
export interface FrontOptions {
  /** The listener's name in events and metrics: its address as configured. */
  readonly name: string;
  readonly access: Access;
  readonly dialer: Dialer;
  readonly bus: EventBus;
  readonly clock: Clock;
  /** For what is armed for each connection and almost never comes due. */
  readonly deadlines: Deadlines;
  /** A tunnel or an exchange without a byte in either direction for this long is ended. */
  readonly idleTimeoutMs: number;
  /** The same for a tunnel of which one direction has ended. */
  readonly lingerMs: number;
  /** For a whole HTTP request head, from its first byte. */
  readonly headerTimeoutMs: number;
  /** From the accepted connection to a whole request: TLS, first byte, SOCKS sub-negotiation. */
  readonly handshakeTimeoutMs: number;
}

export interface ConnectionContext {
  readonly options: FrontOptions;
  readonly remoteAddress: string;
  /** The port the client connected to: one of a range tells it from the others. */
  readonly localPort: number;
  /**
   * Set when nothing of this connection is to be served (client not allowed, too many connections, protocol not
   * enabled): the front answers its first request with it, in its own protocol, and closes. It reads no credentials.
   */
  readonly refusal: NoriaError | undefined;

  /** Names what the client turned out to speak; the last one said is told in `connection.closed`. */
  speaks(protocol: ClientProtocol): void;
  /** The client's request is whole: takes the handshake deadline off. Safe to call twice. */
  handshakeDone(): void;
  /** Tells `client.refused`; the code becomes the connection's outcome. `detail` is for the log, without secrets. */
  refused(code: FaultCode, detail: string): void;
  /** What `readWish` needs to know of this connection. `targetHost` is canonical; '' while it is not known yet. */
  wishContext(identity: Identity, targetHost: string): WishContext;
  /**
   * Joins the client and the way until both have ended, ends the way's lease and tells `tunnel.closed`. The front has
   * answered the client already and has taken its own listeners off; the client is paused.
   *
   * @param early - what the client sent behind its request: goes to the target first.
   */
  tunnel(client: Socket, way: Dialed, early: Buffer | undefined): void;
}
