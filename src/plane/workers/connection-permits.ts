/**
 * The limit on one listener's connections where several workers accept them: a permit for each connection, the office in
 * the primary, and each worker with some in stock, so that almost none has to be asked for.
 *
 * There are never more permits than the limit allows. A worker that runs out asks; when the office has none left, the other
 * workers give back what they do not use. So a client is refused only after every worker has said that it has nothing to spare,
 * or has said nothing for so long that it hangs. What both sides say goes through functions, in order.
 */
import type { Clock } from '../../core/clock.ts';

/** What a worker says to the office. */
export type PermitRequest =
  | { readonly kind: 'permits.asked' }
  /** The answer to `permits.wanted`; 0 when it uses all it has. */
  | { readonly kind: 'permits.returned'; readonly count: number };

/** What the office says to a worker. */
export type PermitOrder =
  /** The answer to `permits.asked`; 0 when there is none. */
  | { readonly kind: 'permits.given'; readonly count: number }
  /** To be answered with those it does not use. */
  | { readonly kind: 'permits.wanted' };

/** How long a worker may take to give back what it does not use: one that answers at all does so within some ms. */
const RECALL_PATIENCE_MS = 1_000;

/** The others are being asked to give back, for those who asked before. */
interface Round {
  readonly for: number[];
  readonly awaited: Set<number>;
  readonly patience: Disposable;
}

/** One for each listener, in the primary. */
export class PermitPool {
  readonly #clock: Clock;
  readonly #say: (worker: number, order: PermitOrder) => void;
  /** How many each worker has, in stock and in use. */
  readonly #held = new Map<number, number>();
  #free: number;
  /** Workers that wait for an answer; each is in here or in the round at most once. */
  #asking: number[] = [];
  #round: Round | undefined;
  /** Workers that did not answer in time: their answer is still to come, and they are not asked again before. */
  readonly #silent = new Set<number>();

  /** @param limit - connections in all. */
  constructor(limit: number, clock: Clock, say: (worker: number, order: PermitOrder) => void) {
    this.#free = limit;
    this.#clock = clock;
    this.#say = say;
  }

  hear(worker: number, request: PermitRequest): void {
    if (request.kind === 'permits.asked') this.#asking.push(worker);
    else this.#take(worker, request.count);
    this.#serve();
  }

  /** A worker has ended, and all its connections with it. */
  gone(worker: number): void {
    this.#asking = this.#asking.filter((each) => each !== worker);
    this.#take(worker, this.#held.get(worker) ?? 0);
    this.#held.delete(worker);
    const round = this.#round;
    if (round !== undefined) this.#round = { ...round, for: round.for.filter((each) => each !== worker) };
    this.#serve();
  }

  /** Nobody is answered any more. */
  close(): void {
    this.#round?.patience[Symbol.dispose]();
  }

  #take(worker: number, count: number): void {
    this.#held.set(worker, (this.#held.get(worker) ?? 0) - count);
    this.#free += count;
    this.#silent.delete(worker);
    this.#round?.awaited.delete(worker);
  }

  #serve(): void {
    while (this.#free > 0) {
      const next = this.#round?.for.shift() ?? this.#asking.shift();
      if (next === undefined) break;
      this.#give(next);
    }
    if (this.#round?.awaited.size === 0) {
      for (const worker of this.#round.for) this.#say(worker, { kind: 'permits.given', count: 0 });
      this.#round.patience[Symbol.dispose]();
      this.#round = undefined;
    }
    if (this.#round === undefined && this.#asking.length > 0) this.#recall();
  }

  /** Half a fair share of what is left, so that the last ones are given singly and seldom have to be recalled. */
  #give(worker: number): void {
    const held = this.#held.get(worker) ?? 0;
    const workers = Math.max(2, this.#held.size);
    const count = Math.max(1, Math.floor(this.#free / (2 * workers)));
    this.#free -= count;
    this.#held.set(worker, held + count);
    this.#say(worker, { kind: 'permits.given', count });
  }

  /** From those who ask, too: they may have got some back meanwhile, and more than they need. */
  #recall(): void {
    const holders = [...this.#held.keys()].filter((worker) => this.#mayReturn(worker));
    const awaited = new Set(holders);
    const patience = this.#clock.after(RECALL_PATIENCE_MS, () => this.#goOnWithout(awaited));
    this.#round = { for: this.#asking.splice(0), awaited, patience };
    for (const worker of holders) this.#say(worker, { kind: 'permits.wanted' });
    if (holders.length === 0) this.#serve();
  }

  #mayReturn(worker: number): boolean {
    return (this.#held.get(worker) ?? 0) > 0 && !this.#silent.has(worker);
  }

  #goOnWithout(awaited: Set<number>): void {
    for (const worker of awaited) this.#silent.add(worker);
    awaited.clear();
    this.#serve();
  }
}

/** One for each listener, in every worker. */
export class PermitHolder {
  readonly #say: (request: PermitRequest) => void;
  /** Stock and in use together. */
  #held = 0;
  #used = 0;
  readonly #waiting: ((permitted: boolean) => void)[] = [];
  #asking = false;
  /** Of those who wait, how many had come before the request that is under way. */
  #askedFor = 0;

  constructor(say: (request: PermitRequest) => void) {
    this.#say = say;
  }

  /** For one connection: at once where there is one in stock. Whoever gets `true` gives it back by `release`. */
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

  hear(order: PermitOrder): void {
    if (order.kind === 'permits.wanted') {
      const count = this.#held - this.#used;
      this.#held = this.#used;
      this.#say({ kind: 'permits.returned', count });
      return;
    }
    this.#asking = false;
    this.#held += order.count;
    const refused = order.count === 0 ? this.#waiting.splice(0, this.#askedFor) : [];
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

  /** One request at a time. */
  #ask(): void {
    if (this.#asking || this.#waiting.length === 0) return;
    this.#asking = true;
    this.#askedFor = this.#waiting.length;
    this.#say({ kind: 'permits.asked' });
  }
}
