/**
 * One worker as the primary sees it: a process that is told things, asked things, and ends.
 *
 * Workers are forked by node:cluster without its scheduling: all of them accept from the same listening sockets, which the
 * primary holds, so that clients in the kernel's queue do not notice when one of them ends.
 */
import cluster, { type Worker } from 'node:cluster';
import { getCompileCacheDir } from 'node:module';
import type { Clock } from '../../core/clock.ts';
import { maskSecrets, type Secret } from '../../core/secret.ts';
import { BatchedChannel } from './batched-channel.ts';
import type { FromWorker, ToWorker } from './messages.ts';

/** Kinds of messages that are awaited, each the answer to something that was said. */
const ANSWERS = ['loaded', 'updated', 'drained'] as const;
type AnswerKind = (typeof ANSWERS)[number];
type Answer<Kind extends AnswerKind> = Extract<FromWorker, { kind: Kind }>;
/** What is told without being asked for. */
export type WorkerReport = Exclude<FromWorker, { kind: AnswerKind | 'crashed' }>;

export interface WorkerOptions {
  readonly clock: Clock;
  /** From 1 on, never used twice. */
  readonly number: number;
  /** The module that a worker runs. */
  readonly entry: string;
  readonly onReport: (report: WorkerReport) => void;
}

/** How it ended. */
export interface WorkerExit {
  /** `killed by SIGKILL`, `ended with code 1`, or why it did not start. */
  readonly how: string;
  /** What killed it. */
  readonly signal?: NodeJS.Signals;
  /** The error that nobody caught. */
  readonly stack?: string;
}

export class WorkerProcess {
  readonly number: number;
  /** Resolves when it has ended and everything that it said has been heard. */
  readonly gone: Promise<WorkerExit>;
  readonly #worker: Worker;
  readonly #link: BatchedChannel<ToWorker>;
  readonly #onReport: (report: WorkerReport) => void;
  readonly #awaited = new Map<AnswerKind, (answer: FromWorker | undefined) => void>();
  #stack: string | undefined;
  #unfitFor: string | undefined;
  #ended = false;

  /** Starts it. */
  constructor({ clock, number, entry, onReport }: WorkerOptions) {
    this.number = number;
    this.#onReport = onReport;
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    // Its standard error is for what even it cannot tell: the engine's last words.
    cluster.setupPrimary({ exec: entry, args: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const compileCache = getCompileCacheDir();
    this.#worker = cluster.fork(compileCache === undefined ? {} : { NODE_COMPILE_CACHE: compileCache });
    this.#link = new BatchedChannel(clock, (batch) => {
      this.#worker.send(batch, ignored);
    });
    this.#worker.on('message', (batch: readonly FromWorker[]) => {
      for (const message of batch) this.#hear(message);
    });
    this.gone = this.#untilGone();
  }

  /** `undefined` when it could not be started. */
  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  readonly say = (message: ToWorker): void => this.#link.say(message);

  /** The next answer of this kind; undefined when it ends before. One at a time. */
  answer<Kind extends AnswerKind>(kind: Kind): Promise<Answer<Kind> | undefined> {
    if (this.#awaited.has(kind)) throw new TypeError(`${kind} is awaited already`);
    if (this.#ended) return Promise.resolve(undefined);
    const { promise, resolve } = Promise.withResolvers<Answer<Kind> | undefined>();
    this.#awaited.set(kind, (answer) => resolve(answer as Answer<Kind> | undefined)); // kept under its kind
    return promise;
  }

  /** Ends it because it is of no use, for this reason. */
  unfit(reason: string): void {
    this.#unfitFor = reason;
    this.kill();
  }

  /** Ends it at once. */
  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }

  #hear(message: FromWorker): void {
    switch (message.kind) {
      case 'loaded':
      case 'updated':
      case 'drained':
        this.#settle(message.kind, message);
        break;
      case 'crashed':
        this.#stack = message.stack;
        break;
      default:
        this.#onReport(message);
    }
  }

  #settle(kind: AnswerKind, answer: FromWorker | undefined): void {
    const resolve = this.#awaited.get(kind);
    this.#awaited.delete(kind);
    resolve?.(answer);
  }

  async #untilGone(): Promise<WorkerExit> {
    const worker = this.#worker;
    const ended = await new Promise<WorkerExit>((resolve) => {
      let ending: WorkerExit | undefined;
      worker.on('exit', (code, signal: NodeJS.Signals | null) => {
        ending =
          signal === null ? { how: `ended with code ${code}` } : { how: `killed by ${signal}`, signal };
        if (!worker.isConnected()) resolve(ending);
      });
      // What it said last is read by then.
      worker.on('disconnect', () => ending !== undefined && resolve(ending));
      worker.on('error', (error: Error) => {
        if (worker.process.pid === undefined) resolve({ how: `could not be started: ${error.message}` });
      });
    });
    this.#ended = true;
    this.#link.close();
    for (const kind of ANSWERS) this.#settle(kind, undefined);
    const told = this.#unfitFor === undefined ? ended : { ...ended, how: `stopped: ${this.#unfitFor}` };
    return { ...told, ...(this.#stack === undefined ? {} : { stack: this.#stack }) };
  }
}

/** As it may be told: an error's text may quote whatever it was about. */
export function withoutSecrets({ how, stack }: WorkerExit, secrets: readonly Secret[]): WorkerExit {
  const masked = stack === undefined ? {} : { stack: maskSecrets(stack, secrets) };
  return { how: maskSecrets(how, secrets), ...masked };
}

/** ignored: a pipe that cannot be written to is one whose worker has gone, which is noticed by itself. */
function ignored(): void {}
