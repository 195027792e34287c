/**
 * One proxy of the sandbox. It listens on its address, connects from its exit, and closes at the end of its life.
 *
 * Owns its listening socket, the accepted connections and the expiry timer. ConnectionServer serves the connections.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Exit } from './exits.ts';
import type { SandboxLocation } from './locations.ts';
import type { ProxyProtocol } from './operations.ts';
import type { ClientLogin } from './proxy-request.ts';
import type { Behaviour } from './scenario.ts';

/** What the service knows about a proxy in addition to its address. */
export interface MemberTraits {
  readonly protocol: ProxyProtocol;
  /** The protocol in the answers of the free product: `https` for an HTTP proxy that supports CONNECT. */
  readonly label: string;
  readonly location: SandboxLocation;
  /** Whether it is a reverse proxy, whose remaining life the service reports as unknown. */
  readonly reverse: boolean;
  /** The online time that answers report for the proxy when it is new. Later answers add the age of the proxy. */
  readonly onlineMs: number;
  /** Free product: the anonymity, from 1 (high) to 4 (none), or 5 (unknown). */
  readonly level: number;
  /** Free product: when the service last checked the proxy, how fast it answered, and how long it has been alive. */
  readonly checkedMinutes: number;
  readonly responseSeconds: number;
  readonly aliveHours: number;
  /** This field and the next two are only in answers of the exclusive product. */
  readonly serverId: string;
  readonly lastScore: number;
  readonly yesterdayScore: number;
}

interface MemberOptions {
  readonly id: string;
  readonly instance: string;
  readonly exit: Exit;
  readonly listenHost: string;
  readonly traits: MemberTraits;
  readonly lifeMs: number;
  /** How long open connections may continue after the member's end of life. */
  readonly graceMs: number;
  readonly behaviour: Behaviour;
  /** The credentials that clients must send; undefined if they need none. */
  readonly login?: ClientLogin | undefined;
  readonly clock: Clock;
  readonly serve: (socket: Socket, member: RunningMember) => void;
  /** Called when the member's life has ended and its connections are closed. */
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

  /** The port; 0 until the member listens. */
  get port(): number {
    return this.#port;
  }

  get behaviour(): Behaviour {
    return this.#behaviour;
  }

  /** Whether the member counts towards the maximum number of members. */
  get countsAsProxy(): boolean {
    return this.#phase === 'opening' || this.#phase === 'alive';
  }

  get isAlive(): boolean {
    return this.#phase === 'alive';
  }

  get connections(): number {
    return this.#sockets.size;
  }

  get accepted(): number {
    return this.#accepted;
  }

  /** The number of bytes received from clients plus the number of bytes sent to clients. */
  get bytes(): number {
    let sum = this.#closedBytes;
    for (const socket of this.#sockets) sum += socket.bytesRead + socket.bytesWritten;
    return sum;
  }

  /** The actual remaining life, even if the service reports it as unknown. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAt - this.#options.clock.monotonic());
  }

  get onlineMs(): number {
    return this.traits.onlineMs + this.#options.clock.monotonic() - this.#createdAt;
  }

  /**
   * Starts to listen; then the member's life begins. With the behaviour `refuse`, the member listens only to get a
   * port, and then stops listening.
   *
   * @throws the error of the operating system if it cannot listen; the member is then closed.
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

  /** Sets the behaviour for new connections. Open connections continue as before. */
  async setBehaviour(behaviour: Behaviour): Promise<void> {
    const refused = this.#behaviour.how === 'refuse';
    this.#behaviour = behaviour;
    if (!this.isAlive || refused === (behaviour.how === 'refuse')) return;
    if (refused) await this.#listen(this.#port);
    else this.#stopListening();
  }

  /** Ends the member's life now. Resolves when its connections are closed. Idempotent. */
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
      server.once('close', () => resolve()); // closing the member before it listens also ends this wait
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
      socket.destroy(); // this connection was already in the kernel's queue when the member's life ended
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

/** Resolves on `close`. (`events.once` would reject on an error.) */
function closed(emitter: Server | Socket): Promise<void> {
  return new Promise((resolve) => emitter.once('close', () => resolve()));
}
