/**
 * A vendor's gateway: one address for many exits. A word in the user name chooses the exit, and the same word gets the
 * same exit again. Each known vendor writes the word in another way.
 */
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { RequestError } from 'proxy-chain';
import type { Exit, Exits } from './exits.ts';
import { HttpProxy } from './member-server.ts';

/** The user names of each vendor. The first group is the word that chooses the exit. */
const GRAMMARS: Readonly<Record<string, RegExp>> = {
  brightdata: /^brd-customer-\w+-zone-\w+(?:-country-[a-z]{2})?-session-(\w+)$/,
  oxylabs: /^customer-\w+(?:-cc-[A-Z]{2})?-sessid-(\w+)(?:-sesstime-\d+)?$/,
  decodo: /^user-\w+(?:-country-[a-z]{2})?-session-(\w+)(?:-sessionduration-\d+)?$/,
  soax: /^package-\w+(?:-country-[a-z]{2})?-sessionid-(\w+)-sessionlength-\d+$/,
  geonode: /^\w+(?:-country-[a-z]{2})?-session-(\w{1,25})(?:-lifetime-\d+)?$/,
  thordata: /^[\w-]+-sessid-(\w+)(?:-sesstime-\d+)?$/,
  massive: /^\w+-session-(\w{1,255})(?:-sessionttl-\d+)?$/,
  massive_isp: /^\w+-session-(\w{1,255})$/,
  pingnetwork: /^\w+(?:-cc-[A-Z]{2})?-session-(\w{6,15})(?:-lifetime-\d+)?$/,
  illusory: /^\w+(?:-country-[a-z]{2})?-session-(\w+)(?:-sesstime-\d+)?$/,
  dataimpulse: /^\w+?__(?:cr\.[a-z]{2};)?sessid\.(\w+)$/,
  '922proxy': /^[\w-]+-sessid-(\w+)(?:-sesstime-\d+)?$/,
};

/** Each account has a vendor, whose grammar its user names must have. */
const PASSWORD = 'gateway-';
const BAD_GATEWAY = 502;

export class Gateway {
  readonly vendors: readonly string[] = Object.keys(GRAMMARS);
  /** Whether the gateway answers 407 to every user name. */
  refusesAll = false;
  readonly sessions = new Map<string, Exit>();
  readonly #server: Server;
  readonly #host: string;
  readonly #exits: Exits;
  readonly #series: number;
  readonly #sockets = new Set<Socket>();
  readonly #ended = new Set<string>();

  constructor(exits: Exits, series: number, host: string) {
    this.#exits = exits;
    this.#host = host;
    this.#series = series;
    const proxy = new HttpProxy(exits, (username, password) => this.#exitFor(username, password));
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
      socket.on('error', () => {}); // ignored: the client is gone
      proxy.serve(socket);
    });
  }

  async open(): Promise<this> {
    this.#server.listen(0, this.#host);
    await once(this.#server, 'listening');
    return this;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  passwordOf(vendor: string): string {
    return PASSWORD + vendor;
  }

  /** From now on, an exit reaches no target, as after the loss of its machine. Ends all connections of the gateway. */
  endExit(address: string): void {
    this.#ended.add(address);
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((closed) => this.#server.close(closed));
  }

  #exitFor(username: string, password: string) {
    const vendor = password.startsWith(PASSWORD) ? password.slice(PASSWORD.length) : '';
    const session = GRAMMARS[vendor]?.exec(username)?.[1];
    if (session === undefined || this.refusesAll) return undefined;
    const exit = this.sessions.get(session) ?? this.#exits.next(this.#series);
    this.sessions.set(session, exit);
    if (this.#ended.has(exit.address)) throw new RequestError('the exit is gone', BAD_GATEWAY);
    return { exit, behaviour: { how: 'good' as const } };
  }
}
