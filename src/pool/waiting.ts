/**
 * Clients that wait for a member, in the order of their coming, each with its own deadline and all on one timer.
 *
 * They stand in a line for each kind of wish, so that those whose wish nobody can meet hold up no one else.
 */
import type { Clock } from '../core/clock.ts';
import { Alarm } from './alarm.ts';
import { Heap, type HeapNode } from './heap.ts';
import type { Ladder } from './lanes.ts';
import type { Lease, LeaseRequest, Refusal } from './lease.ts';

/** One client that waits. Its key is its deadline. */
export class Waiter implements HeapNode {
  readonly request: LeaseRequest;
  readonly resolve: (answer: Lease | Refusal) => void;
  readonly sinceAt: number;
  /** Its number in the order of coming. */
  readonly ticket: number;
  ladder: Ladder;
  key: number;
  place = -1;

  constructor(
    request: LeaseRequest,
    ladder: Ladder,
    arrival: { readonly now: number; readonly ticket: number },
    resolve: (answer: Lease | Refusal) => void,
  ) {
    this.request = request;
    this.ladder = ladder;
    this.sinceAt = arrival.now;
    this.ticket = arrival.ticket;
    this.key = arrival.now + request.waitMs;
    this.resolve = resolve;
  }
}

export class Waiting {
  readonly #byId = new Map<number, Waiter>();
  readonly #lines = new Map<Ladder, Set<Waiter>>();
  readonly #deadlines = new Heap<Waiter>();
  readonly #alarm: Alarm;
  #tickets = 0;

  /** @param onDue - called when a deadline, or a moment given to `wakeBy`, has come. */
  constructor(clock: Clock, onDue: () => void) {
    this.#alarm = new Alarm(clock, () => {
      onDue();
      this.#alarm.setBy(this.#deadlines.firstKey);
    });
  }

  get size(): number {
    return this.#byId.size;
  }

  /** The answer to a request that waits from `now` on. */
  join(request: LeaseRequest, ladder: Ladder, now: number): Promise<Lease | Refusal> {
    this.#tickets += 1;
    const arrival = { now, ticket: this.#tickets };
    return new Promise((resolve) => {
      const waiter = new Waiter(request, ladder, arrival, resolve);
      this.#byId.set(request.id, waiter);
      this.#deadlines.add(waiter);
      this.#stand(waiter);
      this.#alarm.setBy(waiter.key);
    });
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

  /** Moves it to the line of another ladder, when its own is dead. */
  change(waiter: Waiter, ladder: Ladder): void {
    this.#unstand(waiter);
    waiter.ladder = ladder;
    this.#stand(waiter);
  }

  /** The lines in which members may be given out now. */
  lines(): Set<Waiter>[] {
    const lines: Set<Waiter>[] = [];
    for (const [ladder, line] of this.#lines) if (ladder.hasSeats) lines.push(line);
    return lines;
  }

  /** The one whose deadline has passed longest ago, if there is one. */
  due(now: number): Waiter | undefined {
    const first = this.#deadlines.first;
    return first !== undefined && first.key <= now ? first : undefined;
  }

  /** Calls `onDue` not later than at this moment, though no deadline is due. */
  wakeBy(at: number): void {
    this.#alarm.setBy(at);
  }

  /** Stops the timer. */
  close(): void {
    this.#alarm.close();
  }

  #stand(waiter: Waiter): void {
    const { ladder } = waiter;
    let line = this.#lines.get(ladder);
    if (line === undefined) {
      line = new Set();
      this.#lines.set(ladder, line);
    }
    line.add(waiter);
    ladder.waitingCount = line.size;
  }

  #unstand(waiter: Waiter): void {
    const { ladder } = waiter;
    const line = this.#lines.get(ladder);
    if (line === undefined) return;
    line.delete(waiter);
    ladder.waitingCount = line.size;
    if (line.size === 0) this.#lines.delete(ladder);
  }
}
