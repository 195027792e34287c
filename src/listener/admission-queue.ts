/**
 * Checks each accepted connection against a limit that several processes share. Until the result arrives, the
 * connection waits, and data from the client stays in the socket.
 */
import type { Socket } from 'node:net';
import type { Deadlines } from '../core/deadlines.ts';

export interface ConnectionLimit {
  /**
   * Returns whether one more connection is allowed. The promise never rejects. For each allowed connection, call
   * `release` when it closes.
   */
  acquire(): boolean | Promise<boolean>;
  release(): void;
}

/**
 * The maximum number of unanswered calls of `acquire`. It equals the length of the kernel's accept queue, so noria
 * refuses no connection even if it accepts the whole queue at once.
 */
const MAX_PENDING = 512;
/**
 * If `acquire` gives no answer within this time, the process that decides probably hangs, and noria refuses the
 * connection.
 */
const ANSWER_TIMEOUT_MS = 2_000;

export class AdmissionQueue {
  readonly #limit: ConnectionLimit;
  readonly #deadlines: Deadlines;
  readonly #waiting = new Set<Socket>();
  /** The number of unanswered calls of `acquire`, including those for clients that have disconnected. */
  #pendingCount = 0;

  constructor(limit: ConnectionLimit, deadlines: Deadlines) {
    this.#limit = limit;
    this.#deadlines = deadlines;
  }

  /**
   * @param admit - called once, possibly before this method returns. Not called if the client disconnects before the
   *   answer. After `admit(true)`, this class calls `release` when the connection closes.
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

  /** Destroys the waiting connections. */
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
