/**
 * The ways out: loopback addresses that members listen on and dial from, and the only place where the sandbox dials.
 *
 * Each member gets an address of its own in 127.0.0.0/8, so that a target sees which member it was. Where a machine
 * has 127.0.0.1 alone (macOS), members share it and differ by port; the target is then told the exit by `seenAs`.
 * Members reach this machine alone: loopback addresses, `localhost`, and every name under `.example` and `.localhost`.
 */
import { connect, createServer, isIP, type Socket } from 'node:net';
import { closed } from './closed.ts';

/** Where a member listens, and the address that targets see. */
export interface Exit {
  readonly listenHost: string;
  /** What the target sees; with ports instead of aliases a name for it. */
  readonly address: string;
}

/** The first address that a series of exits uses has this second octet; each instance has the next one. */
const FIRST_SERIES = 16;
const LAST_OCTETS = 253;
/** Names that a member resolves, all of them to the loopback address (RFC 2606: never real ones). */
const LOCAL_NAME = /^(?:localhost|.+\.localhost|.+\.example)$/i;

/** @param aliases - whether 127.x.y.z addresses can be bound; undefined: tried. */
export async function openExits(aliases?: boolean): Promise<Exits> {
  return new Exits(aliases ?? (await canBind(`127.${FIRST_SERIES}.0.1`)));
}

export class Exits {
  /** Whether every member has an address of its own. */
  readonly aliases: boolean;
  readonly #dialed = new Set<Socket>();
  readonly #byPort = new Map<number, string>();
  readonly #given = new Map<number, number>();
  readonly #exits = new Set<string>();
  #closed = false;

  constructor(aliases: boolean) {
    this.aliases = aliases;
  }

  /** The next unused exit of a series (an instance's number from 0). They repeat after 64,000. */
  next(series: number): Exit {
    const place = this.#given.get(series) ?? 0;
    this.#given.set(series, place + 1);
    const high = Math.floor(place / LAST_OCTETS) % 255;
    const address = `127.${FIRST_SERIES + series}.${high}.${(place % LAST_OCTETS) + 1}`;
    this.#exits.add(address);
    return { listenHost: this.aliases ? address : '127.0.0.1', address };
  }

  /** One address for members that share their server's, as those of the pure edition and reverse proxies do. */
  gateway(series: number): string {
    return this.aliases ? `127.${FIRST_SERIES + series}.255.1` : '127.0.0.1';
  }

  /** The exit that a connection seen by a target came through; its address when it came through none. */
  seenAs(address: string, port: number): string {
    return this.#byPort.get(port) ?? address;
  }

  /** Whether some member has or had this exit. */
  has(address: string): boolean {
    return this.#exits.has(address);
  }

  /**
   * Connects to a target from a member's exit. Half-open; the taker closes it.
   *
   * @param host - a literal without brackets, or a name.
   * @throws the system's error; `ENOTFOUND` for a name that members do not know, `EHOSTUNREACH` for an address elsewhere.
   */
  dial(exit: Exit, host: string, port: number): Promise<Socket> {
    const address = this.#closed ? failure('ECONNABORTED', host) : addressOf(host);
    if (typeof address !== 'string') return Promise.reject(address);
    const from = this.aliases && isIP(address) === 4 ? { localAddress: exit.address } : {};
    const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true, ...from });
    this.#dialed.add(socket);
    socket.once('close', () => this.#dialed.delete(socket));
    // The next tick binds the port, the one after that still comes before the target can have accepted.
    if (!this.aliases) process.nextTick(() => this.#nameConnection(socket, exit.address));
    return new Promise((resolve, reject) => {
      socket.on('error', reject); // stays: a later error ends the socket, and `close` tells whoever uses it
      socket.once('connect', () => resolve(socket));
    });
  }

  /** Without aliases a target tells exits apart by the port that the connection comes from. */
  #nameConnection(socket: Socket, address: string): void {
    const port = socket.localPort;
    if (port === undefined) return;
    this.#byPort.set(port, address);
    socket.once('close', () => this.#byPort.delete(port));
  }

  /** Ends every connection that was dialed; nobody dials any more. */
  async close(): Promise<void> {
    this.#closed = true;
    const ends = [...this.#dialed].map(closed);
    for (const socket of this.#dialed) socket.destroy();
    await Promise.all(ends);
  }
}

/** The address behind a target's host, or the error of one that cannot be reached. */
function addressOf(host: string): string | NodeJS.ErrnoException {
  if (LOCAL_NAME.test(host)) return '127.0.0.1';
  if (isIP(host) === 0) return failure('ENOTFOUND', host);
  if (host.startsWith('127.') || host === '::1' || host === '0.0.0.0') return host;
  return failure('EHOSTUNREACH', host);
}

function failure(code: string, host: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: the sandbox's members reach this machine alone, not ${host}`), {
    code,
  });
}

function canBind(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false)); // handled: this machine has no such alias
    probe.listen(0, host, () => probe.close(() => resolve(true)));
  });
}
