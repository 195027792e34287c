/**
 * Keeps connections to members for a few seconds after a plain HTTP request, so that the next request can use them.
 * Owns them. It limits their number per member and target, keeps none past the end of its member's life, and closes a
 * connection that ends or receives a byte. A connection that a request takes may nevertheless be closed already.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { PreparedLogin } from './credentials.ts';
import type { ForwardMode } from './dial.ts';

export interface IdleConnection {
  readonly socket: Socket;
  readonly member: string;
  /** `host:port` of the target. A connection in absolute form serves any target. */
  readonly target: string;
  readonly forwardMode: ForwardMode;
  /**
   * Only requests of this owner may use the connection, because some targets authenticate a connection and not each
   * request.
   */
  readonly owner: string;
  /**
   * The credentials with which the connection was opened. Requests in absolute form on this connection carry the same
   * ones.
   */
  readonly login: PreparedLogin | undefined;
  /** When the member's lifetime ends, in ms of the monotonic clock; `Infinity` if unknown. */
  readonly endsAt: number;
}

/** What must be equal for a request to use a connection. */
type IdleUse = Pick<IdleConnection, 'member' | 'target' | 'forwardMode' | 'owner'>;

interface Entry {
  readonly connection: IdleConnection;
  readonly deadline: Deadline;
  readonly drop: () => void;
}

/** Shorter than any common keep-alive timeout of a server. */
const MAX_IDLE_MS = 5_000;
const MAX_PER_TARGET = 4;
const MAX_CONNECTIONS = 512;
const FORWARD_MODES: readonly ForwardMode[] = ['direct', 'absolute'];

export class IdleConnections {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #mayKeep: (socket: Socket) => boolean;
  /** The connections by key, newest last. The newest one is the least likely to be closed. */
  readonly #entries = new Map<string, Entry[]>();
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
    const { socket } = connection;
    const key = keyOf(connection);
    const others = this.#entries.get(key) ?? [];
    const leftMs = Math.min(MAX_IDLE_MS, connection.endsAt - this.#clock.monotonic());
    const full = others.length >= MAX_PER_TARGET || this.#size >= MAX_CONNECTIONS;
    if (this.#closed || full || leftMs <= 0 || !isClean(socket) || !this.#mayKeep(socket)) {
      socket.destroy();
      return;
    }
    const drop = () => {
      this.#remove(key, entry);
      socket.destroy();
    };
    const entry = { connection, deadline: this.#deadlines.set(leftMs, drop), drop };
    this.#entries.set(key, [...others, entry]);
    this.#size += 1;
    // The socket must flow, because a paused socket emits neither 'end' nor unexpected data.
    socket.on('data', drop).on('end', drop).on('close', drop);
    socket.resume();
  }

  /**
   * Returns an idle connection through `member` that can serve `target`, if there is one. It is paused, and the caller
   * owns it.
   * @param use.forwardMode - with `direct`, no connection in absolute form is returned.
   */
  take({ forwardMode: mode, ...use }: IdleUse): IdleConnection | undefined {
    if (this.#size === 0) return undefined;
    for (const forwardMode of FORWARD_MODES) {
      if (forwardMode === 'absolute' && mode === 'direct') break;
      const key = keyOf({ ...use, forwardMode });
      const entry = this.#entries.get(key)?.at(-1);
      if (entry === undefined) continue;
      this.#remove(key, entry);
      entry.connection.socket.pause();
      return entry.connection;
    }
    return undefined;
  }

  clear(): void {
    for (const entries of [...this.#entries.values()]) for (const { drop } of entries) drop();
  }

  /** Closes all idle connections, and each connection passed to `keep` from now on. */
  close(): void {
    this.#closed = true;
    this.clear();
  }

  #remove(key: string, entry: Entry): void {
    const entries = this.#entries.get(key) ?? [];
    const others = entries.filter((other) => other !== entry);
    if (others.length === entries.length) return;
    if (others.length === 0) this.#entries.delete(key);
    else this.#entries.set(key, others);
    this.#size -= 1;
    this.#deadlines.clear(entry.deadline);
    entry.connection.socket.off('data', entry.drop).off('end', entry.drop).off('close', entry.drop);
  }
}

function keyOf({ member, target, forwardMode, owner }: IdleUse): string {
  return forwardMode === 'absolute' ? `${member} ${owner}` : `${member} ${target} ${owner}`;
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
