/**
 * Connections that a plain HTTP request has finished with, kept for a few seconds for the next one.
 *
 * Owns them. It limits their number per member and target, never keeps one past the end of its member, and closes one that
 * ends or receives a byte. A connection that is taken may be closed already by the other side.
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
  /** The only one whose requests it serves: a target may know the client by its connection. */
  readonly owner: string;
  /** What it was opened with. Requests in absolute form on it carry the same. */
  readonly login: PreparedLogin | undefined;
  /** Monotonic time at which the member's lifetime ends; `Infinity` if unknown. */
  readonly endsAt: number;
}

/** What a request needs. */
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
  /** The newest last: it is the least likely to be closed. */
  readonly #entries = new Map<string, Entry[]>();
  #size = 0;
  #closed = false;

  /** @param mayKeep - false for a socket that was opened by another way to the members than the current one. */
  constructor(clock: Clock, deadlines: Deadlines, mayKeep: (socket: Socket) => boolean) {
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#mayKeep = mayKeep;
  }

  get size(): number {
    return this.#size;
  }

  /** Takes over a connection. Closes it at once if a limit is reached, its member ends, or its last exchange left bytes. */
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
    // A paused socket would notice neither an end nor an unexpected byte.
    socket.on('data', drop).on('end', drop).on('close', drop);
    socket.resume();
  }

  /**
   * A paused connection through `member` that can serve `target`, if there is one. The caller owns it.
   *
   * @param use.forwardMode - `direct`: not one in absolute form.
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

  /** Closes all of them. */
  clear(): void {
    for (const entries of [...this.#entries.values()]) for (const { drop } of entries) drop();
  }

  /** Closes all of them, and from now on every connection that it gets. */
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

/** Open in both directions, with nothing unread and nothing unsent. */
function isClean(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    socket.readableLength === 0 &&
    socket.writableLength === 0
  );
}
