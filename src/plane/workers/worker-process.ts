/**
 * One worker process, as the primary controls it. The workers do not use the scheduling of node:cluster: all workers accept from
 * the same listening sockets, which the primary holds. When a worker exits, another worker serves the clients that wait in the
 * kernel's queue.
 */
import cluster, { type Worker } from 'node:cluster';
import { getCompileCacheDir } from 'node:module';
import type { Clock } from '../../core/clock.ts';
import { maskSecrets, type Secret } from '../../core/secret.ts';
import { BatchedChannel } from './batched-channel.ts';
import type { ForwardedEvent } from './event-columns.ts';
import { unpackEvents } from './event-columns.ts';
import type { FromWorker, ToWorker } from './messages.ts';

const ANSWERS = ['loaded', 'updated', 'drained'] as const;
type AnswerKind = (typeof ANSWERS)[number];
type WorkerAnswer<Kind extends AnswerKind> = Extract<FromWorker, { kind: Kind }>;
export type WorkerReport = Exclude<FromWorker, { kind: AnswerKind | 'crashed' | 'events' }> | ForwardedEvent;

export interface WorkerExit {
  readonly how: string;
  readonly signal?: NodeJS.Signals;
  readonly stack?: string;
}

export class WorkerProcess {
  readonly number: number;
  /** Resolves when the process has exited and all its messages have been read. */
  readonly exited: Promise<WorkerExit>;
  readonly #worker: Worker;
  readonly #channel: BatchedChannel<ToWorker>;
  readonly #onReport: (report: WorkerReport) => void;
  readonly #awaited = new Map<AnswerKind, (answer: FromWorker | undefined) => void>();
  #stack: string | undefined;
  #killReason: string | undefined;
  #hasExited = false;

  constructor(
    clock: Clock,
    { number, entry }: { readonly number: number; readonly entry: string },
    onReport: (report: WorkerReport) => void,
  ) {
    this.number = number;
    this.#onReport = onReport;
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    // The worker inherits standard error, because the JavaScript engine writes to it, for example when it runs out of
    // memory.
    cluster.setupPrimary({ exec: entry, args: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const compileCache = getCompileCacheDir();
    this.#worker = cluster.fork(compileCache === undefined ? {} : { NODE_COMPILE_CACHE: compileCache });
    this.#channel = new BatchedChannel(clock, (batch) => {
      this.#worker.send(batch, ignored);
    });
    this.#worker.on('message', (batch: readonly FromWorker[]) => {
      for (const message of batch) this.#receive(message);
    });
    this.exited = this.#untilExited();
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  readonly send = (message: ToWorker): void => this.#channel.send(message);

  nextAnswer<Kind extends AnswerKind>(kind: Kind): Promise<WorkerAnswer<Kind> | undefined> {
    if (this.#awaited.has(kind)) throw new TypeError(`a call of nextAnswer already waits for "${kind}"`);
    if (this.#hasExited) return Promise.resolve(undefined);
    const { promise, resolve } = Promise.withResolvers<WorkerAnswer<Kind> | undefined>();
    // The cast is safe: `#receive` passes an answer only to the function that waits for an answer of this kind.
    this.#awaited.set(kind, (answer) => resolve(answer as WorkerAnswer<Kind> | undefined));
    return promise;
  }

  killBecause(reason: string): void {
    this.#killReason = reason;
    this.kill();
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }

  #receive(message: FromWorker): void {
    switch (message.kind) {
      case 'loaded':
      case 'updated':
      case 'drained':
        this.#resolve(message.kind, message);
        break;
      case 'events':
        for (const event of unpackEvents(message)) this.#onReport(event);
        break;
      case 'crashed':
        this.#stack = message.stack;
        break;
      default:
        this.#onReport(message);
    }
  }

  #resolve(kind: AnswerKind, answer: FromWorker | undefined): void {
    const resolve = this.#awaited.get(kind);
    this.#awaited.delete(kind);
    resolve?.(answer);
  }

  async #untilExited(): Promise<WorkerExit> {
    const worker = this.#worker;
    const ended = await new Promise<WorkerExit>((resolve) => {
      let exit: WorkerExit | undefined;
      worker.on('exit', (code, signal: NodeJS.Signals | null) => {
        exit = signal === null ? { how: `ended with code ${code}` } : { how: `killed by ${signal}`, signal };
        if (!worker.isConnected()) resolve(exit);
      });
      // Waits for 'exit' and for 'disconnect', which follows the last message. They may come in either order.
      worker.on('disconnect', () => exit !== undefined && resolve(exit));
      worker.on('error', (error: Error) => {
        if (worker.process.pid === undefined) resolve({ how: `could not be started: ${error.message}` });
      });
    });
    this.#hasExited = true;
    this.#channel.close();
    for (const kind of ANSWERS) this.#resolve(kind, undefined);
    const how = this.#killReason === undefined ? ended.how : `stopped: ${this.#killReason}`;
    return { ...ended, how, ...(this.#stack !== undefined && { stack: this.#stack }) };
  }
}

/** Masks secrets in the text of an exit, because an error may quote a secret. */
export function withoutSecrets({ how, stack }: WorkerExit, secrets: readonly Secret[]): WorkerExit {
  return {
    how: maskSecrets(how, secrets),
    ...(stack !== undefined && { stack: maskSecrets(stack, secrets) }),
  };
}

/** ignored: the pipe breaks only when the worker exits, which 'exit' reports. */
function ignored(): void {}
