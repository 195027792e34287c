/**
 * Holds accepted connections until it is known whether a limit that several processes share allows them. What a client sends
 * in the meantime waits in its socket.
 */
import type { Socket } from 'node:net';
import type { Deadlines } from '../core/deadlines.ts';

/** A connection limit that several processes share. */
export interface ConnectionLimit {
  /** Whether one more connection is allowed: now, or by a promise that never rejects. Every `true` needs a `release`. */
  acquire(): boolean | Promise<boolean>;
  release(): void;
}

/** Answers awaited at once: as many as the kernel queues connections to accept, so that a burst is not refused. */
const MAX_PENDING = 512;
/** After this time the process that decides is assumed to hang, and the connection is refused. */
const ANSWER_TIMEOUT_MS = 2_000;

export class AdmissionQueue {
  readonly #limit: ConnectionLimit;
  readonly #deadlines: Deadlines;
  readonly #waiting = new Set<Socket>();
  /** Unanswered calls of `acquire`, including those for clients that no longer wait. */
  #pendingCount = 0;

  constructor(limit: ConnectionLimit, deadlines: Deadlines) {
    this.#limit = limit;
    this.#deadlines = deadlines;
  }

  /**
   * @param admit - called once, now or later, with whether the connection is allowed; not called if the client leaves first.
   *   The permit is released when the connection closes.
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
      else if (allowed) this.#limit.release(); // too late: the request timed out
    });
  }

  /** Destroys the waiting connections. */
  clear(): void {
    for (const accepted of this.#waiting) accepted.destroy();
  }

  #settle(accepted: Socket, allowed: boolean, admit: (allowed: boolean) => void): void {
    if (accepted.readableEnded) accepted.destroy(); // the client has left, and 'end' is not emitted again
    if (allowed && accepted.destroyed) this.#limit.release();
    if (accepted.destroyed) return;
    if (allowed) accepted.on('close', () => this.#limit.release());
    admit(allowed);
  }
}
