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
import { type ForwardedEvent, unpackEvents } from './event-columns.ts';
import {
  type FromWorker,
  type PrimaryCalls,
  RemoteCalls,
  type RemoteMessage,
  type WorkerCalls,
} from './remote-calls.ts';

export interface WorkerExit {
  readonly how: string;
  readonly signal?: NodeJS.Signals;
  readonly stack?: string;
}

export class WorkerProcess {
  readonly number: number;
  readonly calls: RemoteCalls<WorkerCalls, PrimaryCalls>;
  /** Whether the process has loaded its code; false if it exited before. */
  readonly loaded: Promise<boolean>;
  /** Resolves when the process has exited and all its messages have been read. */
  readonly exited: Promise<WorkerExit>;
  readonly #worker: Worker;
  readonly #channel: BatchedChannel<RemoteMessage>;
  readonly #onEvent: (event: ForwardedEvent) => void;
  readonly #loading = Promise.withResolvers<boolean>();
  #stack: string | undefined;
  #killReason: string | undefined;

  constructor(
    clock: Clock,
    { number, entry }: { readonly number: number; readonly entry: string },
    onEvent: (event: ForwardedEvent) => void,
  ) {
    this.number = number;
    this.loaded = this.#loading.promise;
    this.#onEvent = onEvent;
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    // The worker inherits standard error, because the JavaScript engine writes to it, for example when it runs out of
    // memory.
    cluster.setupPrimary({ exec: entry, args: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const compileCache = getCompileCacheDir();
    this.#worker = cluster.fork(compileCache === undefined ? {} : { NODE_COMPILE_CACHE: compileCache });
    this.#channel = new BatchedChannel(clock, (batch) => {
      this.#worker.send(batch, ignored);
    });
    this.calls = new RemoteCalls(this.#channel.send);
    this.#worker.on('message', (batch: readonly FromWorker[]) => {
      for (const message of batch) this.#receive(message);
    });
    this.exited = this.#untilExited();
  }

  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  killBecause(reason: string): void {
    this.#killReason = reason;
    this.kill();
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }

  #receive(message: FromWorker): void {
    if (message.kind === 'loaded') this.#loading.resolve(true);
    else if (message.kind === 'crashed') this.#stack = message.stack;
    else if (message.kind === 'events') for (const event of unpackEvents(message)) this.#onEvent(event);
    else this.calls.receive(message);
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
    this.#channel.close();
    this.#loading.resolve(false);
    this.calls.close();
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
