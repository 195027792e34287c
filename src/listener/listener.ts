/**
 * One listener of the configuration: its servers, its limits, and the client connections that it accepted. The first
 * byte of a connection, after TLS, selects the protocol: 5 and 4 are SOCKS, everything else is HTTP.
 */
import { createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { type BoundAddress, type ListenAddress, listenFailure } from '../core/listen-address.ts';
import { LiveList } from '../core/live-list.ts';
import { clientNetwork, isLoopbackAddress, Networks } from '../core/networks.ts';
import type { ListenerProtocol } from '../core/protocol.ts';
import {
  ClientConnection,
  type ConnectionLimit,
  type ListenerOptions,
  type TlsMaterial,
} from './client-connection.ts';
import { serveHttp } from './http/http-connection.ts';
import { readProxyHeader } from './proxy-protocol.ts';
import { refusalError } from './refusal.ts';
import { serveSocks } from './socks.ts';

/**
 * Unanswered calls of `acquire`: as long as the kernel's accept queue, so noria refuses no connection even if it
 * accepts the whole queue at once.
 */
const MAX_PENDING = 512;
/** After this time, the process that decides probably hangs, and noria refuses the connection. */
const ANSWER_TIMEOUT_MS = 2_000;
/** So many refused connections stay open to receive a reply; further ones are closed without. */
const MAX_REFUSED_OPEN = 64;
const SOCKS_VERSIONS = new Map<number | undefined, 4 | 5>([
  [4, 4],
  [5, 5],
]);

/**
 * @throws `listen-failed`, or `bad-config` for unusable TLS material or an address that other machines can reach and
 * that is not allowed. Everything opened is closed before.
 */
export async function openListener(options: ListenerOptions): Promise<Listener> {
  const listener = new Listener(options);
  try {
    await listener.listen();
  } catch (error) {
    await listener.close();
    throw error;
  }
  return listener;
}

export class Listener {
  readonly name: string;
  readonly #options: ListenerOptions;
  readonly #servers: Server[] = [];
  /** The assigned port replaces port 0, so that `listen` after `stop` uses the same port. */
  #listenAddresses: readonly ListenAddress[];
  addresses: readonly BoundAddress[] = [];
  readonly #connections = new LiveList<ClientConnection>();
  readonly #waiting = new Set<Socket>();
  /** Unanswered calls of `acquire`, including those for clients that have disconnected. */
  #pendingCount = 0;
  readonly #balancers: Networks | undefined;
  readonly #unread = new Set<Socket>();
  readonly #onEmpty: (() => void)[] = [];
  readonly #refused = new Set<ClientConnection>();
  #secureContext: SecureContext | undefined;
  /** Stops by itself when no connection is open. */
  #growthTimer: Disposable | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: ListenerOptions) {
    const { name, addresses, tls, proxyProtocol = [] } = options;
    this.name = name;
    this.#options = options;
    this.#listenAddresses = addresses;
    if (proxyProtocol.length > 0) this.#balancers = new Networks(proxyProtocol);
    if (tls !== undefined) this.#secureContext = secureContext(name, tls);
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** A call after `stop` uses the same ports again. @throws `listen-failed`; the listener is then stopped. */
  async listen(): Promise<void> {
    if (this.#servers.length > 0) return;
    const { allowNonLoopback } = this.#options;
    const assigned: ListenAddress[] = [];
    const bound: BoundAddress[] = [];
    try {
      for (const address of this.#listenAddresses) {
        const servers = await bind(address, allowNonLoopback, (server) => this.#acceptFrom(server));
        this.#servers.push(...servers);
        const addresses = servers.map(boundAddress);
        bound.push(...addresses);
        assigned.push(...addresses.map(({ port }) => ({ ...address, port, lastPort: port })));
      }
    } catch (error) {
      this.stop();
      throw error;
    }
    this.#listenAddresses = assigned;
    this.addresses = bound;
  }

  stop(): void {
    for (const server of this.#servers.splice(0)) server.close();
  }

  /** Checks a new certificate. The result makes new connections use it. @throws `bad-config`. */
  prepareTls(material: TlsMaterial): () => void {
    const context = secureContext(this.name, material);
    return () => {
      this.#secureContext = context;
    };
  }

  async drain(): Promise<void> {
    const stopped = this.#stopAccepting();
    for (const connection of this.#connections.all()) connection.drain();
    await stopped;
  }

  /** Resolves when all connections have closed. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const stopped = this.#stopAccepting();
    for (const connection of this.#connections.all()) connection.socket.destroy();
    await stopped;
  }

  async #stopAccepting(): Promise<void> {
    for (const socket of [...this.#waiting, ...this.#unread]) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
    // The 'close' handlers of a closed server's connections may not have run yet.
    if (this.#connections.size > 0) await new Promise<void>((resolve) => this.#onEmpty.push(resolve));
    this.#growthTimer?.[Symbol.dispose]();
  }

  #acceptFrom(server: Server): void {
    const { name, bus } = this.#options;
    const { port } = boundAddress(server);
    server.on('connection', (socket) => this.#accept(socket, port));
    server.on('error', ({ message: detail }) => {
      bus.emit('client.refused', {
        listener: name,
        client: '',
        protocol: 'unknown',
        code: 'too-many-connections',
        detail,
      });
    });
  }

  /** Reading the port from the socket would cost a system call. */
  #accept(accepted: Socket, localPort: number): void {
    accepted.on('error', ignoreError);
    if (this.#balancers === undefined || !this.#balancers.has(accepted.remoteAddress ?? '')) {
      this.#admit(accepted, localPort);
      return;
    }
    const { name, bus, deadlines, handshakeTimeoutMs } = this.#options;
    const timeout = deadlines.set(handshakeTimeoutMs, () => accepted.destroy());
    this.#unread.add(accepted);
    readProxyHeader(accepted, (valid) => {
      deadlines.clear(timeout);
      this.#unread.delete(accepted);
      if (valid) {
        this.#admit(accepted, localPort);
        return;
      }
      const detail = 'the connection does not begin with a header of the PROXY protocol';
      bus.emit('client.refused', {
        ...{ listener: name, client: clientNetwork(accepted.remoteAddress ?? ''), protocol: 'unknown' },
        ...{ code: 'bad-request', detail },
      });
      accepted.destroy();
    });
  }

  #admit(accepted: Socket, localPort: number): void {
    const { access, sharedLimit, maxConnections } = this.#options;
    // Reading the address costs a system call. A closed connection has none.
    if (!access.admitsAll && !access.admits(accepted.remoteAddress)) {
      const detail = 'the allow list of the listener does not contain the address of this client';
      this.#open(accepted, localPort, refusalError('forbidden', detail));
    } else if (sharedLimit !== undefined) {
      this.#askLimit(sharedLimit, accepted, localPort);
    } else {
      const openCount = this.#connections.size - this.#refused.size;
      this.#open(accepted, localPort, openCount < maxConnections ? undefined : this.#full());
    }
  }

  /** Until the answer arrives, the client's data stays in the socket. */
  #askLimit(limit: ConnectionLimit, accepted: Socket, localPort: number): void {
    if (this.#pendingCount >= MAX_PENDING) {
      this.#open(accepted, localPort, this.#full());
      return;
    }
    const onAnswer = (allowed: boolean): void => {
      if (accepted.readableEnded) accepted.destroy(); // the client has disconnected, and 'end' will not be emitted again
      if (allowed && accepted.destroyed) limit.release();
      if (accepted.destroyed) return;
      if (allowed) accepted.on('close', () => limit.release());
      this.#open(accepted, localPort, allowed ? undefined : this.#full());
    };
    const answer = limit.acquire();
    if (typeof answer === 'boolean') {
      onAnswer(answer);
      return;
    }
    const { deadlines } = this.#options;
    const timeout = deadlines.set(ANSWER_TIMEOUT_MS, () => {
      this.#waiting.delete(accepted);
      onAnswer(false);
    });
    this.#waiting.add(accepted);
    this.#pendingCount += 1;
    void answer.then((allowed) => {
      this.#pendingCount -= 1;
      deadlines.clear(timeout);
      if (this.#waiting.delete(accepted)) onAnswer(allowed);
      else if (allowed) limit.release(); // the client has disconnected, or the answer came too late
    });
  }

  #full(): NoriaError {
    const detail = `${this.#options.maxConnections} client connections are open; maxConnections allows no more`;
    return new NoriaError('too-many-connections', detail);
  }

  #open(accepted: Socket, localPort: number, refusal: NoriaError | undefined): void {
    const { bus, clock } = this.#options;
    if (refusal !== undefined && this.#refused.size >= MAX_REFUSED_OPEN) {
      accepted.destroy();
      return;
    }
    const connection = new ClientConnection(accepted, localPort, this.#options, this.#secureContext);
    connection.onClosed = this.#onClosed;
    this.#connections.add(connection);
    if (bus.hasSubscribers('request.grew')) this.#growthTimer ??= clock.after(SECOND_MS, this.#reportGrowth);
    if (refusal !== undefined) {
      this.#refused.add(connection);
      connection.refusalError = refusal;
    }
    connection.readFirst((first) => this.#serve(first, connection));
  }

  readonly #onClosed = (connection: ClientConnection): void => {
    this.#connections.delete(connection);
    this.#refused.delete(connection);
    if (this.#connections.size > 0) return;
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  };

  readonly #reportGrowth = (): void => {
    for (const connection of this.#connections.all()) connection.reportGrowth();
    this.#growthTimer =
      this.#connections.size === 0 ? undefined : this.#options.clock.after(SECOND_MS, this.#reportGrowth);
  };

  #serve(first: Buffer, connection: ClientConnection): void {
    const version = SOCKS_VERSIONS.get(first[0]);
    const protocol: ListenerProtocol = version === undefined ? 'http' : `socks${version}`;
    if (!this.#options.protocols.includes(protocol)) {
      const reason = `this listener does not accept ${protocol}`;
      connection.refusalError ??= refusalError('not-implemented', reason);
    }
    if (version === undefined) serveHttp(first, connection);
    else serveSocks(first, version, connection);
  }
}

function secureContext(listener: string, { cert, key }: TlsMaterial): SecureContext {
  try {
    return createSecureContext({ cert, key });
  } catch (cause) {
    const message = `listener ${listener}: the certificate or key cannot be used`;
    throw new NoriaError('bad-config', message, { cause });
  }
}

function ignoreError(): void {
  // ignored: 'close' follows every error
}

/**
 * @param onListening - called before the server can accept. Must add handlers of 'connection' and of 'error', for
 * example for a lack of file descriptors.
 */
export async function bind(
  address: ListenAddress,
  allowNonLoopback: boolean,
  onListening: (server: Server) => void,
): Promise<Server[]> {
  if (address.kind === 'fd')
    return [await bindOne({ fd: address.fd }, `fd:${address.fd}`, allowNonLoopback, onListening)];
  const { host, port: firstPort, lastPort = firstPort } = address;
  const servers: Server[] = [];
  try {
    for (let port = firstPort; port <= lastPort; port += 1) {
      const name = formatHostPort(host, port);
      servers.push(await bindOne({ host, port }, name, allowNonLoopback, onListening));
    }
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  return servers;
}

export function boundAddress(server: Server): BoundAddress {
  const address = server.address();
  return address === null || typeof address === 'string'
    ? { host: address ?? '', port: 0 } // only a Unix socket has a text as its address
    : { host: address.address, port: address.port };
}

function bindOne(
  where: { readonly host: string; readonly port: number } | { readonly fd: number },
  name: string,
  allowNonLoopback: boolean,
  onListening: (server: Server) => void,
): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => reject(listenFailure(name, error));
    server.once('error', onError);
    server.listen({ ...where, exclusive: false }, () => {
      server.off('error', onError);
      const { host } = boundAddress(server);
      if (!allowNonLoopback && host !== '' && !isLoopbackAddress(host)) {
        server.close();
        const message = `cannot listen on ${name} without users, because other machines can reach this address; add users, or listen on 127.0.0.1`;
        reject(new NoriaError('bad-config', message));
        return;
      }
      onListening(server);
      resolve(server);
    });
  });
}
