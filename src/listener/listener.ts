/**
 * One listener of the configuration: its addresses, its limits, and every client connection it has accepted.
 *
 * The first byte decides the protocol: 5 and 4 are SOCKS, all else is HTTP; with TLS it is the first byte inside. Owns
 * the servers, the accepted sockets and the HTTP front; what a front or a tunnel holds of a connection ends with it.
 */

import type { Server, Socket } from 'node:net';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { NoriaError } from '../core/faults.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import { LiveList } from '../core/live-list.ts';
import type { ListenerProtocol } from '../core/protocol.ts';
import { type BoundAddress, bind, boundAddress } from './bind.ts';
import { ClientConnection, type FrontOptions } from './client-connection.ts';
import { AdmissionQueue, type ConnectionLimit } from './connection-limit.ts';
import { awaitFirst } from './first-bytes.ts';
import { createHttpFront, type HttpServer } from './http/server.ts';
import { serveSocks } from './socks/handshake.ts';

/** What a TLS listener shows its clients. */
export interface TlsMaterial {
  /** PEM, the chain included. */
  readonly cert: string | Buffer;
  /** PEM. */
  readonly key: string | Buffer;
}

/** One listener of the configuration, its addresses parsed. */
export interface ListenerOptions extends FrontOptions {
  readonly addresses: readonly ListenAddress[];
  readonly protocols: readonly ListenerProtocol[];
  /** Clients speak TLS to the proxy. */
  readonly tls?: TlsMaterial;
  readonly maxConnections: number;
  /** Where several processes share that limit: asked for each connection, instead of counting them here. */
  readonly sharedLimit?: ConnectionLimit;
  /** Whether an address that other machines can reach may be bound: false where no users are configured. */
  readonly allowNonLoopback: boolean;
}

/** A listener that listens. */
export interface Listener {
  readonly name: string;
  /** What is really bound, in the order of the addresses. */
  readonly addresses: readonly BoundAddress[];
  /** Client connections open at this moment. */
  readonly connectionCount: number;
  /**
   * Reads another certificate and changes nothing yet: connections use it once the result has been called.
   *
   * @throws NoriaError `bad-config` when it cannot be used.
   */
  prepareTls(material: TlsMaterial): () => void;
  /** Gives its addresses up, so that it takes no new connections; those it has know nothing of it. Safe to call twice. */
  stop(): void;
  /**
   * Listens again where it did before `stop`; nothing happens when it listens.
   *
   * @throws NoriaError `listen-failed` when somebody else has an address by now; it remains stopped.
   */
  listenAgain(): Promise<void>;
  /** Takes no new connections, closes idle ones, and resolves when those with a request under way have ended. */
  drain(): Promise<void>;
  /** Ends everything now. Resolves when it has ended; calling it again joins the first call. */
  close(): Promise<void>;
}

/**
 * Opens a listener that already listens.
 *
 * @throws NoriaError `listen-failed` for an address that cannot be had, `bad-config` for TLS material that cannot be
 *   used or an address that must not be open to others. Whatever was opened by then is closed.
 */
export async function openListener(options: ListenerOptions): Promise<Listener> {
  const listener = new OpenListener(options);
  try {
    for (const address of options.addresses) await listener.listen(address);
  } catch (error) {
    await listener.close();
    throw error;
  }
  return listener;
}

/** Refused connections that are being told so, at one time; more than that are closed without a word. */
const MAX_TOLD = 64;
const SOCKS_VERSIONS = new Map<number | undefined, 4 | 5>([
  [4, 4],
  [5, 5],
]);

