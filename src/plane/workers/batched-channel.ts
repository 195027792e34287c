/**
 * Sends messages to another process, in order and in few batches, because each IPC message costs both processes a system call and
 * a wake-up. Without batches, messages take almost a third of a busy worker's CPU time.
 */
import type { Clock } from '../../core/clock.ts';

const LATER_MS = 100;

export class BatchedChannel<Message extends object> {
  readonly #clock: Clock;
  readonly #write: (batch: readonly Message[]) => void;
  #batch: Message[] = [];
  /**
   * The state of the batch. `later`: the channel writes the batch after LATER_MS. `scheduled`: it writes the batch at
   * the end of this turn of the event loop.
   */
  #phase: 'empty' | 'later' | 'scheduled' | 'closed' = 'empty';
  #timer: Disposable | undefined;

  constructor(clock: Clock, write: (batch: readonly Message[]) => void) {
    this.#clock = clock;
    this.#write = write;
  }

  readonly send = (message: Message): void => {
    if (this.#phase === 'closed') return;
    this.#batch.push(message);
    if (this.#phase === 'scheduled') return;
    this.#phase = 'scheduled';
    setImmediate(this.flush);
  };

  readonly sendLater = (message: Message): void => {
    if (this.#phase === 'closed') return;
    this.#batch.push(message);
    if (this.#phase !== 'empty') return;
    this.#phase = 'later';
    this.#timer = this.#clock.after(LATER_MS, this.flush);
  };

  readonly flush = (): void => {
    if (this.#phase === 'closed' || this.#batch.length === 0) return;
    const batch = this.#batch;
    this.#batch = [];
    this.#timer?.[Symbol.dispose]();
    this.#phase = 'empty';
    this.#write(batch);
  };

  /** Call it when the pipe has closed. Drops the queued messages. Idempotent. */
  close(): void {
    this.#timer?.[Symbol.dispose]();
    this.#phase = 'closed';
    this.#batch = [];
  }
}
