/**
 * One listener of the configuration: its listening sockets, its limits, and the client connections that it accepted.
 * The first byte of a connection selects the protocol: 5 and 4 are SOCKS, everything else is HTTP. With TLS, the first
 * decrypted byte selects the protocol. Owns the servers and the accepted sockets. Closing a client's socket also ends
 * its request or tunnel.
 */
import type { Server, Socket } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import { NoriaError } from '../core/faults.ts';
import type { BoundAddress, ListenAddress } from '../core/listen-address.ts';
import { LiveList } from '../core/live-list.ts';
import type { ListenerProtocol } from '../core/protocol.ts';
import { AdmissionQueue, type ConnectionLimit } from './admission-queue.ts';
import { bind, boundAddress } from './bind.ts';
import { ClientConnection, type ConnectionOptions } from './client-connection.ts';
import { serveHttp } from './http/http-connection.ts';
import { serveSocks } from './socks/handshake.ts';

/** The certificate that a listener with TLS presents to its clients. */
interface TlsMaterial {
  /** The certificate in PEM format, including the chain. */
  readonly cert: string | Buffer;
  /** The private key in PEM format. */
  readonly key: string | Buffer;
}

export interface ListenerOptions extends ConnectionOptions {
  readonly addresses: readonly ListenAddress[];
  readonly protocols: readonly ListenerProtocol[];
  /** Present if clients connect to the proxy with TLS. */
  readonly tls?: TlsMaterial;
  readonly maxConnections: number;
  /**
   * Present if several processes share one connection limit. The shared limit replaces the local count of connections.
   */
  readonly sharedLimit?: ConnectionLimit;
  /** Whether the listener may have addresses that other machines can reach. False for a listener without users. */
  readonly allowNonLoopback: boolean;
}

/**
 * The maximum number of refused connections that stay open to receive a reply. Further refused connections are closed
 * without a reply.
 */
const MAX_REFUSED_OPEN = 64;
const SOCKS_VERSIONS = new Map<number | undefined, 4 | 5>([
  [4, 4],
  [5, 5],
]);

