/**
 * Checks each accepted connection against a limit that several processes share. Until the result arrives, the
 * client's data stays in the socket.
 */
import type { Socket } from 'node:net';
import type { Deadlines } from '../core/deadlines.ts';

export interface ConnectionLimit {
  /** The promise never rejects. Call `release` when an allowed connection closes. */
  acquire(): boolean | Promise<boolean>;
  release(): void;
}

/**
 * As long as the kernel's accept queue, so noria refuses no connection even if it accepts the whole queue at once.
 */
const MAX_PENDING = 512;
/** After this time, the process that decides probably hangs, and noria refuses the connection. */
const ANSWER_TIMEOUT_MS = 2_000;

export class AdmissionQueue {
  readonly #limit: ConnectionLimit;
  readonly #deadlines: Deadlines;
  readonly #waiting = new Set<Socket>();
  /** Unanswered calls of `acquire`, including those for clients that have disconnected. */
  #pendingCount = 0;

  constructor(limit: ConnectionLimit, deadlines: Deadlines) {
    this.#limit = limit;
    this.#deadlines = deadlines;
  }

  /**
   * @param admit - called once, possibly before this returns; not called if the client disconnects before the answer.
   */
  request(accepted: Socket, admit: (allowed: boolean) => void): void {
    if (this.#pendingCount >= MAX_PENDING) {
      admit(false);
      return;
    }
    const answer = this.#limit.acquire();
    if (typeof answer === 'boolean') {
      this.#settle(accepted, answer, admit);
      return;
    }
    const timeout = this.#deadlines.set(ANSWER_TIMEOUT_MS, () => {
      this.#waiting.delete(accepted);
      this.#settle(accepted, false, admit);
    });
    this.#waiting.add(accepted);
    this.#pendingCount += 1;
    void answer.then((allowed) => {
      this.#pendingCount -= 1;
      this.#deadlines.clear(timeout);
      if (this.#waiting.delete(accepted)) this.#settle(accepted, allowed, admit);
      else if (allowed) this.#limit.release(); // the client has disconnected, or the answer came too late
    });
  }

  clear(): void {
    for (const accepted of this.#waiting) accepted.destroy();
  }

  #settle(accepted: Socket, allowed: boolean, admit: (allowed: boolean) => void): void {
    if (accepted.readableEnded) accepted.destroy(); // the client has disconnected, and 'end' will not be emitted again
    if (allowed && accepted.destroyed) this.#limit.release();
    if (accepted.destroyed) return;
    if (allowed) accepted.on('close', () => this.#limit.release());
    admit(allowed);
  }
}
