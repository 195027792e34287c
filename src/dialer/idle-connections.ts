/**
 * Connections that a plain HTTP request has left behind in good order, kept a short while for the next one.
 *
 * Owns them: each is one of few for its member and target, for a few seconds, never past its member's end, and dropped
 * as soon as it says anything or ends. Whoever takes one owns it, and must reckon with its being dead already.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { PreparedLogin } from './credentials.ts';
import type { ForwardMode } from './forward-mode.ts';

export interface IdleConnection {
  readonly socket: Socket;
  readonly member: string;
  /** `host:port` of the target; for absolute form the member takes any. */
  readonly target: string;
  readonly forwardMode: ForwardMode;
  /** What it was opened with; requests in absolute form on it carry the same. */
  readonly login: PreparedLogin | undefined;
  /** Monotonic moment at which the member ends; `Infinity` when unknown. */
  readonly endsAt: number;
}

interface Kept {
  readonly connection: IdleConnection;
  readonly deadline: Deadline;
  readonly drop: () => void;
}

/** Shorter than any common keep-alive timeout of a server. */
const KEPT_MS = 5_000;
const MOST_FOR_ONE_TARGET = 4;
const MOST = 512;
const FORMS: readonly ForwardMode[] = ['direct', 'absolute'];

export class IdleConnections {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  /** The youngest last: it is the likeliest to be alive. */
  readonly #kept = new Map<string, Kept[]>();
  #count = 0;
  #closed = false;

  constructor(clock: Clock, deadlines: Deadlines) {
    this.#clock = clock;
    this.#deadlines = deadlines;
  }

  get size(): number {
    return this.#count;
  }

  /** Takes a connection over; closes it when there is no room or no time left for it. */
  keep(connection: IdleConnection): void {
    const { socket } = connection;
    const key = keyOf(connection);
    const siblings = this.#kept.get(key) ?? [];
    const leftMs = Math.min(KEPT_MS, connection.endsAt - this.#clock.monotonic());
    const crowded = siblings.length >= MOST_FOR_ONE_TARGET || this.#count >= MOST;
    if (this.#closed || crowded || leftMs <= 0 || !isQuiet(socket)) {
      socket.destroy();
      return;
    }
    const drop = () => {
      this.#remove(key, kept);
      socket.destroy();
    };
    const kept = { connection, deadline: this.#deadlines.set(leftMs, drop), drop };
    this.#kept.set(key, [...siblings, kept]);
    this.#count += 1;
    // Read on: else neither an end nor a stray byte would show before the next request is written.
    socket.on('data', drop).on('end', drop).on('close', drop);
    socket.resume();
  }

  /** One for this very member and target, or in absolute form to the member, paused; undefined when there is none. */
  take(member: string, target: string): IdleConnection | undefined {
    if (this.#count === 0) return undefined;
    for (const form of FORMS) {
      const key = keyOf({ member, target, forwardMode: form });
      const kept = this.#kept.get(key)?.at(-1);
      if (kept === undefined) continue;
      this.#remove(key, kept);
      kept.connection.socket.pause();
      return kept.connection;
    }
    return undefined;
  }

  /** Closes them all; what is given back later is closed at once. */
  close(): void {
    this.#closed = true;
    for (const siblings of [...this.#kept.values()]) for (const { drop } of siblings) drop();
  }

  #remove(key: string, kept: Kept): void {
    const siblings = this.#kept.get(key) ?? [];
    const others = siblings.filter((other) => other !== kept);
    if (others.length === siblings.length) return;
    if (others.length === 0) this.#kept.delete(key);
    else this.#kept.set(key, others);
    this.#count -= 1;
    this.#deadlines.clear(kept.deadline);
    kept.connection.socket.off('data', kept.drop).off('end', kept.drop).off('close', kept.drop);
  }
}

function keyOf({
  member,
  target,
  forwardMode: form,
}: Pick<IdleConnection, 'member' | 'target' | 'forwardMode'>): string {
  return form === 'absolute' ? member : `${member} ${target}`;
}

/** Alive both ways, with nothing unread and nothing unsent: else the last exchange was not clean. */
function isQuiet(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    socket.readable &&
    socket.writable &&
    socket.readableLength === 0 &&
    socket.writableLength === 0
  );
}
