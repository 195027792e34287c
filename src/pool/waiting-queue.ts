/**
 * The waiting queue: clients that wait for a member, first come first served, each with a deadline.
 *
 * It owns the waiting clients and one timer for all of them. Clients with the same filter form a line, so that the queue can skip
 * the whole line when no member passes the filter.
 */
import type { Clock } from '../core/clock.ts';
import { EarliestTimer } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import type { Candidates } from './candidates.ts';
import { isLease, type Lease, type LeaseRefusal, type LeaseRequest } from './lease.ts';

type Answer = Lease | LeaseRefusal;

/**
 * What `serveEach` does after a call of `serve` for a client. `done`: continues with the next client. `line-blocked`:
 * skips all other clients with the same filter, because none of them can be served now.
 */
export type ServeResult = 'done' | 'line-blocked';

interface WaitingTerms {
  readonly candidates: Candidates;
  readonly now: number;
  /** Whether a newly drawn member could serve the client. */
  readonly needsDraw: boolean;
}

/** A client that waits. `key` is the monotonic moment of its deadline. */
export class WaitingClient implements HeapNode {
  readonly request: LeaseRequest;
  readonly resolve: (answer: Answer) => void;
  readonly sinceAt: number;
  readonly needsDraw: boolean;
  readonly arrival: number;
  candidates: Candidates;
  key: number;
  heapIndex = -1;

  constructor(
    request: LeaseRequest,
    { candidates, now, needsDraw, arrival }: WaitingTerms & { readonly arrival: number },
    resolve: (answer: Answer) => void,
  ) {
    this.request = request;
    this.resolve = resolve;
    this.sinceAt = now;
    this.needsDraw = needsDraw;
    this.arrival = arrival;
    this.candidates = candidates;
    this.key = now + request.waitMs;
  }
}

export class WaitingQueue {
  readonly #bus: EventBus;
  readonly #byRequest = new Map<number, WaitingClient>();
  readonly #lines = new Map<Candidates, Set<WaitingClient>>();
  readonly #byDeadline = new Heap<WaitingClient>();
  readonly #timer: EarliestTimer;
  #arrivals = 0;
  #retryAt = Number.POSITIVE_INFINITY;

  /** @param onDue - called when a deadline or a retry is due. */
  constructor(clock: Clock, bus: EventBus, onDue: () => void) {
    this.#bus = bus;
    this.#timer = new EarliestTimer(clock, () => {
      onDue();
      this.#timer.armBy(Math.min(this.#byDeadline.firstKey, this.#retryAt));
    });
  }

  get size(): number {
    return this.#byRequest.size;
  }

  /**
   * Adds a client.
   * @throws TypeError if a request with the same id already waits.
   */
  join(request: LeaseRequest, terms: WaitingTerms): Promise<Answer> {
    if (this.#byRequest.has(request.id)) throw new TypeError(`lease request ${request.id} already waits`);
    this.#arrivals += 1;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const client = new WaitingClient(request, { ...terms, arrival: this.#arrivals }, resolve);
    this.#byRequest.set(request.id, client);
    this.#byDeadline.add(client);
    this.#enterLine(client);
    this.#timer.armBy(client.key);
    return promise;
  }

  find(requestId: number): WaitingClient | undefined {
    return this.#byRequest.get(requestId);
  }

  all(): IterableIterator<WaitingClient> {
    return this.#byRequest.values();
  }

  answer(client: WaitingClient, answer: Answer, now: number): void {
    this.#byRequest.delete(client.request.id);
    this.#byDeadline.remove(client);
    this.#leaveLine(client);
    this.#bus.emit('client.waited', { ms: now - client.sinceAt, outcome: outcomeOf(answer) });
    client.resolve(answer);
  }

  /** Moves a client to the end of the line for `candidates`. Call it when the client's previous candidates are stale. */
  changeLine(client: WaitingClient, candidates: Candidates): void {
    this.#leaveLine(client);
    client.candidates = candidates;
    this.#enterLine(client);
  }

  /**
   * Calls `serve` for the waiting clients in order of arrival. Skips a client if no pickable member passes its filter.
   * `serve` may answer the client, which then leaves the queue.
   */
  serveEach(serve: (client: WaitingClient) => ServeResult): void {
    const lines: LineCursor[] = [];
    for (const [candidates, line] of this.#lines) if (!candidates.isEmpty) lines.push(new LineCursor(line));
    for (let line = earliestLine(lines); line?.client !== undefined; line = earliestLine(lines)) {
      if (serve(line.client) === 'line-blocked') line.client = undefined;
      else line.advance();
    }
  }

  /** Returns the client with the earliest deadline; undefined if no deadline has passed. */
  overdue(now: number): WaitingClient | undefined {
    return this.#byDeadline.firstKey <= now ? this.#byDeadline.first : undefined;
  }

  /**
   * Schedules a retry at the moment `at`, when a member may be used again: after the minimum time between two uses
   * of the member, or when a time slot starts in which this process may use it.
   */
  retryAt(at: number): void {
    this.#retryAt = Math.min(this.#retryAt, at);
    this.#timer.armBy(at);
  }

  /** Returns whether a retry is due. If so, removes it from the schedule. */
  takeRetry(now: number): boolean {
    if (this.#retryAt > now) return false;
    this.#retryAt = Number.POSITIVE_INFINITY;
    return true;
  }

  close(): void {
    this.#timer.disarm();
  }

  #enterLine(client: WaitingClient): void {
    const { candidates } = client;
    let line = this.#lines.get(candidates);
    if (line === undefined) {
      line = new Set();
      this.#lines.set(candidates, line);
    }
    line.add(client);
    candidates.waitingCount += 1;
    if (client.needsDraw) candidates.waitingForDrawCount += 1;
  }

  #leaveLine(client: WaitingClient): void {
    const { candidates } = client;
    const line = this.#lines.get(candidates);
    if (line?.delete(client) !== true) return;
    candidates.waitingCount -= 1;
    if (client.needsDraw) candidates.waitingForDrawCount -= 1;
    if (line.size === 0) this.#lines.delete(candidates);
  }
}

function outcomeOf(answer: Answer): 'served' | 'gave-up' | 'refused' {
  if (isLease(answer)) return 'served';
  return answer.code === 'client-gone' ? 'gave-up' : 'refused';
}

/** Walks through a line: the clients that wait for the same candidates, in order of arrival. */
class LineCursor {
  /** The client at the current position; undefined after the last client. */
  client: WaitingClient | undefined;
  readonly #clients: Iterator<WaitingClient>;

  constructor(line: Set<WaitingClient>) {
    this.#clients = line.values();
    this.advance();
  }

  advance(): void {
    const step = this.#clients.next();
    this.client = step.done === true ? undefined : step.value;
  }
}

function earliestLine(lines: readonly LineCursor[]): LineCursor | undefined {
  let earliest: LineCursor | undefined;
  let arrival = Number.POSITIVE_INFINITY;
  for (const line of lines) {
    if (line.client === undefined || line.client.arrival >= arrival) continue;
    earliest = line;
    arrival = line.client.arrival;
  }
  return earliest;
}
