/**
 * Exits: the loopback addresses that members listen on and connect from. The sandbox dials nowhere else.
 *
 * Each member gets its own address in 127.0.0.0/8, so that a target sees which member it was. On machines that have 127.0.0.1
 * only (macOS), members share it and differ by port; the target then learns the exit from `exitOf`. Members reach this machine
 * only: loopback addresses, `localhost`, and every name under `.example` and `.localhost`.
 */
import { connect, createServer, isIP, type Socket } from 'node:net';

/** Where a member listens, and the address that targets see. */
export interface Exit {
  readonly listenHost: string;
  /** The address that the target sees; only a label if there are no aliases. */
  readonly address: string;
}

/** The second octet of the first instance's exits. Each further instance has the next octet. */
const FIRST_SERIES = 16;
const LAST_OCTETS = 253;
/** Names that a member resolves to 127.0.0.1. RFC 2606 reserves them, so they are never real. */
const LOCAL_NAME = /^(?:localhost|.+\.localhost|.+\.example)$/i;

/** @param aliases - whether members use 127.x.y.z addresses; default: if this machine can bind such an address. */
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

  /** Returns the next exit of a series (the instance's number, from 0). Exits repeat after 64,000. */
  next(series: number): Exit {
    const index = this.#used.get(series) ?? 0;
    this.#used.set(series, index + 1);
    const high = Math.floor(index / LAST_OCTETS) % 255;
    const address = `127.${FIRST_SERIES + series}.${high}.${(index % LAST_OCTETS) + 1}`;
    this.#exits.add(address);
    return { listenHost: this.#aliases ? address : '127.0.0.1', address };
  }

  /** The server address that members of the pure edition and reverse proxies share. */
  gateway(series: number): string {
    return this.#aliases ? `127.${FIRST_SERIES + series}.255.1` : '127.0.0.1';
  }

  /** The exit of a connection with this remote address and port; the address itself if it belongs to no member. */
  exitOf(address: string, port: number): string {
    return this.#byPort.get(port) ?? address;
  }

  /** Whether a member has or had this exit. */
  has(address: string): boolean {
    return this.#exits.has(address);
  }

  /**
   * Connects to a target from a member's exit. The socket is half-open; the caller closes it.
   *
   * @param host - an address without brackets, or a name.
   * @throws the system's error; `EHOSTUNREACH` for a name or an address outside this machine.
   */
  dial(exit: Exit, host: string, port: number): Promise<Socket> {
    const address = addressOf(host);
    if (address === undefined) return Promise.reject(unreachable(host));
    const from = this.#aliases && isIP(address) === 4 ? { localAddress: exit.address } : {};
    const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true, ...from });
    // The local port is bound in the next tick, which is still before the target can accept the connection.
    if (!this.#aliases) process.nextTick(() => this.#nameConnection(socket, exit.address));
    return new Promise((resolve, reject) => {
      socket.on('error', reject); // stays, so that a later error only closes the socket
      socket.once('connect', () => resolve(socket));
    });
  }

  /** Without aliases, exits differ by the connection's local port. */
  #nameConnection(socket: Socket, address: string): void {
    const port = socket.localPort;
    if (port === undefined) return;
    this.#byPort.set(port, address);
    socket.once('close', () => this.#byPort.delete(port));
  }
}

/** The address of a target's host; undefined if members do not reach it. */
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
    probe.once('error', () => resolve(false)); // handled: the result reports it
    probe.listen(0, host, () => probe.close(() => resolve(true)));
  });
}
