/**
 * One proxy that really works: it listens on its address, leaves by its exit, and ends when its life is over.
 *
 * Owns its listening socket, the connections it accepted and the timer of its end. What it does with a connection is
 * its crew's business.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { closed } from './closed.ts';
import type { Exit } from './exits.ts';
import type { SandboxLocation } from './locations.ts';
import type { Behaviour } from './member-behaviour.ts';
import type { ProxyProtocol } from './operations.ts';
import type { ClientLogin } from './proxy-request.ts';

/** What the service says of a proxy, beside its address. */
export interface MemberTraits {
  readonly protocol: ProxyProtocol;
  /** The free product's label: `https` for an HTTP proxy that is known to CONNECT. */
  readonly label: string;
  readonly location: SandboxLocation;
  /** A reverse proxy: nobody can tell how long it lives. */
  readonly reverse: boolean;
  /** How long it had been online when it was made. */
  readonly onlineMs: number;
  /** Free product: 1 high anonymity … 5 unknown. */
  readonly level: number;
  /** Free product: minutes since it was last verified, seconds it took to answer, hours it has been alive. */
  readonly checkedMinutes: number;
  readonly responseSeconds: number;
  readonly aliveHours: number;
  /** Exclusive pool. */
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
  /** Tunnels of an ended member are cut this much later. */
  readonly graceMs: number;
  readonly behaviour: Behaviour;
  /** Asked of clients; absent: terminal-IP authorization, which needs none. */
  readonly login?: ClientLogin | undefined;
  readonly clock: Clock;
  readonly serve: (socket: Socket, member: RunningMember) => void;
  /** Its life is over, and its connections are cut. */
  readonly onGone: (member: RunningMember) => void;
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
  readonly #madeAt: number;
  #port = 0;
  #server: Server | undefined;
  #behaviour: Behaviour;
  #endsAt: number;
  #timer: Disposable | undefined;
  #phase: 'opening' | 'alive' | 'draining' | 'gone' = 'opening';
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
    this.#madeAt = options.clock.monotonic();
    this.#endsAt = this.#madeAt + options.lifeMs;
  }

  /** 0 until it is open. */
  get port(): number {
    return this.#port;
  }

  get behaviour(): Behaviour {
    return this.#behaviour;
  }

  /** It counts among the proxies that exist: it opens, or lives. */
  get holdsPlace(): boolean {
    return this.#phase === 'opening' || this.#phase === 'alive';
  }

  /** It has begun its life and not ended it. */
  get isOpen(): boolean {
    return this.#phase === 'alive';
  }

  /** Connections that it has now. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** Connections that it ever accepted. */
  get accepted(): number {
    return this.#accepted;
  }

  /** Bytes that clients and it exchanged, both ways. */
  get bytes(): number {
    let sum = this.#closedBytes;
    for (const socket of this.#sockets) sum += socket.bytesRead + socket.bytesWritten;
    return sum;
  }

  /** What is left of its life, whether or not the service would tell. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAt - this.#options.clock.monotonic());
  }

  get onlineMs(): number {
    return this.traits.onlineMs + this.#options.clock.monotonic() - this.#madeAt;
  }

  /**
   * Starts listening, and its life. A member that refuses has a port too: one that is closed.
   *
   * @throws the system's error when it cannot listen; it is ended then.
   */
  async open(): Promise<void> {
    const { clock, lifeMs } = this.#options;
    try {
      await this.#listen(0);
    } catch (error) {
      this.#end(0);
      throw error;
    }
    if (!this.holdsPlace) return this.#stopListening(); // closed while it opened
    this.#phase = 'alive';
    if (this.#behaviour.how === 'refuse') this.#stopListening();
    this.#endsAt = clock.monotonic() + lifeMs;
    this.#timer = clock.after(lifeMs, () => this.#end(this.#options.graceMs));
  }

  /** Behaves so from the next connection on. Connections that it has stay. */
  async behave(behaviour: Behaviour): Promise<void> {
    const refused = this.#behaviour.how === 'refuse';
    this.#behaviour = behaviour;
    if (!this.isOpen || refused === (behaviour.how === 'refuse')) return;
    if (refused) await this.#listen(this.#port);
    else this.#stopListening();
  }

  /** Ends its life now and cuts its connections, whatever grace it had. Resolves when they are closed; safe to call twice. */
  async close(): Promise<void> {
    const server = this.#server;
    const closing = [...this.#sockets].map(closed);
    if (server?.listening) closing.push(closed(server));
    this.#end(0);
    this.#leave();
    await Promise.all(closing);
  }

  #end(graceMs: number): void {
    if (!this.holdsPlace) return;
    this.#phase = 'draining';
    this.#timer?.[Symbol.dispose]();
    this.#stopListening();
    if (graceMs === 0) this.#leave();
    else this.#timer = this.#options.clock.after(graceMs, () => this.#leave());
  }

  #leave(): void {
    if (this.#phase === 'gone') return;
    this.#phase = 'gone';
    this.#timer?.[Symbol.dispose]();
    for (const socket of this.#sockets) socket.destroy();
    this.#options.onGone(this);
  }

  #listen(port: number): Promise<void> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    this.#server = server;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.once('close', () => resolve()); // closed before it listened
      server.listen(port, this.host, () => {
        const address = server.address();
        if (typeof address === 'object' && address !== null) this.#port = address.port;
        resolve();
      });
    });
  }

  /** Takes effect at once; what it accepted is ended by `#leave`. */
  #stopListening(): void {
    this.#server?.close();
    this.#server = undefined;
  }

  #accept(socket: Socket): void {
    socket.on('error', () => {}); // ignored: a client that leaves hard ends its own connection only
    if (!this.isOpen) {
      socket.destroy(); // it was still in the backlog
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
