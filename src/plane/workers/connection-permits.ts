/**
 * Enforces a listener's connection limit across workers. Each connection needs a permit, and the number of permits
 * never exceeds the limit.
 *
 * The primary has a permit pool for each listener. Each worker holds some unused permits, so that it rarely has to ask
 * for one. If a worker has no unused permit, it asks the primary. If the permit pool is empty, the primary recalls the
 * unused permits of all workers. So noria refuses a client only after every worker has answered that it has no unused
 * permit, or has not answered in time.
 *
 * Messages between the two sides arrive in order.
 */
import type { Clock } from '../../core/clock.ts';

export type PermitRequest =
  | { readonly kind: 'permits.asked' }
  /** The worker's answer to `permits.recalled`. `count` is 0 if all permits of the worker are in use. */
  | { readonly kind: 'permits.returned'; readonly count: number };

export type PermitReply =
  /** The primary's answer to `permits.asked`. `count` is 0 if no permit is left. */
  { readonly kind: 'permits.granted'; readonly count: number } | { readonly kind: 'permits.recalled' };

/** How long a permit pool waits for the workers' answers to a recall. A healthy worker answers within a few ms. */
const RECALL_TIMEOUT_MS = 1_000;

interface Recall {
  readonly for: number[];
  readonly awaited: Set<number>;
  readonly timeout: Disposable;
}

export class ConnectionPermitPool {
  readonly #clock: Clock;
  readonly #send: (worker: number, reply: PermitReply) => void;
  readonly #held = new Map<number, number>();
  #free: number;
  /** Since the current recall began; `Recall.for` has those that asked before. */
  #asking: number[] = [];
  #recall: Recall | undefined;
  /** Workers that did not answer a recall in time. The permit pool sends them no further recall before they answer. */
  readonly #silent = new Set<number>();

  constructor(limit: number, clock: Clock, send: (worker: number, reply: PermitReply) => void) {
    this.#free = limit;
    this.#clock = clock;
    this.#send = send;
  }

  receive(worker: number, request: PermitRequest): void {
    if (request.kind === 'permits.asked') this.#asking.push(worker);
    else this.#takeBack(worker, request.count);
    this.#serve();
  }

  workerExited(worker: number): void {
    this.#asking = this.#asking.filter((each) => each !== worker);
    this.#takeBack(worker, this.#held.get(worker) ?? 0);
    this.#held.delete(worker);
    const recall = this.#recall;
    if (recall !== undefined) this.#recall = { ...recall, for: recall.for.filter((each) => each !== worker) };
    this.#serve();
  }

  close(): void {
    this.#recall?.timeout[Symbol.dispose]();
  }

  #takeBack(worker: number, count: number): void {
    this.#held.set(worker, (this.#held.get(worker) ?? 0) - count);
    this.#free += count;
    this.#silent.delete(worker);
    this.#recall?.awaited.delete(worker);
  }

  #serve(): void {
    while (this.#free > 0) {
      const next = this.#recall?.for.shift() ?? this.#asking.shift();
      if (next === undefined) break;
      this.#grant(next);
    }
    if (this.#recall?.awaited.size === 0) {
      for (const worker of this.#recall.for) this.#send(worker, { kind: 'permits.granted', count: 0 });
      this.#recall.timeout[Symbol.dispose]();
      this.#recall = undefined;
    }
    if (this.#recall === undefined && this.#asking.length > 0) this.#startRecall();
  }

  /** A grant of half of the free permits, divided by the number of workers, keeps recalls rare. */
  #grant(worker: number): void {
    const held = this.#held.get(worker) ?? 0;
    const workers = Math.max(2, this.#held.size);
    const count = Math.max(1, Math.floor(this.#free / (2 * workers)));
    this.#free -= count;
    this.#held.set(worker, held + count);
    this.#send(worker, { kind: 'permits.granted', count });
  }

  /**
   * Recalls the unused permits of every worker, even of the workers that asked for permits: if a client of such a
   * worker has disconnected in the meantime, the worker has an unused permit again.
   */
  #startRecall(): void {
    const holders = [...this.#held.keys()].filter((worker) => this.#canReturn(worker));
    const awaited = new Set(holders);
    const timeout = this.#clock.after(RECALL_TIMEOUT_MS, () => this.#giveUpOn(awaited));
    this.#recall = { for: this.#asking.splice(0), awaited, timeout };
    for (const worker of holders) this.#send(worker, { kind: 'permits.recalled' });
    if (holders.length === 0) this.#serve();
  }

  #canReturn(worker: number): boolean {
    return (this.#held.get(worker) ?? 0) > 0 && !this.#silent.has(worker);
  }

  #giveUpOn(awaited: Set<number>): void {
    for (const worker of awaited) this.#silent.add(worker);
    awaited.clear();
    this.#serve();
  }
}

export class ConnectionPermitHolder {
  readonly #send: (request: PermitRequest) => void;
  #held = 0;
  #used = 0;
  readonly #waiting: ((permitted: boolean) => void)[] = [];
  #asking = false;
  /** How many of the oldest in `#waiting` the current request to the primary covers. */
  #askedFor = 0;

  constructor(send: (request: PermitRequest) => void) {
    this.#send = send;
  }

  /** After true, the caller must call `release` when the connection has ended. */
  acquire(): boolean | Promise<boolean> {
    if (this.#used < this.#held) {
      this.#used += 1;
      return true;
    }
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#waiting.push(resolve);
    this.#ask();
    return promise;
  }

  release(): void {
    this.#used -= 1;
    this.#serve();
  }

  receive(reply: PermitReply): void {
    if (reply.kind === 'permits.recalled') {
      const count = this.#held - this.#used;
      this.#held = this.#used;
      this.#send({ kind: 'permits.returned', count });
      return;
    }
    this.#asking = false;
    this.#held += reply.count;
    const refused = reply.count === 0 ? this.#waiting.splice(0, this.#askedFor) : [];
    for (const resolve of refused) resolve(false);
    this.#serve();
    this.#ask();
  }

  #serve(): void {
    while (this.#used < this.#held) {
      const resolve = this.#waiting.shift();
      if (resolve === undefined) return;
      this.#used += 1;
      this.#askedFor = Math.max(0, this.#askedFor - 1);
      resolve(true);
    }
  }

  #ask(): void {
    if (this.#asking || this.#waiting.length === 0) return;
    this.#asking = true;
    this.#askedFor = this.#waiting.length;
    this.#send({ kind: 'permits.asked' });
  }
}
