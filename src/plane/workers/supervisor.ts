/**
 * The workers of one noria: so many that live, each brought to where the others are before it counts, replaced when it
 * ends. Owns the processes; what they are told and what they tell is for the one who opened it.
 */
import type { Clock } from '../../core/clock.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import { SIGNALS_OF_THE_PRIMARY } from './messages.ts';
import { type WorkerExit, WorkerProcess, type WorkerReport } from './worker-process.ts';

export interface WorkerSupervisorOptions {
  readonly clock: Clock;
  /** The module that a worker runs. */
  readonly entry: string;
  readonly wanted: number;
  readonly onReport: (worker: WorkerProcess, report: WorkerReport) => void;
  /** Brings a worker that has loaded to where the others are. A failure ends that worker. */
  readonly prepare: (worker: WorkerProcess) => Promise<void>;
  /** A worker ended that should not have. `againMs`: after how long another one is started. */
  readonly onLost: (worker: WorkerProcess, ending: WorkerExit, againMs: number) => void;
  /** Every worker that ever was, once it has gone. */
  readonly onGone: (worker: WorkerProcess) => void;
  /** None lives, and none can be started: the end. */
  readonly onFailed: (error: NoriaError) => void;
}

/** Who has lived so long did not die of its start. */
const STEADY_MS = 10_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;
/** Short lives in a row, while none lives, after which it is given up. */
const MOST_SHORT_LIVES = 6;
/** How long one that was told to close may take; a service manager has less than 5 s for all that follows the draining. */
const CLOSE_PATIENCE_MS = 2_000;
/**
 * A terminal or a service manager sends them to all processes, and a worker that still loads cannot ignore them yet: they say
 * nothing against it. Whether noria goes on is for the primary to say, which has had the signal too.
 */
const SENT_TO_ALL: ReadonlySet<NodeJS.Signals> = new Set(SIGNALS_OF_THE_PRIMARY);
/** Starts of one worker that are cut short by those, one after the other, before it is given up. */
const MOST_STARTS = 3;

/**
 * Starts them all; they have loaded when it resolves.
 *
 * @throws NoriaError workers-failed when one of them does not come up.
 */
export async function openWorkerSupervisor(options: WorkerSupervisorOptions): Promise<WorkerSupervisor> {
  const crew = new WorkerSupervisor(options);
  try {
    await crew.open();
  } catch (error) {
    await crew.close();
    throw error;
  }
  return crew;
}

/** See `openCrew`. */
export class WorkerSupervisor {
  readonly #options: WorkerSupervisorOptions;
  /** All processes, those that come up included. */
  readonly #all = new Set<WorkerProcess>();
  readonly #ready = new Set<WorkerProcess>();
  readonly #waits = new Set<Disposable>();
  #phase: 'opening' | 'running' | 'ending' = 'opening';
  #lastNumber = 0;
  #shortLives = 0;

  constructor(options: WorkerSupervisorOptions) {
    this.#options = options;
  }

  /** Those that serve clients. */
  get ready(): readonly WorkerProcess[] {
    return [...this.#ready];
  }

  async open(): Promise<void> {
    await Promise.all(Array.from({ length: this.#options.wanted }, () => this.#start()));
    this.#phase = 'running';
  }

  async #start(): Promise<void> {
    for (let starts = 1; ; starts += 1) {
      const worker = this.#fork();
      if ((await worker.answer('loaded')) !== undefined) {
        this.#ready.add(worker);
        return;
      }
      const { how, signal, stack } = await worker.gone;
      const interrupted = signal !== undefined && SENT_TO_ALL.has(signal);
      if (interrupted && starts < MOST_STARTS && this.#phase === 'opening') continue;
      const why = stack === undefined ? how : `${how}: ${stack}`;
      throw new NoriaError('workers-failed', `a worker did not start: ${why}`);
    }
  }

  /** None is replaced any more. */
  stopReplacing(): void {
    this.#phase = 'ending';
    for (const wait of this.#waits) wait[Symbol.dispose]();
    this.#waits.clear();
    for (const worker of this.#all) if (!this.#ready.has(worker)) worker.kill();
  }

  /** Tells each to close, and waits until it has; one that does not is killed. Safe to call twice. */
  async close(): Promise<void> {
    this.stopReplacing();
    const patience = this.#options.clock.after(CLOSE_PATIENCE_MS, () => {
      for (const worker of this.#all) worker.kill();
    });
    for (const worker of this.#ready) worker.say({ kind: 'close' });
    await Promise.all([...this.#all].map(({ gone }) => gone));
    patience[Symbol.dispose]();
  }

  #fork(): WorkerProcess {
    const { clock, entry, onReport } = this.#options;
    this.#lastNumber += 1;
    const startedAt = clock.monotonic();
    const worker: WorkerProcess = new WorkerProcess({
      clock,
      number: this.#lastNumber,
      entry,
      onReport: (report) => onReport(worker, report),
    });
    this.#all.add(worker);
    void worker.gone.then((ending) => this.#lost(worker, ending, clock.monotonic() - startedAt)); // never rejects
    return worker;
  }

  #lost(worker: WorkerProcess, ending: WorkerExit, livedMs: number): void {
    this.#all.delete(worker);
    const served = this.#ready.delete(worker);
    this.#options.onGone(worker);
    // While they start, one that had not loaded is seen to by whoever waits for it.
    if (this.#phase === 'ending' || (this.#phase === 'opening' && !served)) return;
    this.#shortLives = livedMs >= STEADY_MS ? 0 : this.#shortLives + 1;
    if (this.#all.size === 0 && this.#shortLives >= MOST_SHORT_LIVES) {
      const lately = `the last ${this.#shortLives} of them ended within seconds, the last one ${ending.how}`;
      this.fail(new NoriaError('workers-failed', `no worker stays alive: ${lately}`));
      return;
    }
    const againMs = this.#shortLives === 0 ? 0 : FIRST_WAIT_MS * 2 ** (this.#shortLives - 1);
    this.#replace(worker, ending, Math.min(againMs, LONGEST_WAIT_MS));
  }

  /** Gives up: none is replaced any more, and whoever opened this is told. */
  fail(error: NoriaError): void {
    this.stopReplacing();
    this.#options.onFailed(error);
  }

  #replace(worker: WorkerProcess, ending: WorkerExit, againMs: number): void {
    const wait = this.#options.clock.after(againMs, () => {
      this.#waits.delete(wait);
      void this.#bringUp(); // never rejects
    });
    this.#waits.add(wait);
    this.#options.onLost(worker, ending, againMs);
  }

  async #bringUp(): Promise<void> {
    const worker = this.#fork();
    if ((await worker.answer('loaded')) === undefined) return; // it ended, which is seen to
    try {
      await this.#options.prepare(worker);
    } catch (error) {
      worker.unfit(describeError(error));
      return;
    }
    if (this.#all.has(worker) && this.#phase !== 'ending') this.#ready.add(worker);
  }
}
