/**
 * What one process says to another over their pipe: in order, and all that was said in one turn of the event loop as one
 * message, since a message costs both sides a system call and a wake-up, however little it holds.
 */

/** How long a turn is: until everything that has arrived has been looked at. */
export class Link<Message extends object> {
  readonly #send: (batch: readonly Message[]) => void;
  #batch: Message[] = [];
  #closed = false;

  /** @param send - gives one batch to the pipe; never an empty one. */
  constructor(send: (batch: readonly Message[]) => void) {
    this.#send = send;
  }

  /** Says it soon; nothing after `close`. */
  readonly say = (message: Message): void => {
    if (this.#closed) return;
    if (this.#batch.push(message) === 1) setImmediate(this.flush);
  };

  /** Says now what is still to be said. */
  readonly flush = (): void => {
    if (this.#batch.length === 0) return;
    const batch = this.#batch;
    this.#batch = [];
    this.#send(batch);
  };

  /** The pipe has gone: what was not said is dropped. Safe to call twice. */
  close(): void {
    this.#closed = true;
    this.#batch = [];
  }
}
