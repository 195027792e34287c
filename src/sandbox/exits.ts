/**
 * Exits: the loopback addresses on which members listen and from which they connect to targets.
 *
 * Each member has its own address in 127.0.0.0/8, so that a target can tell members apart. If the machine has only
 * 127.0.0.1 (macOS), all members use this address. `exitOf` then tells the target which member has connected.
 *
 * Members connect only to this machine: to loopback addresses, to `localhost`, and to names under `.localhost` and
 * `.example`.
 */
import { connect, createServer, isIP, type Socket } from 'node:net';

export interface Exit {
  readonly listenHost: string;
  readonly address: string;
}

const FIRST_SERIES = 16;
const LAST_OCTETS = 253;
/** Names that members resolve to 127.0.0.1. They are reserved (RFC 2606), so no real target has such a name. */
const LOCAL_NAME = /^(?:localhost|.+\.localhost|.+\.example)$/i;

/** @param aliases - whether each member uses its own 127.x.y.z address. Default: whether this machine can bind one. */
export async function openExits(aliases?: boolean): Promise<Exits> {
  return new Exits(aliases ?? (await canBind(`127.${FIRST_SERIES}.0.1`)));
}

export class Exits {
  readonly #aliases: boolean;
  readonly #byPort = new Map<number, string>();
  readonly #used = new Map<number, number>();
  readonly #exits = new Set<string>();

  constructor(aliases: boolean) {
    this.#aliases = aliases;
  }

  /** @param sharesAddress - whether it listens on one address with all such exits of its series, each on another port. */
  next(series: number, sharesAddress = false): Exit {
    const index = this.#used.get(series) ?? 0;
    this.#used.set(series, index + 1);
    const high = Math.floor(index / LAST_OCTETS) % 255;
    const address = `127.${FIRST_SERIES + series}.${high}.${(index % LAST_OCTETS) + 1}`;
    this.#exits.add(address);
    const ownHost = sharesAddress ? `127.${FIRST_SERIES + series}.255.1` : address;
    return { listenHost: this.#aliases ? ownHost : '127.0.0.1', address };
  }

  exitOf(address: string, port: number): string {
    return this.#byPort.get(port) ?? address;
  }

  has(address: string): boolean {
    return this.#exits.has(address);
  }

  /**
   * Connects from a member's exit to a target. The caller owns the socket, which has `allowHalfOpen`.
   *
   * @param host - an IP address without brackets, or a name.
   * @throws the error of the operating system; `EHOSTUNREACH` if the host is outside this machine.
   */
  dial(exit: Exit, host: string, port: number): Promise<Socket> {
    const address = addressOf(host);
    if (address === undefined) {
      const message = `members of the sandbox reach only loopback addresses and the names of the sandbox, not ${host}`;
      return Promise.reject(Object.assign(new Error(message), { code: 'EHOSTUNREACH' }));
    }
    const from = this.#aliases && isIP(address) === 4 ? { localAddress: exit.address } : {};
    const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true, ...from });
    // The local port is known in the next tick, before the target can accept the connection.
    if (!this.#aliases) process.nextTick(() => this.#nameConnection(socket, exit.address));
    return new Promise((resolve, reject) => {
      socket.on('error', reject); // without this handler, an error after 'connect' would end the process
      socket.once('connect', () => resolve(socket));
    });
  }

  #nameConnection(socket: Socket, address: string): void {
    const port = socket.localPort;
    if (port === undefined) return;
    this.#byPort.set(port, address);
    socket.once('close', () => this.#byPort.delete(port));
  }
}

function addressOf(host: string): string | undefined {
  if (LOCAL_NAME.test(host)) return '127.0.0.1';
  return isIP(host) !== 0 && (host.startsWith('127.') || host === '::1') ? host : undefined;
}

function canBind(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false)); // handled: the result says that the machine cannot bind the address
    probe.listen(0, host, () => probe.close(() => resolve(true)));
  });
}
