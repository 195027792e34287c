/**
 * The ways out: loopback addresses that members listen on and dial from, and the only place where the sandbox dials.
 *
 * Each member gets an address of its own in 127.0.0.0/8, so that a target sees which member it was. Where a machine
 * has 127.0.0.1 alone (macOS), members share it and differ by port; the target is then told the exit by `seenAs`.
 * Members reach this machine alone: loopback addresses, `localhost`, and every name under `.example` and `.localhost`.
 */
import { connect, createServer, isIP, type Socket } from 'node:net';

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

/** What members need of it. */
export interface Outlet {
  /**
   * Connects to a target from a member's exit. Half-open; the taker closes it.
   *
   * @param host - a literal without brackets, or a name.
   * @throws the system's error; `EHOSTUNREACH` for a name or an address that is not this machine.
   */
  dial(exit: Exit, host: string, port: number): Promise<Socket>;
}

export class Exits implements Outlet {
  /** Whether every member has an address of its own. */
  readonly aliases: boolean;
  readonly #byPort = new Map<number, string>();
  readonly #given = new Map<number, number>();
  readonly #exits = new Set<string>();

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

  dial(exit: Exit, host: string, port: number): Promise<Socket> {
    const address = addressOf(host);
    if (address === undefined) return Promise.reject(unreachable(host));
    const from = this.aliases && isIP(address) === 4 ? { localAddress: exit.address } : {};
    const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true, ...from });
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
}

/** The address behind a target's host, as far as members reach it. */
function addressOf(host: string): string | undefined {
  if (LOCAL_NAME.test(host)) return '127.0.0.1';
  const isHere = isIP(host) !== 0 && (host.startsWith('127.') || host === '::1');
  return isHere ? host : undefined;
}

function unreachable(host: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`members do not reach ${host}`), { code: 'EHOSTUNREACH' });
}

function canBind(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false)); // handled: this machine has no such alias
    probe.listen(0, host, () => probe.close(() => resolve(true)));
  });
}
