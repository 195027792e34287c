/**
 * What one process says to another over their pipe: in order, and as few messages as can be, since each costs both sides a
 * system call and a wake-up, however little it holds: almost a third of a busy worker's work, if each were sent at once.
 */
import type { Clock } from '../../core/clock.ts';

/** How long what nobody waits for may lie, when nothing else is said meanwhile. */
const LINGER_MS = 5;

export class BatchedChannel<Message extends object> {
  readonly #clock: Clock;
  readonly #send: (batch: readonly Message[]) => void;
  #batch: Message[] = [];
  /** The batch goes at the end of this turn, or when it has lingered; `none`: it is empty. */
  #phase: 'none' | 'lingering' | 'going' | 'closed' = 'none';
  #lingering: Disposable | undefined;

  /** @param send - gives one batch to the pipe; never an empty one. */
  constructor(clock: Clock, send: (batch: readonly Message[]) => void) {
    this.#clock = clock;
    this.#send = send;
  }

  /** Says it with everything else that is said in this turn of the event loop; nothing after `close`. */
  readonly say = (message: Message): void => {
    if (this.#phase === 'closed') return;
    this.#batch.push(message);
    if (this.#phase === 'going') return;
    this.#phase = 'going';
    setImmediate(this.flush);
  };

  /** Says it with whatever is said next, or a few ms later: for what nobody waits for. */
  readonly mention = (message: Message): void => {
    if (this.#phase === 'closed') return;
    this.#batch.push(message);
    if (this.#phase !== 'none') return;
    this.#phase = 'lingering';
    this.#lingering = this.#clock.after(LINGER_MS, this.flush);
  };

  /** Says now what is still to be said. */
  readonly flush = (): void => {
    if (this.#phase === 'closed' || this.#batch.length === 0) return;
    const batch = this.#batch;
    this.#batch = [];
    this.#lingering?.[Symbol.dispose]();
    this.#phase = 'none';
    this.#send(batch);
  };

  /** The pipe has gone: what was not said is dropped. Safe to call twice. */
  close(): void {
    this.#lingering?.[Symbol.dispose]();
    this.#phase = 'closed';
    this.#batch = [];
  }
}
