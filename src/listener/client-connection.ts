/**
 * One client connection as the fronts see it: what the listener was opened with, who the client is, and whom to
 * tell how it went.
 *
 * The listener makes one for each accepted socket. It owns the limit on the time until a whole request, tells
 * `connection.closed` when the socket closes, whatever closed it, and knows whether a request is under way. A front
 * (HTTP, SOCKS) owns the socket from the moment it is given it.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { ClientProtocol, EventBus } from '../core/events.ts';
import { describeError, type FaultCode, type NoriaError } from '../core/faults.ts';
import type { Listed } from '../core/live-list.ts';
import type { Dialer, DialFailure, MemberConnection } from '../dialer/dial.ts';
import type { Access, ClientCredentials, ClientIdentity } from './access.ts';
import { relay } from './relay.ts';
import type { RoutingContext } from './routing-options.ts';

/** What the fronts are given. Durations in ms. */
export interface FrontOptions {
  /** The listener's name in events and metrics: its address as configured. */
  readonly name: string;
  readonly access: Access;
  readonly dialer: Dialer;
  readonly bus: EventBus;
  readonly clock: Clock;
  /** For what is armed for each connection and almost never comes due. */
  readonly deadlines: Deadlines;
  readonly sessionMode: RoutingContext['sessionMode'];
  /** The one source this listener draws from. */
  readonly source?: string;
  /** Names of all configured sources. */
  readonly sources: readonly string[];
  /** A tunnel or an exchange without a byte in either direction for this long is ended. */
  readonly idleTimeoutMs: number;
  /** The same for a tunnel of which one direction has ended. */
  readonly lingerMs: number;
  /** For a whole HTTP request head, from its first byte. */
  readonly headerTimeoutMs: number;
  /** From the accepted connection to the first byte of HTTP or the whole of a SOCKS request, TLS included. */
  readonly handshakeTimeoutMs: number;
}

/** A client connection, as a front sees it. */
export interface ConnectionContext {
  readonly options: FrontOptions;
  /** The port the client connected to: it tells the listeners of a port range apart. */
  readonly localPort: number;
  /**
   * Set when nothing of this connection is to be served (client not allowed, too many connections, protocol not
   * enabled): the front answers its first request with it, in its own protocol, and closes. It reads no credentials.
   */
  readonly refusal: NoriaError | undefined;
  /** The listener is closing: answer what is under way, promise nothing further. */
  readonly draining: boolean;

  /** Names what the client turned out to speak; the last one said is told in `connection.closed`. */
  speaks(protocol: ClientProtocol): void;
  /** A whole request is there: takes the handshake's time limit off. Safe to call twice. */
  handshakeDone(): void;
  /** The request is answered and another one may come, within so many ms where a limit is given. While draining: closes. */
  awaitsRequest(withinMs?: number): void;
  /**
   * How the request came out, where that is neither `ok` nor a refusal; for `connection.closed`. A connection that closes
   * with a request unanswered is `client-gone` by itself.
   */
  endedWith(code: FaultCode): void;
  /** Tells `client.refused`; the code becomes the connection's outcome. `detail` is for the log, without secrets. */
  refused(code: FaultCode, detail: string): void;
  /** Emits `client.refused` for a dial that failed, which `dial.ended` has already reported. */
  dialFailed(failure: Pick<DialFailure, 'code' | 'reason'>): void;
  /** Something that noria did not foresee: tells it as `internal` and destroys the socket. */
  broke(error: unknown): void;
  /**
   * Writes the last bytes and closes so that the client can read them: what it still sends is discarded, for a short
   * while, since closing with unread data would reset the connection under the answer.
   */
  farewell(bytes: string | Uint8Array): void;
  /** Who these credentials prove the client to be, or why it is refused. */
  identify(credentials: ClientCredentials | undefined): ClientIdentity | NoriaError;
  /** What `readRoutingOptions` needs to know of this connection. `targetHost` is canonical; '' while it is not known yet. */
  routingContext(identity: ClientIdentity, targetHost: string): RoutingContext;
  /**
   * Joins the client and the way until both have ended, ends the way's lease and tells `tunnel.closed`. The front has
   * answered the client already and has taken its own listeners off, in this same tick.
   *
   * @param early - what the client sent behind its request: goes to the target first.
   */
  tunnel(client: Socket, way: MemberConnection, early: Buffer | undefined): void;
}

/** How long a refused client may go on sending before it is cut off. */
const FAREWELL_MS = 2_000;

/** A client connection, as the listener holds it: from the accepted socket to its close. */
export class ClientConnection implements ConnectionContext, Listed {
  listedAt = -1;
  readonly options: FrontOptions;
  readonly localPort: number;
  readonly #accepted: Socket;
  readonly #openedAt: number;
  /** Plain, or TLS on top of the accepted one. */
  #socket: Socket;
  #refusal: NoriaError | undefined;
  #protocol: ClientProtocol = 'unknown';
  #outcome: 'ok' | FaultCode = 'ok';
  #limit: Deadline | undefined;
  #phase: 'waiting' | 'serving' | 'tunnelling' = 'waiting';
  #answered = false;
  #draining = false;

