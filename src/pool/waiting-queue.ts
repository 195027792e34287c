/**
 * Clients that wait for a member, in the order of their coming, each with its own deadline and all on one timer.
 *
 * They stand in a line for each kind of wish, so that those whose wish nobody can meet hold up no one else.
 */
import type { Clock } from '../core/clock.ts';
import { EarliestTimer } from '../core/earliest-timer.ts';
import type { Candidates } from './candidates.ts';
import { Heap, type HeapNode } from './heap.ts';
import type { Lease, LeaseRefusal, LeaseRequest } from './lease.ts';

type Answer = Lease | LeaseRefusal;

/** How a client comes to wait. */
export interface Arrival {
  readonly ladder: Candidates;
  readonly now: number;
  /** Whether another member that is drawn could serve it. */
  readonly drawHelps: boolean;
}

/** One client that waits. */
export class Waiter implements HeapNode {
  readonly request: LeaseRequest;
  readonly resolve: (answer: Answer) => void;
  readonly sinceAt: number;
  readonly drawHelps: boolean;
  /** Its number in the order of coming. */
  readonly ticket: number;
  ladder: Candidates;
  /** Its deadline. */
  key: number;
  place = -1;

  constructor(request: LeaseRequest, arrival: Arrival, ticket: number, resolve: (answer: Answer) => void) {
    this.request = request;
    this.resolve = resolve;
    this.sinceAt = arrival.now;
    this.drawHelps = arrival.drawHelps;
    this.ticket = ticket;
    this.ladder = arrival.ladder;
    this.key = arrival.now + request.waitMs;
  }
}

/** One client's turn to be served. */
export interface WaiterTurn {
  readonly waiter: Waiter;
  /** Nobody behind it in its line needs a turn. */
  endLine(): void;
}

/** All that wait, up to a limit. */
export class Waiting {
  readonly #byId = new Map<number, Waiter>();
  readonly #lines = new Map<Candidates, Set<Waiter>>();
  readonly #deadlines = new Heap<Waiter>();
  readonly #alarm: EarliestTimer;
  readonly #limit: number;
  #tickets = 0;
  #retryAt = Number.POSITIVE_INFINITY;

  /** @param onDue - called when a deadline, or a moment given to `retryAt`, has come. */
  constructor(clock: Clock, limit: number, onDue: () => void) {
    this.#limit = limit;
    this.#alarm = new EarliestTimer(clock, () => {
      onDue();
      this.#alarm.armBy(Math.min(this.#deadlines.firstKey, this.#retryAt));
    });
  }

  get size(): number {
    return this.#byId.size;
  }

  get full(): boolean {
    return this.#byId.size >= this.#limit;
  }

  /** The answer to a request that waits from now on. @throws TypeError when one of the same id waits already. */
  join(request: LeaseRequest, arrival: Arrival): Promise<Answer> {
    if (this.#byId.has(request.id)) throw new TypeError(`lease request ${request.id} is under way already`);
    this.#tickets += 1;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const waiter = new Waiter(request, arrival, this.#tickets, resolve);
    this.#byId.set(request.id, waiter);
    this.#deadlines.add(waiter);
    this.#stand(waiter);
    this.#alarm.armBy(waiter.key);
    return promise;
  }

  find(requestId: number): Waiter | undefined {
    return this.#byId.get(requestId);
  }

  all(): IterableIterator<Waiter> {
    return this.#byId.values();
  }

  /** Takes it out; whoever does answers it. */
  leave(waiter: Waiter): void {
    this.#byId.delete(waiter.request.id);
    this.#deadlines.remove(waiter);
    this.#unstand(waiter);
  }

  /** Moves it to the end of another ladder's line, when its own is dead. */
  change(waiter: Waiter, ladder: Candidates): void {
    this.#unstand(waiter);
    waiter.ladder = ladder;
    this.#stand(waiter);
  }

  /** Those who might be served now, in the order of their coming. Each may leave in its turn. */
  *inOrder(): Generator<WaiterTurn> {
    const lines = [...this.#lines].filter(([ladder]) => ladder.hasSeats).map(([, line]) => new Line(line));
    for (let line = earliest(lines); line !== undefined; line = earliest(lines)) {
      const { head } = line;
      if (head === undefined) return;
      const served = line;
      let ended = false;
      yield {
        waiter: head,
        endLine: () => {
          ended = true;
        },
      };
      if (ended) served.end();
      else served.advance();
    }
  }

  /** The one whose deadline has passed longest ago, if there is one. */
  due(now: number): Waiter | undefined {
    return this.#deadlines.firstKey <= now ? this.#deadlines.first : undefined;
  }

  /** At this moment somebody may be served for whom no member is free now. */
  retryAt(at: number): void {
    this.#retryAt = Math.min(this.#retryAt, at);
    this.#alarm.armBy(at);
  }

  /** Whether such a moment has come; it is over with this. */
  mayRetry(now: number): boolean {
    if (this.#retryAt > now) return false;
    this.#retryAt = Number.POSITIVE_INFINITY;
    return true;
  }

  /** Stops the timer. */
  close(): void {
    this.#alarm.disarm();
  }

  #stand(waiter: Waiter): void {
    const { ladder } = waiter;
    let line = this.#lines.get(ladder);
    if (line === undefined) {
      line = new Set();
      this.#lines.set(ladder, line);
    }
    line.add(waiter);
    ladder.waitingCount += 1;
    if (waiter.drawHelps) ladder.wantingCount += 1;
  }

  #unstand(waiter: Waiter): void {
    const { ladder } = waiter;
    const line = this.#lines.get(ladder);
    if (line?.delete(waiter) !== true) return;
    ladder.waitingCount -= 1;
    if (waiter.drawHelps) ladder.wantingCount -= 1;
    if (line.size === 0) this.#lines.delete(ladder);
  }
}

/** A line while it is served: its first, and those behind. Waiters may leave it meanwhile. */
class Line {
  head: Waiter | undefined;
  readonly #rest: Iterator<Waiter>;

  constructor(waiters: Set<Waiter>) {
    this.#rest = waiters.values();
    this.advance();
  }

  advance(): void {
    const step = this.#rest.next();
    this.head = step.done === true ? undefined : step.value;
  }

  end(): void {
    this.head = undefined;
  }
}

/** The line whose first came before those of the others. */
function earliest(lines: readonly Line[]): Line | undefined {
  let found: Line | undefined;
  let ticket = Number.POSITIVE_INFINITY;
  for (const line of lines) {
    if (line.head === undefined || line.head.ticket >= ticket) continue;
    found = line;
    ticket = line.head.ticket;
  }
  return found;
}