/**
 * Opens a listener.
 * @throws NoriaError `listen-failed` if an address cannot be bound; `bad-config` if the TLS material is unusable, or if
 * other machines can reach an address and that is not allowed. Before it throws, it closes everything that it has
 * opened.
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
  /** The addresses to bind. The assigned port replaces port 0, so that `listen` after `stop` uses the same port. */
  #listenAddresses: readonly ListenAddress[];
  #addresses: readonly BoundAddress[] = [];
  readonly #connections = new LiveList<ClientConnection>();
  readonly #admissionQueue: AdmissionQueue | undefined;
  /** Called when the last connection has closed. */
  readonly #onEmpty: (() => void)[] = [];
  /** The open connections that noria refuses. */
  readonly #refused = new Set<ClientConnection>();
  #secureContext: SecureContext | undefined;
  #closing: Promise<void> | undefined;

  /** @throws NoriaError `bad-config` if the TLS material cannot be used. */
  constructor(options: ListenerOptions) {
    const { name, addresses, tls, sharedLimit, deadlines } = options;
    this.name = name;
    this.#options = options;
    this.#listenAddresses = addresses;
    if (tls !== undefined) this.#secureContext = secureContext(name, tls);
    if (sharedLimit !== undefined) this.#admissionQueue = new AdmissionQueue(sharedLimit, deadlines);
  }

  /** The bound addresses, in the order of the configured addresses. */
  get addresses(): readonly BoundAddress[] {
    return this.#addresses;
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  /**
   * Listens on all addresses; no-op if it already listens. A call after `stop` uses the same addresses and ports again.
   * @throws NoriaError `listen-failed` if an address cannot be bound, for example because another process uses it. The
   * listener is then stopped.
   */
  async listen(): Promise<void> {
    if (this.#servers.length > 0) return;
    const { allowNonLoopback } = this.#options;
    const assigned: ListenAddress[] = [];
    const bound: BoundAddress[] = [];
    try {
      for (const address of this.#listenAddresses) {
        const servers = await bind(address, {
          allowNonLoopback,
          onListening: (server) => this.#acceptFrom(server),
        });
        this.#servers.push(...servers);
        const addresses = servers.map(boundAddress);
        bound.push(...addresses);
        const anyPort = address.kind === 'tcp' && address.port === 0;
        assigned.push(
          ...(anyPort ? addresses.map(({ port }) => ({ ...address, port, lastPort: port })) : [address]),
        );
      }
    } catch (error) {
      this.stop();
      throw error;
    }
    this.#listenAddresses = assigned;
    this.#addresses = bound;
  }

  /** Stops listening and frees its addresses. Open connections continue. Idempotent. */
  stop(): void {
    for (const server of this.#servers.splice(0)) server.close();
  }

  /**
   * Checks a new certificate. Returns a function that makes new connections use it.
   * @throws NoriaError `bad-config` if the certificate is unusable.
   */
  prepareTls(material: TlsMaterial): () => void {
    const context = secureContext(this.name, material);
    return () => {
      this.#secureContext = context;
    };
  }

  /** Stops accepting and closes idle connections. Resolves when all requests in progress have ended. */
  async drain(): Promise<void> {
    const stopped = this.#stopAccepting();
    for (const connection of this.#connections.all()) connection.drain();
    await stopped;
  }

  /** Closes all connections now and resolves when they have closed. A second call returns the same promise. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const stopped = this.#stopAccepting();
    for (const connection of this.#connections.all()) connection.destroy();
    await stopped;
  }

  /** Resolves when every server and every connection has closed. */
  async #stopAccepting(): Promise<void> {
    this.#admissionQueue?.clear();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
    // When a server has closed, the 'close' handlers of its connections may not have run yet. So noria waits for the
    // last connection.
    if (this.#connections.size > 0) await new Promise<void>((resolve) => this.#onEmpty.push(resolve));
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

  /** @param localPort - the port that the client connected to. Reading it from the socket would cost a system call. */
  #accept(accepted: Socket, localPort: number): void {
    accepted.on('error', ignoreError);
    if (this.#admissionQueue !== undefined && this.#admits(accepted)) {
      this.#admissionQueue.request(accepted, (allowed) => this.#open(accepted, localPort, allowed));
      return;
    }
    const openCount = this.#connections.size - this.#refused.size;
    this.#open(accepted, localPort, openCount < this.#options.maxConnections);
  }

  /** Reading the address costs a system call, so it is read only when needed. A closed connection has no address. */
  #admits(accepted: Socket): boolean {
    const { access } = this.#options;
    return access.admitsAll || access.admits(accepted.remoteAddress);
  }

  #open(accepted: Socket, localPort: number, withinLimit: boolean): void {
    const refusal = this.#refusalFor(accepted, withinLimit);
    if (refusal !== undefined && this.#refused.size >= MAX_REFUSED_OPEN) {
      accepted.destroy();
      return;
    }
    const connection = new ClientConnection(accepted, localPort, this.#options);
    connection.onClosed = this.#onClosed;
    this.#connections.add(connection);
    if (refusal !== undefined) {
      this.#refused.add(connection);
      connection.refuseAll(refusal);
    }
    if (this.#secureContext !== undefined) connection.startTls(this.#secureContext);
    connection.readFirst((first) => this.#serve(first, connection));
  }

  #refusalFor(accepted: Socket, withinLimit: boolean): NoriaError | undefined {
    if (!this.#admits(accepted)) {
      const reason = 'the allow list of the listener does not contain the address of this client';
      return new NoriaError('forbidden', reason, { context: { reason } });
    }
    if (withinLimit) return undefined;
    return new NoriaError(
      'too-many-connections',
      `${this.#options.maxConnections} client connections are open; maxConnections allows no more`,
    );
  }

  readonly #onClosed = (connection: ClientConnection): void => {
    this.#connections.delete(connection);
    this.#refused.delete(connection);
    if (this.#connections.size > 0) return;
    for (const resolve of this.#onEmpty.splice(0)) resolve();
  };

  #serve(first: Buffer, connection: ClientConnection): void {
    const version = SOCKS_VERSIONS.get(first[0]);
    const protocol: ListenerProtocol = version === undefined ? 'http' : `socks${version}`;
    if (!this.#options.protocols.includes(protocol)) {
      const reason = `this listener does not accept ${protocol}`;
      connection.refuseAll(new NoriaError('not-implemented', reason, { context: { reason } }));
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
