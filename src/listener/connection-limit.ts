/**
 * Clients that have been accepted and wait to hear whether there is room for them, where several processes share a listener's
 * limit. Nothing is served before that is known; what a client sends meanwhile waits in its socket.
 */
import type { Socket } from 'node:net';
import type { Deadlines } from '../core/deadlines.ts';

/** Who knows whether there is room for one more connection. */
export interface ConnectionLimit {
  /** At once, or soon. Whoever gets `true` calls `leave` in the end. */
  acquire(): boolean | Promise<boolean>;
  release(): void;
}

/** Places asked for at one time: as many as wait in the kernel to be accepted, so that a burst is not refused. */
const MAX_ASKED = 512;
/** A place that takes longer is kept by a process that hangs: its client is told that there is none. */
const PATIENCE_MS = 2_000;

export class AdmissionQueue {
  readonly #room: ConnectionLimit;
  readonly #deadlines: Deadlines;
  readonly #waiting = new Set<Socket>();
  /** Places asked for and not answered yet, also for clients that wait no more. */
  #askedCount = 0;

  constructor(room: ConnectionLimit, deadlines: Deadlines) {
    this.#room = room;
    this.#deadlines = deadlines;
  }

  /** @param admit - called once, at once or later, unless the client has left by then; its place is given back when it closes. */
  ask(accepted: Socket, admit: (permitted: boolean) => void): void {
    if (this.#askedCount >= MAX_ASKED) {
      admit(false);
      return;
    }
    const answer = this.#room.acquire();
    if (typeof answer === 'boolean') {
      this.#seat(accepted, answer, admit);
      return;
    }
    const patience = this.#deadlines.set(PATIENCE_MS, () => {
      this.#waiting.delete(accepted);
      this.#seat(accepted, false, admit);
    });
    this.#waiting.add(accepted);
    this.#askedCount += 1;
    void answer.then((permitted) => {
      this.#askedCount -= 1;
      this.#deadlines.clear(patience);
      if (this.#waiting.delete(accepted)) this.#seat(accepted, permitted, admit);
      else if (permitted) this.#room.release(); // too late for this client
    }); // never rejects
  }

  /** Ends those that wait. */
  clear(): void {
    for (const accepted of this.#waiting) accepted.destroy();
  }

  #seat(accepted: Socket, permitted: boolean, admit: (permitted: boolean) => void): void {
    if (accepted.readableEnded) accepted.destroy(); // it left meanwhile, and would not say so again
    if (permitted && accepted.destroyed) this.#room.release();
    if (accepted.destroyed) return;
    if (permitted) accepted.on('close', () => this.#room.release());
    admit(permitted);
  }
}
