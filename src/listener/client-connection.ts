/**
 * One client connection, from the accepted socket to its close. The code of one protocol (http/ or socks/) drives it.
 * It enforces the time limit until a complete request has arrived, decides whether noria serves a request, and
 * reports how the connection ended.
 */
import type { Socket } from 'node:net';
import { type SecureContext, TLSSocket } from 'node:tls';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { ClientProtocol, EventBus } from '../core/events.ts';
import { describeError, type FaultCode, NoriaError } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import type { Listed } from '../core/live-list.ts';
import { clientNetwork } from '../core/networks.ts';
import type { ListenerProtocol } from '../core/protocol.ts';
import { OpenRequest, type RequestProtocol } from '../core/request-record.ts';
import type { Dialer, Dialing } from '../dialer/contract.ts';
import type { RoutingOptions } from '../pool/lease.ts';
import { type Access, type ClientCredentials, type ClientIdentity, parseBasicCredentials } from './access.ts';
import { type ClientDesk, DESK_HOST, deskPortError } from './http/client-desk.ts';
import { fieldValues, type HeaderField } from './http/header-fields.ts';
import { badRequest } from './refusal.ts';
import { type RoutingSettings, readRoutingOptions } from './routing-options.ts';
import { type Counter, limited, type UserLimits } from './user-limits.ts';

/** In PEM format, the certificate with its chain. */
export interface TlsMaterial {
  readonly cert: string | Buffer;
  readonly key: string | Buffer;
}

export interface ConnectionLimit {
  /** The promise never rejects. Call `release` when an allowed connection closes. */
  acquire(): boolean | Promise<boolean>;
  release(): void;
}

/** What one listener gets, and its connections read. */
export interface ListenerOptions extends RoutingSettings {
  /** Networks of balancers in CIDR notation. */
  readonly proxyProtocol?: readonly string[];
  readonly addresses: readonly ListenAddress[];
  readonly protocols: readonly ListenerProtocol[];
  readonly tls?: TlsMaterial;
  readonly maxConnections: number;
  /** Replaces the local count. */
  readonly sharedLimit?: ConnectionLimit;
  readonly allowNonLoopback: boolean;
  /** Of the users, over all listeners of this process. */
  readonly limits?: UserLimits;
  readonly name: string;
  readonly access: Access;
  readonly dialer: Dialer;
  readonly desk: ClientDesk;
  readonly bus: EventBus;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** Without a byte from either side for this time, the tunnel or the forwarded request ends. */
  readonly idleTimeoutMs: number;
  /** Replaces `idleTimeoutMs` for a half-closed tunnel, if it is shorter. */
  readonly lingerMs: number;
  /** The time limit for an HTTP request head, from its first byte to its last. */
  readonly headerTimeoutMs: number;
  /** From the accepted connection to the first byte of HTTP or a complete SOCKS request, TLS included. */
  readonly handshakeTimeoutMs: number;
}

/** After the last reply, noria discards data from the client for at most this time. */
const CLOSE_TIMEOUT_MS = 2_000;

/** A request that no later time allows: the client has to change it. */
const NEVER_RETRY_MS = 3_600_000;

const RECORD_PROTOCOLS: { readonly [Protocol in ClientProtocol]: RequestProtocol } = {
  http: 'forward',
  upgrade: 'forward',
  connect: 'connect',
  socks5: 'socks5',
  socks4: 'socks4',
  unknown: 'unknown',
};

export class ClientConnection implements Listed {
  listIndex = -1;
  onClosed: ((connection: ClientConnection) => void) | undefined;
  dialing: Dialing | undefined;
  /** The record of the current request; undefined while nothing reads records. */
  record: OpenRequest | undefined;
  readonly options: ListenerOptions;
  /** The port that the client connected to. A listener may have a range of ports. */
  readonly #localPort: number;
  readonly #accepted: Socket;
  readonly #openedAt: number;
  /** The accepted socket, or the TLS socket on top of it. Closing the TLS socket also closes the accepted socket. */
  readonly socket: Socket;
  /**
   * The error with which noria refuses every request: the address is not allowed, the listener is full, or the
   * protocol is not enabled. It is sent in the client's own protocol, without a check of credentials.
   */
  refusalError: NoriaError | undefined;
  protocol: ClientProtocol = 'unknown';
  /**
   * What `connection.closed` reports; `client-gone` if the connection closes during a request without another outcome.
   */
  outcome: 'ok' | FaultCode = 'ok';
  #timeout: Deadline;
  #phase: 'idle' | 'request' | 'tunnel' = 'idle';
  #relay: { readonly bytesUp: number; readonly bytesDown: number } | undefined;
  #onTunnelClosing: (() => void) | undefined;
  #answered = false;
  /** Counts the current request for the limits of its user. */
  #counter: Counter | undefined;
  draining = false;

