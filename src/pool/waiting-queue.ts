/**
 * Clients that wait for a member, first come first served, each with a deadline; one timer for all. Clients with the same filter form a
 * line, which is skipped as a whole when no member passes the filter.
 */
import { type Clock, EarliestTimer } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import type { Candidates } from './candidates.ts';
import { isLease, type Lease, type LeaseRefusal, type LeaseRequest } from './lease.ts';
import type { Site } from './sites.ts';

type Answer = Lease | LeaseRefusal;

/** `key` is the monotonic moment of the client's deadline. */
export interface WaitingClient extends HeapNode {
  readonly request: LeaseRequest;
  candidates: Candidates;
  readonly site: Site;
  readonly sinceAt: number;
  needsDraw: boolean;
  readonly arrival: number;
  readonly answer: PromiseWithResolvers<Answer>;
}

export class WaitingQueue {
  readonly #bus: EventBus;
  readonly #sites: Set<Site>;
  readonly byRequest = new Map<number, WaitingClient>();
  readonly #lines = new Map<Candidates, Set<WaitingClient>>();
  readonly byDeadline = new Heap<WaitingClient>();
  readonly #timer: EarliestTimer;
  #arrivals = 0;
  /** When a rejected member may be used; infinite if none. Written by `retryBy` and, when it is due, by the pool. */
  retryAt = Number.POSITIVE_INFINITY;

  /** @param sites - the queue keeps in this set the sites for which clients wait. */
  constructor(clock: Clock, bus: EventBus, sites: Set<Site>, onDue: () => void) {
    this.#bus = bus;
    this.#sites = sites;
    this.#timer = new EarliestTimer(clock, () => {
      onDue();
      this.#timer.armBy(Math.min(this.byDeadline.firstKey, this.retryAt));
    });
  }

  join(
    joining: Pick<WaitingClient, 'request' | 'candidates' | 'site' | 'sinceAt' | 'needsDraw'>,
  ): Promise<Answer> {
    const { request, site, sinceAt } = joining;
    if (this.byRequest.has(request.id)) throw new TypeError(`lease request ${request.id} already waits`);
    this.#arrivals += 1;
    const client: WaitingClient = {
      ...joining,
      arrival: this.#arrivals,
      answer: Promise.withResolvers(),
      key: sinceAt + request.waitMs,
      heapIndex: -1,
    };
    this.byRequest.set(request.id, client);
    site.waitingCount += 1;
    this.#sites.add(site);
    this.byDeadline.add(client);
    this.#enterLine(client);
    this.#timer.armBy(client.key);
    return client.answer.promise;
  }

  answer(client: WaitingClient, answer: Answer, now: number): void {
    this.byRequest.delete(client.request.id);
    client.site.waitingCount -= 1;
    if (client.site.waitingCount === 0) this.#sites.delete(client.site);
    this.byDeadline.remove(client);
    this.#leaveLine(client);
    this.#bus.emit('client.waited', { ms: now - client.sinceAt, outcome: outcomeOf(answer) });
    client.answer.resolve(answer);
  }

  changeLine(client: WaitingClient, candidates: Candidates): void {
    this.#leaveLine(client);
    client.candidates = candidates;
    this.#enterLine(client);
  }

  /**
   * Calls `serve` in order of arrival. `serve` may answer the client, which then leaves
   * the queue; if it returns false, no client with the same filter can be served now.
   */
  serveEach(serve: (client: WaitingClient) => boolean): void {
    const lines = [...this.#lines.values()].map((line) => {
      const rest: Iterator<WaitingClient, undefined> = line.values();
      return { next: rest.next().value, rest };
    });
    for (;;) {
      let earliest: (typeof lines)[number] | undefined;
      for (const line of lines) {
        if (line.next === undefined) continue;
        if (line.next.arrival < (earliest?.next?.arrival ?? Number.POSITIVE_INFINITY)) earliest = line;
      }
      if (earliest?.next === undefined) return;
      earliest.next = serve(earliest.next) ? earliest.rest.next().value : undefined;
    }
  }

  retryBy(at: number): void {
    this.retryAt = Math.min(this.retryAt, at);
    this.#timer.armBy(at);
  }

  close(): void {
    this.#timer.disarm();
  }

  #enterLine(client: WaitingClient): void {
    const { candidates } = client;
    const line = this.#lines.get(candidates) ?? new Set();
    this.#lines.set(candidates, line.add(client));
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
