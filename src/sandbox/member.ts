/**
 * One working proxy: it listens on its address, connects from its exit, and closes at the end of its life.
 *
 * Owns its listening socket, the connections that it accepted and the timer of its expiry. The connection server relays
 * what its clients send.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Exit } from './exits.ts';
import type { SandboxLocation } from './locations.ts';
import type { ProxyProtocol } from './operations.ts';
import type { ClientLogin } from './proxy-request.ts';
import type { Behaviour } from './scenario.ts';

/** What the service reports of a proxy in addition to its address. */
export interface MemberTraits {
  readonly protocol: ProxyProtocol;
  /** The free product's label: `https` for an HTTP proxy that supports CONNECT. */
  readonly label: string;
  readonly location: SandboxLocation;
  /** True for a reverse proxy, whose remaining life is unknown. */
  readonly reverse: boolean;
  /** How long the proxy claims to have been online when it was created. */
  readonly onlineMs: number;
  /** Free product: the level from 1 (high anonymity) to 5 (unknown). */
  readonly level: number;
  /** Free product: minutes since its last check, seconds until it answered, hours it has been alive. */
  readonly checkedMinutes: number;
  readonly responseSeconds: number;
  readonly aliveHours: number;
  /** Only for the exclusive pool. */
  readonly serverId: string;
  readonly lastScore: number;
  readonly yesterdayScore: number;
}

export interface MemberOptions {
  readonly id: string;
  readonly instance: string;
  readonly exit: Exit;
  readonly listenHost: string;
  readonly traits: MemberTraits;
  readonly lifeMs: number;
  /** How long the tunnels of the member stay open after the end of its life. */
  readonly graceMs: number;
  readonly behaviour: Behaviour;
  /** The credentials that clients need; undefined if the service authorises clients by their IP address. */
  readonly login?: ClientLogin | undefined;
  readonly clock: Clock;
  readonly serve: (socket: Socket, member: RunningMember) => void;
  /** Called when the member has expired and its connections are closed. */
  readonly onClosed: (member: RunningMember) => void;
}

export class RunningMember {
  readonly id: string;
  readonly instance: string;
  readonly exit: Exit;
  readonly host: string;
  readonly traits: MemberTraits;
  readonly login: ClientLogin | undefined;
  readonly #options: MemberOptions;
  readonly #sockets = new Set<Socket>();
  readonly #createdAt: number;
  #port = 0;
  #server: Server | undefined;
  #behaviour: Behaviour;
  #endsAt: number;
  #timer: Disposable | undefined;
  #phase: 'opening' | 'alive' | 'draining' | 'closed' = 'opening';
  #accepted = 0;
  #closedBytes = 0;

  constructor(options: MemberOptions) {
    this.id = options.id;
    this.instance = options.instance;
    this.exit = options.exit;
    this.host = options.listenHost;
    this.traits = options.traits;
    this.login = options.login;
    this.#options = options;
    this.#behaviour = options.behaviour;
    this.#createdAt = options.clock.monotonic();
    this.#endsAt = this.#createdAt + options.lifeMs;
  }

  /** The port; 0 until the member is open. */
  get port(): number {
    return this.#port;
  }

  get behaviour(): Behaviour {
    return this.#behaviour;
  }

  /** Whether the member counts as one of the proxies that the instance may have at a time. */
  get countsAsProxy(): boolean {
    return this.#phase === 'opening' || this.#phase === 'alive';
  }

  get isAlive(): boolean {
    return this.#phase === 'alive';
  }

  /** The number of open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** The number of connections accepted so far. */
  get accepted(): number {
    return this.#accepted;
  }

  /** The bytes to and from the member's clients. */
  get bytes(): number {
    let sum = this.#closedBytes;
    for (const socket of this.#sockets) sum += socket.bytesRead + socket.bytesWritten;
    return sum;
  }

  /** The remaining life, also if the service reports it as unknown. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAt - this.#options.clock.monotonic());
  }

  get onlineMs(): number {
    return this.traits.onlineMs + this.#options.clock.monotonic() - this.#createdAt;
  }

  /**
   * Starts listening, and with it the member's life. A member that refuses connections also listens first, to get a
   * port, and then closes the port.
   *
   * @throws the system's error if it cannot listen; the member is then closed.
   */
  async open(): Promise<void> {
    const { clock, lifeMs } = this.#options;
    try {
      await this.#listen(0);
    } catch (error) {
      this.#end(0);
      throw error;
    }
    if (!this.countsAsProxy) return this.#stopListening(); // the member was closed while it opened
    this.#phase = 'alive';
    if (this.#behaviour.how === 'refuse') this.#stopListening();
    this.#endsAt = clock.monotonic() + lifeMs;
    this.#timer = clock.after(lifeMs, () => this.#end(this.#options.graceMs));
  }

  /** Sets the behaviour from the next connection on. Open connections do not change. */
  async setBehaviour(behaviour: Behaviour): Promise<void> {
    const refused = this.#behaviour.how === 'refuse';
    this.#behaviour = behaviour;
    if (!this.isAlive || refused === (behaviour.how === 'refuse')) return;
    if (refused) await this.#listen(this.#port);
    else this.#stopListening();
  }

  /** Ends the member's life and closes its connections at once. Resolves when all are closed. Idempotent. */
  async close(): Promise<void> {
    const server = this.#server;
    const closing = [...this.#sockets].map(closed);
    if (server?.listening) closing.push(closed(server));
    this.#end(0);
    this.#closeSockets();
    await Promise.all(closing);
  }

  #end(graceMs: number): void {
    if (!this.countsAsProxy) return;
    this.#phase = 'draining';
    this.#timer?.[Symbol.dispose]();
    this.#stopListening();
    if (graceMs === 0) this.#closeSockets();
    else this.#timer = this.#options.clock.after(graceMs, () => this.#closeSockets());
  }

  #closeSockets(): void {
    if (this.#phase === 'closed') return;
    this.#phase = 'closed';
    this.#timer?.[Symbol.dispose]();
    for (const socket of this.#sockets) socket.destroy();
    this.#options.onClosed(this);
  }

  #listen(port: number): Promise<void> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    this.#server = server;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.once('close', () => resolve()); // the member was closed before it listened
      server.listen(port, this.host, () => {
        const address = server.address();
        if (typeof address === 'object' && address !== null) this.#port = address.port;
        resolve();
      });
    });
  }

  #stopListening(): void {
    this.#server?.close();
    this.#server = undefined;
  }

  #accept(socket: Socket): void {
    socket.on('error', () => {}); // ignored: the error ends only this connection
    if (!this.isAlive) {
      socket.destroy(); // the connection was in the backlog
      return;
    }
    this.#accepted += 1;
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#closedBytes += socket.bytesRead + socket.bytesWritten;
    });
    this.#options.serve(socket, this);
  }
}

/** Resolves on `close`, also if an error comes first. `events.once` would reject on that error. */
function closed(emitter: Server | Socket): Promise<void> {
  return new Promise((resolve) => emitter.once('close', () => resolve()));
}