  constructor(accepted: Socket, localPort: number, options: ListenerOptions, secureContext?: SecureContext) {
    this.options = options;
    this.#accepted = accepted;
    this.socket = accepted;
    if (secureContext !== undefined) {
      this.socket = new TLSSocket(accepted, { isServer: true, secureContext });
      this.socket.on('error', () => {}); // ignored: 'close' follows every error
    }
    this.#localPort = localPort;
    this.#openedAt = options.clock.monotonic();
    options.bus.emit('connection.opened', { listener: options.name });
    accepted.on('close', () => this.#onClose());
    this.#timeout = options.deadlines.set(options.handshakeTimeoutMs, this.#onTimeout, this.#openedAt);
  }

  /**
   * Calls `then` once with the first bytes of the connection or of its next request, after it has removed its own
   * listeners.
   */
  readFirst(then: (first: Buffer) => void): void {
    const socket = this.socket;
    const onData = (first: Buffer): void => {
      socket.off('data', onData).off('end', onEnd);
      try {
        then(first);
      } catch (error) {
        this.fail(error);
      }
    };
    const onEnd = () => void socket.destroy();
    socket.on('data', onData).on('end', onEnd);
    if (socket.isPaused()) socket.resume();
  }

  /** Call it when a complete request has arrived. Clears the time limit. Idempotent. */
  beginRequest(): void {
    if (this.#answered) this.outcome = 'ok'; // replaces the outcome of an earlier request on this connection
    this.#answered = false;
    this.#phase = 'request';
    this.#openRecord();
    this.options.deadlines.clear(this.#timeout);
  }

  /**
   * Call it before the relay starts. From then on, a close of the connection does not count as `client-gone`.
   * @param onClosing - judges a tunnel whose client closes it, before the outcome of the connection is reported.
   */
  beginTunnel(relay: { readonly bytesUp: number; readonly bytesDown: number }, onClosing: () => void): void {
    this.#phase = 'tunnel';
    this.#relay = relay;
    this.#onTunnelClosing = onClosing;
  }

  /**
   * Call it before the first request and after each answer. `timeoutMs`: the client must send another request within
   * it.
   */
  becomeIdle(timeoutMs?: number): void {
    this.#phase = 'idle';
    this.#answered = true;
    this.endRequest();
    this.options.deadlines.clear(this.#timeout);
    if (this.draining) this.socket.destroySoon();
    else if (timeoutMs !== undefined) this.#setTimeout(timeoutMs);
  }

  identify(credentials: ClientCredentials | undefined): ClientIdentity | NoriaError {
    const { access } = this.options;
    return access.identify(credentials, access.requiresCredentials ? this.clientAddress : undefined);
  }

  /**
   * HTTP Basic (RFC 7617). Goes before all other checks, so that a client without access learns nothing about targets
   * and options.
   */
  identifyRequest(fields: readonly HeaderField[]): ClientIdentity | NoriaError {
    if (this.refusalError !== undefined) return this.refusalError;
    const credentials = fieldValues(fields, 'proxy-authorization');
    if (credentials.length > 1) return badRequest('the request has more than one Proxy-Authorization field');
    if (fieldValues(fields, 'host').length > 1) return badRequest('the request has more than one Host field');
    return this.identify(parseBasicCredentials(credentials[0]));
  }

  /** @param headers - those named X-Noria-… contain routing options. */
  authorize(
    identity: ClientIdentity,
    target: HostPort,
    headers: readonly (readonly [string, string])[],
  ): RoutingOptions | NoriaError {
    const { access, limits } = this.options;
    const { user } = identity;
    if (target.host === DESK_HOST)
      return deskPortError(target) ?? this.readRoutingOptions(identity, '', headers);
    const record = this.#openRecord();
    if (record !== undefined) {
      record.target = target.text;
      if (user !== '') record.user = user;
    }
    const asked = access.checkTarget(target) ?? this.readRoutingOptions(identity, target.host, headers);
    const isUnlimited = user === '' || limits === undefined || asked instanceof NoriaError;
    const routing = isUnlimited ? asked : this.#limit(user, limits, asked);
    if (record !== undefined && !(routing instanceof NoriaError)) {
      record.session = routing.session ?? null;
      record.tag = routing.tag ?? null;
    }
    return routing;
  }

  #limit(user: string, limits: UserLimits, routing: RoutingOptions): RoutingOptions | NoriaError {
    const source = limits.sourceOf(user);
    if (source !== undefined && (routing.source ?? source) !== source)
      return limited(`the user may only use source ${source}`, NEVER_RETRY_MS);
    const admitted = limits.admit(user);
    if (admitted instanceof NoriaError) return admitted;
    this.#counter = admitted;
    return source === undefined ? routing : { ...routing, source };
  }

  /** @param targetHost - the target's host in canonical form; '' while the target is unknown. */
  readRoutingOptions(
    identity: ClientIdentity,
    targetHost: string,
    headers: readonly (readonly [string, string])[],
  ): RoutingOptions | NoriaError {
    const { user, routingText } = identity;
    const { access } = this.options;
    return readRoutingOptions(routingText, headers, {
      listener: this.options,
      user,
      // Without users: the client's network if the listener has an allow list.
      client: user !== '' ? user : access.admitsAll ? 'local' : clientNetwork(this.clientAddress),
      socket: this.#accepted,
      localPort: this.#localPort,
      targetHost,
    });
  }

  /** @param dialFailed - whether a `dial.ended` event has already reported the failure. */
  reportRefusal(code: FaultCode, detail: string, dialFailed = false): void {
    this.outcome = code;
    const { name, bus } = this.options;
    bus.emit('client.refused', {
      listener: name,
      client: clientNetwork(this.clientAddress),
      protocol: this.protocol,
      code,
      detail,
      ...(dialFailed && { dialFailed }),
      request: this.#openRecord()?.id,
    });
  }

  fail(error: unknown): void {
    this.reportRefusal('internal', describeError(error));
    this.socket.destroy();
  }

  sendAndClose(bytes: string | Uint8Array): void {
    this.socket.write(bytes);
    this.close();
  }

  /**
   * Sends what is queued, then closes. Meanwhile data from the client is discarded: unread data would cause a reset,
   * and the client could lose the end of the reply.
   */
  close(): void {
    const { socket } = this;
    const destroy = () => void socket.destroy();
    this.#setTimeout(this.options.idleTimeoutMs, destroy);
    socket.end(() => {
      if (!socket.destroyed) this.#setTimeout(CLOSE_TIMEOUT_MS, destroy);
    });
    socket.resume();
  }

  drain(): void {
    this.draining = true;
    if (this.#phase === 'idle') this.socket.destroySoon();
  }

  /** Ends the current request: its record, and its place in the user's limits. Call it when its last byte has passed. */
  endRequest(): void {
    const { record } = this;
    if (this.#counter !== undefined) this.#counter.open -= 1;
    this.#counter = undefined;
    if (record === undefined) return;
    this.record = undefined;
    this.#relay = undefined;
    if (record.target === null && this.outcome === 'ok') return; // noria.invalid has answered: nobody's traffic
    record.protocol = RECORD_PROTOCOLS[this.protocol];
    record.end(this.outcome === 'ok' ? null : this.outcome);
    this.options.bus.emit('request.ended', record);
  }

  /**
   * Reports what the open tunnel has relayed since the last report, so that usage does not wait for its end. Ends it if
   * its user has used the bytes of the day.
   */
  reportGrowth(): void {
    const { record } = this;
    if (record === undefined || this.#relay === undefined) return;
    const { bus, limits } = this.options;
    if (record.user !== null && limits?.isOverBytes(record.user)) this.socket.destroy();
    const { bytesUp, bytesDown } = this.#relay;
    const [up, down] = [bytesUp - record.countedUp, bytesDown - record.countedDown];
    if (up === 0 && down === 0) return;
    record.countedUp = bytesUp;
    record.countedDown = bytesDown;
    const { id: request, user, target, source } = record;
    bus.emit('request.grew', { request, user: user ?? '', target: target ?? '', source, up, down });
  }

  #openRecord(): OpenRequest | undefined {
    const { bus, clock } = this.options;
    if (this.record === undefined && bus.hasSubscribers('request.ended'))
      this.record = new OpenRequest(clock, this.clientAddress);
    return this.record;
  }

  /** '' if the client has disconnected. The first read costs a system call. */
  get clientAddress(): string {
    return this.#accepted.remoteAddress ?? '';
  }

  #setTimeout(ms: number, onTimeout = this.#onTimeout): void {
    this.options.deadlines.clear(this.#timeout);
    this.#timeout = this.options.deadlines.set(ms, onTimeout);
  }

  readonly #onTimeout = (): void => {
    if (this.outcome === 'ok') this.outcome = 'request-timeout';
    this.socket.destroy();
  };

  #onClose(): void {
    this.options.deadlines.clear(this.#timeout);
    const { name, bus, clock } = this.options;
    const ms = clock.monotonic() - this.#openedAt;
    this.#onTunnelClosing?.();
    if (this.#phase === 'request' && this.outcome === 'ok') this.outcome = 'client-gone';
    const { protocol, outcome } = this;
    bus.emit('connection.closed', { listener: name, protocol, outcome, ms });
    this.onClosed?.(this);
    this.dialing?.cancel();
    if (this.#phase !== 'tunnel') this.endRequest(); // a tunnel ends when its member's side has closed, too
  }
}
