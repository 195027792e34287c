/**
 * One client connection, from the accepted socket to its close.
 *
 * The listener creates the ClientConnection; then the code of one protocol (http/ or socks/) drives it. The
 * ClientConnection enforces the time limit until a complete request has arrived. It decides whether noria serves a
 * request, knows whether a request is in progress, and reports how the connection ended.
 */
import type { Socket } from 'node:net';
import { type SecureContext, TLSSocket } from 'node:tls';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { ClientProtocol, EventBus } from '../core/events.ts';
import { describeError, type FaultCode, type NoriaError } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { Listed } from '../core/live-list.ts';
import { clientNetwork } from '../core/networks.ts';
import type { Dialer, DialFailure, Dialing } from '../dialer/dial.ts';
import type { RoutingOptions } from '../pool/lease.ts';
import type { Access, ClientCredentials, ClientIdentity } from './access.ts';
import { type RoutingSettings, readRoutingOptions } from './routing-options.ts';

/** The objects and settings that all connections of a listener share. Durations are in ms. */
export interface ConnectionOptions extends RoutingSettings {
  /** The listener's name in events and metrics: its address as configured. */
  readonly name: string;
  readonly access: Access;
  readonly dialer: Dialer;
  readonly bus: EventBus;
  readonly clock: Clock;
  /** The shared timer for the time limits of all connections. */
  readonly deadlines: Deadlines;
  /** If neither side sends a byte for this time, noria closes the tunnel or the forwarded request. */
  readonly idleTimeoutMs: number;
  /** Replaces `idleTimeoutMs` for a half-closed tunnel, if it is shorter. */
  readonly lingerMs: number;
  /** The time limit for an HTTP request head, from its first byte to its last. */
  readonly headerTimeoutMs: number;
  /**
   * The time limit from the accepted connection to the first byte of HTTP or to a complete SOCKS request. It includes
   * the TLS handshake.
   */
  readonly handshakeTimeoutMs: number;
}

/**
 * After the last reply, noria discards further data from the client for at most this time. Then it destroys the
 * connection.
 */
const CLOSE_TIMEOUT_MS = 2_000;

export class ClientConnection implements Listed {
  listIndex = -1;
  /** Called once, when the accepted socket has closed. */
  onClosed: ((connection: ClientConnection) => void) | undefined;
  /** The dial in progress for a tunnel. The connection cancels the dial when the accepted socket closes. */
  dialing: Dialing | undefined;
  readonly options: ConnectionOptions;
  /** The port that the client connected to. A listener may have a range of ports. */
  readonly #localPort: number;
  readonly #accepted: Socket;
  readonly #openedAt: number;
  #socket: Socket;
  #refusalError: NoriaError | undefined;
  #protocol: ClientProtocol = 'unknown';
  #outcome: 'ok' | FaultCode = 'ok';
  #timeout: Deadline | undefined;
  #phase: 'idle' | 'request' | 'tunnel' = 'idle';
  #answered = false;
  #draining = false;

