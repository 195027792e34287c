/**
 * Keeps the configured number of worker processes running: starts them, and replaces a worker that exits. It owns the processes.
 * The caller decides what the workers do.
 */
import type { Clock } from '../../core/clock.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import type { ForwardedEvent } from './event-columns.ts';
import { SIGNALS_FOR_PRIMARY } from './remote-calls.ts';
import { type WorkerExit, WorkerProcess } from './worker-process.ts';

export interface WorkerSupervisorOptions {
  readonly clock: Clock;
  readonly entry: string;
  readonly wanted: number;
  readonly onEvent: (worker: WorkerProcess, event: ForwardedEvent) => void;
  readonly prepare: (worker: WorkerProcess) => Promise<void>;
  readonly onLost: (worker: WorkerProcess, exit: WorkerExit, restartMs: number) => void;
  readonly onExit: (worker: WorkerProcess) => void;
  readonly onFailed: (error: NoriaError) => void;
}

/** If a worker ran at least this long, in ms, its exit does not count as a failed start. */
const STABLE_MS = 10_000;
const FIRST_RESTART_MS = 500;
const MAX_RESTART_MS = 30_000;
/** In a row, within STABLE_MS of their start, when no worker is left. */
const MAX_SHORT_LIVES = 6;
/** The time in ms that all workers together have to close. noria itself must exit within 5 s after the drain. */
const CLOSE_TIMEOUT_MS = 2_000;
/**
 * A terminal sends these signals to all processes. A worker that is still loading cannot ignore them yet, so its exit
 * by such a signal is no failure. The primary gets the same signal and decides whether noria continues.
 */
const SENT_TO_ALL: ReadonlySet<NodeJS.Signals> = new Set(SIGNALS_FOR_PRIMARY);
/** Of a worker that a signal in SENT_TO_ALL ended while it was loading. */
const MAX_STARTS = 3;

export class WorkerSupervisor {
  readonly #options: WorkerSupervisorOptions;
  readonly #all = new Set<WorkerProcess>();
  readonly #ready = new Set<WorkerProcess>();
  readonly #restarts = new Set<Disposable>();
  #phase: 'opening' | 'running' | 'ending' = 'opening';
  #lastNumber = 0;
  #shortLives = 0;

  constructor(options: WorkerSupervisorOptions) {
    this.#options = options;
  }

  get ready(): readonly WorkerProcess[] {
    return [...this.#ready];
  }

  async open(): Promise<void> {
    await Promise.all(Array.from({ length: this.#options.wanted }, () => this.#start()));
    this.#phase = 'running';
  }

  stopReplacing(): void {
    this.#phase = 'ending';
    for (const restart of this.#restarts) restart[Symbol.dispose]();
    this.#restarts.clear();
    for (const worker of this.#all) if (!this.#ready.has(worker)) worker.kill();
  }

  async close(): Promise<void> {
    this.stopReplacing();
    const timeout = this.#options.clock.after(CLOSE_TIMEOUT_MS, () => {
      for (const worker of this.#all) worker.kill();
    });
    for (const worker of this.#ready) worker.calls.call('close');
    await Promise.all([...this.#all].map(({ exited }) => exited));
    timeout[Symbol.dispose]();
  }

  fail(error: NoriaError): void {
    this.stopReplacing();
    this.#options.onFailed(error);
  }

  async #start(): Promise<void> {
    for (let starts = 1; ; starts += 1) {
      const worker = this.#fork();
      if (await worker.loaded) {
        this.#ready.add(worker);
        return;
      }
      const { how, signal, stack } = await worker.exited;
      const interrupted = signal !== undefined && SENT_TO_ALL.has(signal);
      if (interrupted && starts < MAX_STARTS && this.#phase === 'opening') continue;
      const why = stack === undefined ? how : `${how}: ${stack}`;
      throw new NoriaError('workers-failed', `a worker did not start: ${why}`);
    }
  }

  #fork(): WorkerProcess {
    const { clock, entry, onEvent } = this.#options;
    this.#lastNumber += 1;
    const startedAt = clock.monotonic();
    const worker: WorkerProcess = new WorkerProcess(clock, { number: this.#lastNumber, entry }, (event) =>
      onEvent(worker, event),
    );
    this.#all.add(worker);
    void worker.exited.then((exit) => this.#onExit(worker, exit, clock.monotonic() - startedAt)); // this promise never rejects
    return worker;
  }

  #onExit(worker: WorkerProcess, exit: WorkerExit, livedMs: number): void {
    this.#all.delete(worker);
    const wasReady = this.#ready.delete(worker);
    this.#options.onExit(worker);
    // While noria starts, `#start` handles the exit of a worker that has not loaded.
    if (this.#phase === 'ending' || (this.#phase === 'opening' && !wasReady)) return;
    this.#shortLives = livedMs >= STABLE_MS ? 0 : this.#shortLives + 1;
    if (this.#all.size === 0 && this.#shortLives >= MAX_SHORT_LIVES) {
      const seconds = STABLE_MS / 1_000;
      const why = `the last ${this.#shortLives} workers exited within ${seconds} s of their start; reason of the last exit: ${exit.how}`;
      this.fail(new NoriaError('workers-failed', `all workers keep exiting: ${why}`));
      return;
    }
    const delayMs = this.#shortLives === 0 ? 0 : FIRST_RESTART_MS * 2 ** (this.#shortLives - 1);
    this.#restartAfter(Math.min(delayMs, MAX_RESTART_MS), worker, exit);
  }

  #restartAfter(delayMs: number, lost: WorkerProcess, exit: WorkerExit): void {
    const restart = this.#options.clock.after(delayMs, () => {
      this.#restarts.delete(restart);
      void this.#startReplacement(); // this promise never rejects
    });
    this.#restarts.add(restart);
    this.#options.onLost(lost, exit, delayMs);
  }

  async #startReplacement(): Promise<void> {
    const worker = this.#fork();
    if (!(await worker.loaded)) return; // ignored: the worker exited, and `#onExit` starts another worker
    try {
      await this.#options.prepare(worker);
    } catch (error) {
      worker.killBecause(describeError(error));
      return;
    }
    if (this.#all.has(worker) && this.#phase !== 'ending') this.#ready.add(worker);
  }
}
