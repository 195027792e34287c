/**
 * Keeps connections to members for a few seconds after a plain HTTP request, so that the next request can use them.
 * Owns the idle connections. Limits the number of idle connections per member and target. Closes an idle connection
 * when the member's life ends, and when the connection ends or receives a byte. A request may still get a connection
 * that the member has just closed.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { PreparedLogin } from './credentials.ts';
import type { ForwardMode } from './dial.ts';

export interface IdleConnection {
  readonly socket: Socket;
  readonly member: string;
  /** `host:port` of the target. With the forward mode `absolute`, the connection can serve any target. */
  readonly target: string;
  readonly forwardMode: ForwardMode;
  /**
   * Only requests of this owner may use the connection, because some targets authenticate a connection and not each
   * request.
   */
  readonly owner: string;
  /**
   * The credentials with which the connection was opened. Requests in absolute form on this connection carry the same
   * credentials.
   */
  readonly login: PreparedLogin | undefined;
  /** When the member's lifetime ends, in ms of the monotonic clock; `Infinity` if unknown. */
  readonly endsAt: number;
}

/** What a request requires of a connection. */
type IdleUse = Pick<IdleConnection, 'member' | 'target' | 'forwardMode' | 'owner'>;

interface Entry {
  readonly connection: IdleConnection;
  readonly deadline: Deadline;
  readonly drop: () => void;
}

/** The maximum idle time in ms. It is shorter than the usual keep-alive timeouts of servers. */
const MAX_IDLE_MS = 5_000;
const MAX_PER_TARGET = 4;
const MAX_CONNECTIONS = 512;

export class IdleConnections {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #mayKeep: (socket: Socket) => boolean;
  /** The connections of each member, newest last. The newest one is most probably still open. */
  readonly #byMember = new Map<string, Entry[]>();
  #size = 0;
  #closed = false;

  /** @param mayKeep - returns false for a socket that was opened through another front proxy than the current one. */
  constructor(clock: Clock, deadlines: Deadlines, mayKeep: (socket: Socket) => boolean) {
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#mayKeep = mayKeep;
  }

  get size(): number {
    return this.#size;
  }

  /**
   * Takes ownership of a connection. Closes it immediately if a limit is reached, the member's life has ended, or the
   * socket has unread or unsent bytes.
   */
  keep(connection: IdleConnection): void {
    const { socket, member, forwardMode } = connection;
    const others = this.#byMember.get(member);
    const leftMs = Math.min(MAX_IDLE_MS, connection.endsAt - this.#clock.monotonic());
    const full =
      this.#size >= MAX_CONNECTIONS || countServing(others, forwardMode, connection) >= MAX_PER_TARGET;
    if (this.#closed || full || leftMs <= 0 || !isClean(socket) || !this.#mayKeep(socket)) {
      socket.destroy();
      return;
    }
    const drop = () => {
      this.#remove(entry);
      socket.destroy();
    };
    const entry = { connection, deadline: this.#deadlines.set(leftMs, drop), drop };
    if (others === undefined) this.#byMember.set(member, [entry]);
    else others.push(entry);
    this.#size += 1;
    // The socket must flow, because a paused socket emits neither 'end' nor unexpected data.
    socket.on('data', drop).on('end', drop).on('close', drop);
    socket.resume();
  }

  /**
   * Returns an idle connection that leads through `member` and can serve `target`; undefined if no such connection
   * exists. The caller owns the connection. The socket is flowing, so the caller must add a 'data' listener in the same
   * tick.
   * @param use.forwardMode - `direct`: only a connection that the member has connected to the target. `absolute`: also
   * a connection for requests in absolute form.
   */
  take(use: IdleUse): IdleConnection | undefined {
    const entries = this.#byMember.get(use.member);
    if (entries === undefined) return undefined;
    let entry = findServing(entries, 'direct', use);
    if (entry === undefined && use.forwardMode === 'absolute') entry = findServing(entries, 'absolute', use);
    if (entry === undefined) return undefined;
    this.#remove(entry);
    return entry.connection;
  }

  clear(): void {
    for (const entries of [...this.#byMember.values()]) for (const { drop } of [...entries]) drop();
  }

  /** Closes all idle connections, and each connection passed to `keep` from now on. */
  close(): void {
    this.#closed = true;
    this.clear();
  }

  #remove(entry: Entry): void {
    const { socket, member } = entry.connection;
    const entries = this.#byMember.get(member) ?? [];
    const at = entries.lastIndexOf(entry);
    if (at < 0) return;
    entries.splice(at, 1);
    if (entries.length === 0) this.#byMember.delete(member);
    this.#size -= 1;
    this.#deadlines.clear(entry.deadline);
    socket.off('data', entry.drop).off('end', entry.drop).off('close', entry.drop);
  }
}

type Serving = Pick<IdleConnection, 'target' | 'owner'>;

/** The newest connection of this forward mode that can serve a request of this owner to this target. */
function findServing(entries: readonly Entry[], mode: ForwardMode, use: Serving): Entry | undefined {
  return entries.findLast(({ connection }) => isServing(connection, mode, use));
}

function countServing(entries: readonly Entry[] = [], mode: ForwardMode, use: Serving): number {
  return entries.filter(({ connection }) => isServing(connection, mode, use)).length;
}

function isServing(connection: IdleConnection, mode: ForwardMode, { target, owner }: Serving): boolean {
  if (connection.forwardMode !== mode || connection.owner !== owner) return false;
  return mode === 'absolute' || connection.target === target;
}

/** Whether the socket is open in both directions, with nothing unread or unsent. */
function isClean(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    socket.readableLength === 0 &&
    socket.writableLength === 0
  );
}
