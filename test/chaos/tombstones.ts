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
  readonly #living = new Map<string, { readonly host: string; readonly port: number; endsAt: number }>();
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
      if (remainingMs === 0) continue;
      here.add(id);
      this.#living.set(id, { host, port, endsAt: now + remainingMs });
    }
    for (const [id, { host, port, endsAt }] of this.#living) {
      if (here.has(id)) continue;
      this.#living.delete(id);
      if (endsAt - now < KILLED_MS) this.#watch(host, port, endsAt);
    }
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