  /** Tells `connection.opened` at once, and `connection.closed` when the accepted socket closes. */
  constructor(accepted: Socket, localPort: number, options: FrontOptions) {
    this.options = options;
    this.#accepted = accepted;
    this.#socket = accepted;
    this.localPort = localPort;
    this.#openedAt = options.clock.monotonic();
    options.bus.emit('connection.opened', { listener: options.name });
    accepted.on('close', () => this.#onClose());
    this.#limitTo(options.handshakeTimeoutMs);
  }

  get refusal(): NoriaError | undefined {
    return this.#refusal;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** From here on the client is spoken to through `socket`, which closes the accepted one when it closes. */
  speaksThrough(socket: Socket): void {
    this.#socket = socket;
  }

  /** Nothing of this connection will be served, for this reason. */
  refuseAll(reason: NoriaError): void {
    this.#refusal ??= reason;
  }

  speaks(protocol: ClientProtocol): void {
    this.#protocol = protocol;
  }

  handshakeDone(): void {
    if (this.#answered) this.#outcome = 'ok'; // how the request before came out is no longer the last word
    this.#answered = false;
    this.#phase = 'serving';
    this.#clearLimit();
  }

  awaitsRequest(withinMs?: number): void {
    this.#phase = 'waiting';
    this.#answered = true;
    this.#clearLimit();
    if (this.#draining) this.#socket.destroy();
    else if (withinMs !== undefined) this.#limitTo(withinMs);
  }

  endedWith(code: FaultCode): void {
    this.#outcome = code;
  }

  refused(code: FaultCode, detail: string): void {
    this.#outcome = code;
    const { name, bus } = this.options;
    bus.emit('client.refused', { listener: name, protocol: this.#protocol, code, detail });
  }

  dialFailed({ code, reason }: Pick<DialFailure, 'code' | 'reason'>): void {
    this.#outcome = code;
    const { name, bus } = this.options;
    const event = { listener: name, protocol: this.#protocol, code, detail: reason } as const;
    bus.emit('client.refused', { ...event, dialFailed: true });
  }

  broke(error: unknown): void {
    this.refused('internal', describeError(error));
    this.#socket.destroy();
  }

  farewell(bytes: string | Uint8Array): void {
    const socket = this.#socket;
    this.#limitTo(FAREWELL_MS);
    socket.on('end', () => socket.destroySoon());
    socket.end(bytes);
    socket.resume();
    if (socket.readableEnded) socket.destroySoon();
  }

  /** Asked of the kernel, so only where it matters; '' when the client has left. */
  get #clientAddress(): string {
    return this.#accepted.remoteAddress ?? '';
  }

  identify(credentials: ClientCredentials | undefined): ClientIdentity | NoriaError {
    const { access } = this.options;
    return access.identify(credentials, access.asksForCredentials ? this.#clientAddress : undefined);
  }

  routingContext(identity: ClientIdentity, targetHost: string): RoutingContext {
    const { sessionMode, source, sources } = this.options;
    return {
      user: identity.user,
      sessionMode,
      clientAddress: sessionMode === 'client-ip' ? this.#clientAddress : '',
      localPort: this.localPort,
      targetHost,
      sources,
      listenerSource: source,
    };
  }

  tunnel(client: Socket, way: MemberConnection, early: Buffer | undefined): void {
    const { deadlines, idleTimeoutMs, lingerMs, clock, bus } = this.options;
    const startedAt = clock.monotonic();
    const { source, member } = way;
    this.#phase = 'tunnelling';
    relay(client, way, early, {
      deadlines,
      idleTimeoutMs,
      lingerMs,
      onEnd: ({ bytesUp, bytesDown, cut }) => {
        way.end({ cut });
        const ms = clock.monotonic() - startedAt;
        bus.emit('tunnel.closed', { source, member, kind: 'tunnel', bytesUp, bytesDown, ms });
      },
    });
  }

  /** Closes at once when no request is under way, else as soon as the one under way has ended. */
  drain(): void {
    this.#draining = true;
    if (this.#phase === 'waiting') this.#socket.destroy();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #limitTo(ms: number): void {
    this.#clearLimit();
    this.#limit = this.options.deadlines.set(ms, this.#onLimit);
  }

  #clearLimit(): void {
    if (this.#limit !== undefined) this.options.deadlines.clear(this.#limit);
  }

  readonly #onLimit = (): void => {
    if (this.#outcome === 'ok') this.#outcome = 'request-timeout';
    this.#socket.destroy();
  };

  #onClose(): void {
    this.#clearLimit();
    const { name, bus, clock } = this.options;
    const ms = clock.monotonic() - this.#openedAt;
    // A request that was neither answered nor refused: nobody is left to answer it to.
    const outcome = this.#phase === 'serving' && this.#outcome === 'ok' ? 'client-gone' : this.#outcome;
    bus.emit('connection.closed', { listener: name, protocol: this.#protocol, outcome, ms });
  }
}
