/**
 * What noria does with members that have ended, by the clock of the sandbox: after the end of a member's life, its address is opened
 * again, and each connection to it is recorded.
 */
import { createServer, type Server } from 'node:net';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';

const LOOK_EVERY_MS = 50;
/** For this time, an address is watched. Later, the sandbox may give it to another member. */
const WATCH_MS = 2_000;
/** A member that disappears earlier than this before its end was killed, which noria cannot know. */
const KILLED_MS = 500;

export class Tombstones {
  /** How long after the end of its life each connection to a member came, in ms. */
  readonly lateMs: number[] = [];
  readonly #sandbox: Sandbox;
  /** When the members end that have neither ended nor were killed. */
  readonly #living = new Map<string, number>();
  readonly #watched = new Set<Server>();
  readonly #timer: NodeJS.Timeout;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const server of this.#watched) server.close();
  }

  #look(): void {
    const now = performance.now();
    const here = new Set<string>();
    for (const { id, host, port, remainingMs } of this.#sandbox.members()) {
      here.add(id);
      if (remainingMs === 0 || this.#living.has(id)) continue;
      const endsAt = now + remainingMs;
      this.#living.set(id, endsAt);
      // A millisecond later, the sandbox has closed the address: its timer is older.
      setTimeout(() => this.#living.delete(id) && this.#watch(host, port, endsAt), remainingMs + 1).unref();
    }
    for (const [id, endsAt] of this.#living)
      if (!here.has(id) && endsAt - now > KILLED_MS) this.#living.delete(id);
  }

  #watch(host: string, port: number, endsAt: number): void {
    const server = createServer((socket) => {
      socket.on('error', () => {}).destroy(); // ignored: only the connection counts
      this.lateMs.push(performance.now() - endsAt);
    });
    this.#watched.add(server);
    server.on('error', () => {}); // ignored: the address has a new owner already
    server.on('close', () => this.#watched.delete(server));
    server.listen(port, host);
    setTimeout(() => server.close(), WATCH_MS).unref();
  }
}