class OpenListener implements Listener {
  readonly #options: ListenerOptions;
  readonly #http: HttpServer;
  readonly #servers: Server[] = [];
  readonly addresses: BoundAddress[] = [];
  /** Those of the options; a port that was any is the one it got: clients know it by now. */
  readonly #places: ListenAddress[] = [];
  readonly #connections = new LiveList<ClientConnection>();
  readonly #waiting: AdmissionQueue | undefined;
  /** Who waits for the last connection to close. */
  readonly #whenEmpty: (() => void)[] = [];
  #toldCount = 0;
  #secureContext: SecureContext | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: ListenerOptions) {
    this.#options = options;
    if (options.tls !== undefined) this.#secureContext = secureContext(options.name, options.tls);
    this.#http = createHttpFront(options);
    if (options.sharedLimit !== undefined)
      this.#waiting = new AdmissionQueue(options.sharedLimit, options.deadlines);
  }

  get name(): string {
    return this.#options.name;
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  async listen(address: ListenAddress): Promise<void> {
    const servers = await this.#bind(address);
    const bound = servers.map(boundAddress);
    this.#servers.push(...servers);
    this.addresses.push(...bound);
    const wantsAny = address.kind === 'tcp' && address.port === 0;
    this.#places.push(
      ...(wantsAny ? bound.map(({ port }) => ({ ...address, port, lastPort: port })) : [address]),
    );
  }

  prepareTls(material: TlsMaterial): () => void {
    const context = secureContext(this.name, material);
    return () => {
      this.#secureContext = context;
    };
  }

  stop(): void {
    for (const server of this.#servers.splice(0)) server.close(); // its connections are counted here
  }

  async listenAgain(): Promise<void> {
    if (this.#servers.length > 0) return;
    try {
      for (const place of this.#places) this.#servers.push(...(await this.#bind(place)));
    } catch (error) {
      this.stop();
      throw error;
    }
  }

  #bind(address: ListenAddress): Promise<Server[]> {
    return bind(address, {
      allowNonLoopback: this.#options.allowNonLoopback,
      onConnection: (socket, localPort) => this.#accept(socket, localPort),
      onAcceptError: ({ message: detail }) => {
        const { name, bus } = this.#options;
        bus.emit('client.refused', {
          listener: name,
          protocol: 'unknown',
          code: 'too-many-connections',
          detail,
        });
      },
    });
  }

  async drain(): Promise<void> {
    const stopped = this.#stopAccepting();
    for (const connection of this.#connections.all()) connection.drain();
    await stopped;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const stopped = this.#stopAccepting();
    this.#http.close();
    for (const connection of this.#connections.all()) connection.destroy();
    await stopped;
  }

  /** Resolves when every server and every connection has closed. */
  async #stopAccepting(): Promise<void> {
    this.#waiting?.clear();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
    // A server counts a connection as closed as soon as it is destroyed, before what hangs on it has been told.
    if (this.#connections.size > 0) await new Promise<void>((resolve) => this.#whenEmpty.push(resolve));
  }

  #accept(accepted: Socket, localPort: number): void {
    accepted.on('error', ignored);
    if (this.#waiting !== undefined && this.#admits(accepted)) {
      this.#waiting.ask(accepted, (permitted) => this.#admit(accepted, localPort, permitted));
      return;
    }
    const openCount = this.#connections.size - this.#toldCount;
    this.#admit(accepted, localPort, openCount < this.#options.maxConnections);
  }

  /** The kernel is asked for the address only where it matters. One that has left already has none. */
  #admits(accepted: Socket): boolean {
    const { access } = this.#options;
    return access.admitsAll || access.admits(accepted.remoteAddress);
  }

  #admit(accepted: Socket, localPort: number, hasRoom: boolean): void {
    const refusal = this.#refusalFor(accepted, hasRoom);
    if (refusal !== undefined && this.#toldCount >= MAX_TOLD) {
      accepted.destroy();
      return;
    }
    const connection = new ClientConnection(accepted, localPort, this.#options);
    this.#count(connection, accepted, refusal);
    if (refusal !== undefined) connection.refuseAll(refusal);
    this.#read(connection, accepted);
  }

  #refusalFor(accepted: Socket, hasRoom: boolean): NoriaError | undefined {
    if (!this.#admits(accepted)) {
      const context = { reason: 'The address of this client is not in allow.' };
      return new NoriaError('forbidden', 'this client address is not allowed', { context });
    }
    if (hasRoom) return undefined;
    return new NoriaError('too-many-connections', `${this.#options.maxConnections} connections are open`);
  }

  #count(connection: ClientConnection, accepted: Socket, refusal: NoriaError | undefined): void {
    this.#connections.add(connection);
    if (refusal !== undefined) this.#toldCount += 1;
    accepted.on('close', () => {
      this.#connections.delete(connection);
      if (refusal !== undefined) this.#toldCount -= 1;
      if (this.#connections.size === 0) for (const resolve of this.#whenEmpty.splice(0)) resolve();
    });
  }

  #read(connection: ClientConnection, accepted: Socket): void {
    const socket = this.#secureContext === undefined ? accepted : openTls(accepted, this.#secureContext);
    connection.speaksThrough(socket);
    awaitFirst(socket, connection, (first) => this.#serve(socket, first, connection));
  }

  #serve(socket: Socket, first: Buffer, connection: ClientConnection): void {
    const version = SOCKS_VERSIONS.get(first[0]);
    const protocol: ListenerProtocol = version === undefined ? 'http' : `socks${version}`;
    if (!this.#options.protocols.includes(protocol)) {
      const context = { reason: `This listener does not speak ${protocol}.` };
      connection.refuseAll(
        new NoriaError('not-implemented', `${protocol} is not among the protocols`, { context }),
      );
    }
    if (version === undefined) this.#http.serve(socket, first, connection);
    else serveSocks(socket, first, version, connection);
  }
}

/** A TLS server's side on top of an accepted connection. Closing it closes that one too. */
function openTls(accepted: Socket, context: SecureContext): TLSSocket {
  const socket = new TLSSocket(accepted, { isServer: true, secureContext: context });
  socket.on('error', ignored);
  return socket;
}

function secureContext(listener: string, { cert, key }: TlsMaterial): SecureContext {
  try {
    return createSecureContext({ cert, key });
  } catch (cause) {
    throw new NoriaError('bad-config', `listener ${listener}: its certificate or key cannot be used`, {
      cause,
    });
  }
}

/** ignored: 'close' follows every error, and ends what hangs on the socket. */
function ignored(): void {}
