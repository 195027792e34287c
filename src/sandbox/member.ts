/**
 * One proxy that really works: it listens on its address, leaves by its exit, and ends when its life is over.
 *
 * Owns its listening socket, the connections it accepted and the timer of its end. What it does with a connection is
 * its crew's business.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Exit } from './exits.ts';
import type { Login } from './handshakes.ts';
import type { ProxyProtocol } from './operations.ts';
import type { Place } from './places.ts';
import type { Temper } from './temper.ts';

/** What the service says of a proxy, beside its address. */
export interface Traits {
  readonly protocol: ProxyProtocol;
  /** The free product's label: `https` for an HTTP proxy that is known to CONNECT. */
  readonly label: string;
  readonly place: Place;
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
  readonly traits: Traits;
  readonly lifeMs: number;
  /** Tunnels of an ended member are cut this much later. */
  readonly graceMs: number;
  readonly temper: Temper;
  /** Asked of clients; absent: terminal-IP authorization, which needs none. */
  readonly login?: Login | undefined;
  readonly clock: Clock;
  readonly serve: (socket: Socket, member: Member) => void;
  readonly onEnd: (member: Member) => void;
}

export class Member {
  readonly id: string;
  readonly instance: string;
  readonly exit: Exit;
  readonly host: string;
  readonly traits: Traits;
  readonly login: Login | undefined;
  readonly #options: MemberOptions;
  readonly #sockets = new Set<Socket>();
  readonly #madeAt: number;
  #port = 0;
  #server: Server | undefined;
  #temper: Temper;
  #endsAt: number;
  #timer: Disposable | undefined;
  #phase: 'opening' | 'alive' | 'ended' = 'opening';
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
    this.#temper = options.temper;
    this.#madeAt = options.clock.monotonic();
    this.#endsAt = this.#madeAt + options.lifeMs;
  }

  /** 0 until it is open. */
  get port(): number {
    return this.#port;
  }

  get temper(): Temper {
    return this.#temper;
  }

  get alive(): boolean {
    return this.#phase !== 'ended';
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

  /** Starts listening, and its life. A member that refuses has a port too: one that is closed. */
  async open(): Promise<void> {
    await this.#listen(0);
    if (!this.alive) return this.#stopListening();
    this.#phase = 'alive';
    if (this.#temper.how === 'refuse') await this.#stopListening();
    this.#endsAt = this.#options.clock.monotonic() + this.#options.lifeMs;
    this.#timer = this.#options.clock.after(this.#options.lifeMs, () => void this.end());
  }

  /** Behaves so from the next connection on. Connections that it has stay. */
  async behave(temper: Temper): Promise<void> {
    const refused = this.#temper.how === 'refuse';
    this.#temper = temper;
    if (!this.alive || refused === (temper.how === 'refuse')) return;
    await (refused ? this.#listen(this.#port) : this.#stopListening());
  }

  /** The end of its life, now: no new connection, and those it has are cut after the grace. Safe to call twice. */
  async end(graceMs = this.#options.graceMs): Promise<void> {
    if (!this.alive) return;
    this.#phase = 'ended';
    this.#timer?.[Symbol.dispose]();
    this.#options.onEnd(this);
    const stopped = this.#stopListening();
    if (graceMs === 0) this.cut();
    else this.#timer = this.#options.clock.after(graceMs, () => this.cut());
    await stopped;
  }

  /** Cuts every connection that it has. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Ends it and cuts everything. */
  async close(): Promise<void> {
    await this.end(0);
    this.#timer?.[Symbol.dispose]();
    this.cut();
  }

  #listen(port: number): Promise<void> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    this.#server = server;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, this.host, () => {
        const address = server.address();
        if (typeof address === 'object' && address !== null) this.#port = address.port;
        resolve();
      });
    });
  }

  #stopListening(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    server?.close(); // stops accepting at once; what it accepted is ended by `cut`
    return Promise.resolve();
  }

  #accept(socket: Socket): void {
    socket.on('error', () => {}); // ignored: a client that leaves hard ends its own connection only
    if (!this.alive || this.#temper.how === 'refuse') {
      socket.destroy(); // it was in the backlog
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