  /** Emits `connection.opened` now, and `connection.closed` when the accepted socket closes for whatever reason. */
  constructor(accepted: Socket, localPort: number, options: ConnectionOptions) {
    this.options = options;
    this.#accepted = accepted;
    this.#socket = accepted;
    this.#localPort = localPort;
    this.#openedAt = options.clock.monotonic();
    options.bus.emit('connection.opened', { listener: options.name });
    accepted.on('close', () => this.#onClose());
    this.#timeout = options.deadlines.set(options.handshakeTimeoutMs, this.#onTimeout, this.#openedAt);
  }

  /** The socket to read from and to write to: the accepted socket, or the TLS socket on top of it. */
  get socket(): Socket {
    return this.#socket;
  }

  /**
   * The error with which noria refuses every request of this connection; undefined if noria serves the requests.
   *
   * noria refuses a connection if the client's address is not allowed, the listener is full, or the protocol is not
   * enabled. It sends the refusal in the client's own protocol, without a check of the client's credentials.
   */
  get refusalError(): NoriaError | undefined {
    return this.#refusalError;
  }

  /** Whether the listener is closing. noria still answers the current request, but accepts no further request. */
  get draining(): boolean {
    return this.#draining;
  }

  /** Starts TLS on the accepted socket. Closing the TLS socket also closes the accepted socket. */
  startTls(secureContext: SecureContext): void {
    this.#socket = new TLSSocket(this.#accepted, { isServer: true, secureContext });
    this.#socket.on('error', () => {}); // ignored: 'close' follows every error
  }

  /** Refuses every request of this connection with this error. A second call has no effect. */
  refuseAll(error: NoriaError): void {
    this.#refusalError ??= error;
  }

  /** Sets the protocol that events report. */
  setProtocol(protocol: ClientProtocol): void {
    this.#protocol = protocol;
  }

  /**
   * Calls `then` once with the first bytes of the connection or of its next request. At that moment, this method has
   * already removed its own listeners from the socket. If the client ends its side without a byte, the socket is
   * destroyed. An error in `then` ends only this connection.
   */
  readFirst(then: (first: Buffer) => void): void {
    const socket = this.#socket;
    const onData = (first: Buffer): void => {
      socket.off('data', onData).off('end', onEnd);
      try {
        then(first);
      } catch (error) {
        this.fail(error);
      }
    };
    const onEnd = (): void => {
      socket.destroy();
    };
    socket.on('data', onData).on('end', onEnd);
    if (socket.isPaused()) socket.resume();
  }

  /** Call it when a complete request has arrived. Clears the time limit. Idempotent. */
  beginRequest(): void {
    if (this.#answered) this.#outcome = 'ok'; // replaces the outcome of an earlier request on this connection
    this.#answered = false;
    this.#phase = 'request';
    this.#clearTimeout();
  }

  /** Call it when the relay starts. From then on, a close of the connection does not count as `client-gone`. */
  beginTunnel(): void {
    this.#phase = 'tunnel';
  }

  /**
   * Call it when no request is in progress: before the first request, and after each answer. If the listener is
   * closing, this method closes the connection. Otherwise the client may send another request. If `timeoutMs` is given,
   * the client must do so within this time.
   */
  becomeIdle(timeoutMs?: number): void {
    this.#phase = 'idle';
    this.#answered = true;
    this.#clearTimeout();
    if (this.#draining) this.#socket.destroySoon();
    else if (timeoutMs !== undefined) this.#setTimeout(timeoutMs);
  }

  /** Checks the client's credentials. The error says why the client is refused. */
  identify(credentials: ClientCredentials | undefined): ClientIdentity | NoriaError {
    const { access } = this.options;
    return access.identify(credentials, access.requiresCredentials ? this.clientAddress : undefined);
  }

  /**
   * Decides whether noria serves a request: checks the target and the routing options of the client.
   *
   * @param headers - all fields of the request. Fields named X-Noria-… contain routing options.
   */
  authorize(
    identity: ClientIdentity,
    target: HostPort,
    headers: readonly (readonly [string, string])[],
  ): RoutingOptions | NoriaError {
    return this.options.access.checkTarget(target) ?? this.readRoutingOptions(identity, target.host, headers);
  }

  /** @param targetHost - the target's host in canonical form; '' while the target is unknown. */
  readRoutingOptions(
    identity: ClientIdentity,
    targetHost: string,
    headers: readonly (readonly [string, string])[],
  ): RoutingOptions | NoriaError {
    const { user, routingText } = identity;
    return readRoutingOptions(routingText, headers, {
      listener: this.options,
      user,
      client: user === '' ? this.#clientWithoutUser : user,
      socket: this.#accepted,
      localPort: this.#localPort,
      targetHost,
    });
  }

  /**
   * Sets the outcome that `connection.closed` reports.
   *
   * `reportRefusal` sets the outcome, too. If the connection closes during a request and neither method was called, the
   * outcome is `client-gone`.
   */
  setOutcome(code: FaultCode): void {
    this.#outcome = code;
  }

  /** Emits `client.refused` and makes the code the connection's outcome. `detail` is for the log, without secrets. */
  reportRefusal(code: FaultCode, detail: string): void {
    this.#reportRefusal(code, detail, {});
  }

  /** Emits `client.refused`. Its field `dialFailed` says that a `dial.ended` event has already reported the failure. */
  reportFailedDial({ code, reason }: DialFailure): void {
    this.#reportRefusal(code, reason, { dialFailed: true });
  }

  /** Handles an unexpected error: reports it as `internal` and destroys the socket. */
  fail(error: unknown): void {
    this.reportRefusal('internal', describeError(error));
    this.#socket.destroy();
  }

  sendAndClose(bytes: string | Uint8Array): void {
    this.#socket.write(bytes);
    this.close();
  }

  /**
   * Sends everything that is still queued, then closes the connection. In the meantime, noria discards further data
   * from the client, for at most `CLOSE_TIMEOUT_MS` after the last byte was sent. Without this, unread data would cause
   * a reset, and the client could lose the end of the reply.
   */
  close(): void {
    const socket = this.#socket;
    const destroy = (): void => {
      socket.destroy();
    };
    this.#setTimeout(this.options.idleTimeoutMs, destroy);
    socket.on('end', () => socket.destroySoon());
    socket.end(() => {
      if (!socket.destroyed) this.#setTimeout(CLOSE_TIMEOUT_MS, destroy);
    });
    socket.resume();
    if (socket.readableEnded) socket.destroySoon();
  }

  /** Closes the connection now if no request is in progress, otherwise after the current request. */
  drain(): void {
    this.#draining = true;
    if (this.#phase === 'idle') this.#socket.destroySoon();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #reportRefusal(code: FaultCode, detail: string, cause: { readonly dialFailed?: true }): void {
    this.#outcome = code;
    const { name, bus } = this.options;
    bus.emit('client.refused', {
      listener: name,
      client: clientNetwork(this.clientAddress),
      protocol: this.#protocol,
      code,
      detail,
      ...cause,
    });
  }

  /**
   * The name of a client of a listener without users: the client's network if the listener has an allow list, otherwise
   * `local`.
   */
  get #clientWithoutUser(): string {
    return this.options.access.admitsAll ? 'local' : clientNetwork(this.clientAddress);
  }

  /**
   * The address of the client; '' if the client has disconnected. Reading the address costs a system call, so read it
   * only where necessary.
   */
  get clientAddress(): string {
    return this.#accepted.remoteAddress ?? '';
  }

  #setTimeout(ms: number, onTimeout = this.#onTimeout): void {
    this.#clearTimeout();
    this.#timeout = this.options.deadlines.set(ms, onTimeout);
  }

  #clearTimeout(): void {
    if (this.#timeout !== undefined) this.options.deadlines.clear(this.#timeout);
  }

  readonly #onTimeout = (): void => {
    if (this.#outcome === 'ok') this.#outcome = 'request-timeout';
    this.#socket.destroy();
  };

  #onClose(): void {
    this.#clearTimeout();
    const { name, bus, clock } = this.options;
    const ms = clock.monotonic() - this.#openedAt;
    const unanswered = this.#phase === 'request' && this.#outcome === 'ok';
    const outcome = unanswered ? 'client-gone' : this.#outcome;
    bus.emit('connection.closed', { listener: name, protocol: this.#protocol, outcome, ms });
    this.onClosed?.(this);
    this.dialing?.cancel();
  }
}
