/**
 * Requests for leases: each request gets a lease at once, waits for a lease, or is refused. This class owns the waiting clients
 * and their timer.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { type Candidates, QUIET_MS } from './candidates.ts';
import { needsDraw, searchedSources } from './demand.ts';
import { filterOf, whyImpossible } from './filter.ts';
import type {
  Lease,
  LeaseRefusal,
  LeaseRequest,
  RoutingOptions,
  SourceForecast,
  UpcomingMember,
  UpcomingQuery,
} from './lease.ts';
import { LeaseRefusals } from './lease-refusals.ts';
import type { Leases } from './leases.ts';
import type { Member, PoolSource } from './member.ts';
import type { Members } from './members.ts';
import type { AssignmentRequest, Picker } from './picker.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';
import { type ServeResult, type WaitingClient, WaitingQueue } from './waiting-queue.ts';

const SHUTTING_DOWN: LeaseRefusal = {
  code: 'shutting-down',
  reason: 'noria is shutting down.',
  sources: [],
};
const CLIENT_LEFT: LeaseRefusal = {
  code: 'client-gone',
  reason: 'The client disconnected while it waited for a member.',
  sources: [],
};

interface RequestParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly members: Members;
  readonly sessions: Sessions;
  readonly leases: Leases;
  readonly picker: Picker;
  readonly forecasts: () => readonly SourceForecast[];
  readonly maxWaiting: number;
}

export class Requests {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #members: Members;
  readonly #sessions: Sessions;
  readonly #leases: Leases;
  readonly #picker: Picker;
  readonly #maxWaiting: number;
  readonly #queue: WaitingQueue;
  readonly #refusals: LeaseRefusals;
  readonly #sourceMoves: Disposable;
  waitingElsewhere = 0;
  #closed = false;

  constructor({ clock, bus, members, sessions, leases, picker, forecasts, maxWaiting }: RequestParts) {
    this.#clock = clock;
    this.#bus = bus;
    this.#members = members;
    this.#sessions = sessions;
    this.#leases = leases;
    this.#picker = picker;
    this.#maxWaiting = maxWaiting;
    this.#queue = new WaitingQueue(clock, bus, () => this.#onQueueDue());
    this.#refusals = new LeaseRefusals(members, forecasts);
    this.#sourceMoves = bus.on('source.moved', () => this.refuseHopeless());
  }

  get waitingCount(): number {
    return this.#queue.size + this.waitingElsewhere;
  }

  get waitingHere(): number {
    return this.#queue.size;
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    if (this.#closed) return SHUTTING_DOWN;
    const now = this.#clock.monotonic();
    this.#catchUp(now); // clients that already wait get free members first
    const impossible = this.#whyImpossible(request.routing);
    if (impossible !== undefined) return badRouting(impossible);
    const candidates = this.#members.candidates(filterOf(request.routing), now);
    const lease = this.#tryLease(request, candidates, now, now);
    if (this.#picker.check.endedQuiet) this.#emitDemand(candidates, now);
    return lease ?? this.#wait(request, candidates, now);
  }

  upcoming({ routing, count, isKnown }: UpcomingQuery): readonly UpcomingMember[] {
    if (this.#closed) return [];
    const now = this.#clock.monotonic();
    this.#members.update(now);
    const minEndsAt = now + (routing.minLifeMs ?? 0);
    return this.#nextMembers(routing, count, now)
      .filter((member) => !member.source.isFull && member.endsAt >= minEndsAt && !isKnown(member.id))
      .map((member) => ({
        member: member.id,
        source: member.source.name,
        protocol: member.protocol,
        host: member.host,
        port: member.port,
        ...(member.login !== undefined && { login: member.login }),
        ...(!member.endIsAssumed && { remainingMs: member.endsAt - now }),
      }));
  }

  #nextMembers(routing: RoutingOptions, count: number, now: number): readonly Member[] {
    if (routing.session === undefined) {
      return this.#members.candidates(filterOf(routing), now).upcoming(count, now);
    }
    const member = this.#members.find(this.#sessions.find(routing.session)?.member);
    return member?.bucket === 'fresh' ? [member] : [];
  }

  cancel(requestId: number): void {
    const client = this.#queue.find(requestId);
    if (client !== undefined) this.#queue.answer(client, CLIENT_LEFT, this.#clock.monotonic());
  }

  /**
   * Gives a session a member that can serve it now; undefined if there is none. Counts as demand for the member's
   * source.
   */
  assignMember(request: AssignmentRequest): Member | undefined {
    const now = this.#clock.monotonic();
    this.#catchUp(now);
    if (this.#closed || this.#whyImpossible(request.routing) !== undefined) return undefined;
    const candidates = this.#members.candidates(filterOf(request.routing), now);
    const member = this.#picker.assign(request, candidates, now);
    if (this.#picker.check.endedQuiet) this.#emitDemand(candidates, now);
    if (member !== undefined) this.#recordSessionDemand(member.source, now);
    return member;
  }

  isWorthWaiting(routing: RoutingOptions, waitMs: number): boolean {
    if (this.#closed || this.#whyImpossible(routing) !== undefined) return false;
    const request = { id: 0, routing, targetHost: '', avoid: [], waitMs };
    return this.#refusals.judge(this.#clock.monotonic())(request, waitMs) === undefined;
  }

  refusalFor(routing: RoutingOptions): LeaseRefusal {
    const impossible = this.#whyImpossible(routing);
    if (impossible !== undefined) return badRouting(impossible);
    return this.#refusals.poolEmpty('No member that can serve this request is free.', routing);
  }

  /**
   * Applies new settings to the waiting clients. Moves each client to the candidates of the new settings, or refuses it
   * if these settings allow no member that satisfies its options.
   */
  reconsider(now: number): void {
    for (const client of this.#queue.all()) {
      const { routing } = client.request;
      const impossible = this.#whyImpossible(routing);
      if (impossible === undefined) {
        this.#queue.changeLine(client, this.#members.candidates(filterOf(routing), now));
      } else this.#queue.answer(client, badRouting(impossible), now);
    }
    this.serveWaiting(now);
    this.refuseHopeless();
  }

  serveWaiting(now: number): void {
    const { index } = this.#members;
    if (!index.membersFreed) return;
    index.membersFreed = false;
    if (this.#queue.size > 0) this.#queue.serveEach((client) => this.#serve(client, now));
  }

  /** Refuses the waiting clients for which no member can come before their deadline. */
  refuseHopeless(): void {
    if (this.#queue.size === 0) return;
    const now = this.#clock.monotonic();
    const judge = this.#refusals.judge(now);
    for (const client of this.#queue.all()) {
      const hopeless = judge(client.request, client.key - now);
      if (hopeless !== undefined) this.#queue.answer(client, hopeless, now);
    }
  }

  /** Refuses all waiting and new requests. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const now = this.#clock.monotonic();
    for (const client of this.#queue.all()) this.#queue.answer(client, SHUTTING_DOWN, now);
    this.#queue.close();
    this.#sourceMoves[Symbol.dispose]();
  }

  #whyImpossible(routing: RoutingOptions): string | undefined {
    const { sources, locations } = this.#members;
    return this.#sessions.whyRefused(routing) ?? whyImpossible(routing, sources, locations);
  }

  /** Applies all changes and deadlines that are due at `now`, because timers may be late. */
  #catchUp(now: number): void {
    this.#members.update(now);
    if (this.#queue.takeRetry(now)) this.#members.index.membersFreed = true;
    this.serveWaiting(now);
  }

  #onQueueDue(): void {
    const now = this.#clock.monotonic();
    this.#catchUp(now);
    for (let late = this.#queue.overdue(now); late !== undefined; late = this.#queue.overdue(now)) {
      const waitedS = Math.round((now - late.sinceAt) / 100) / 10;
      const reason = `Waited ${waitedS} s for a member that can serve this request.`;
      this.#queue.answer(late, this.#refusals.poolEmpty(reason, late.request.routing), now);
    }
  }

  #serve(client: WaitingClient, now: number): ServeResult {
    const lease = this.#tryLease(client.request, client.candidates, client.sinceAt, now);
    if (lease !== undefined) {
      this.#queue.answer(client, lease, now);
      return 'done';
    }
    const { spacedUntil, slotAt, rejectedForRequest } = this.#picker.check;
    const retryAt = Math.min(spacedUntil, slotAt);
    if (retryAt < Number.POSITIVE_INFINITY) this.#queue.retryAt(retryAt);
    return rejectedForRequest ? 'done' : 'line-blocked';
  }

  #tryLease(request: LeaseRequest, candidates: Candidates, sinceAt: number, now: number): Lease | undefined {
    const { routing, targetHost } = request;
    const { perHostSpacingMs } = this.#members.settings.rotation;
    let session: Session | undefined;
    if (routing.session !== undefined) {
      session = this.#sessions.use(routing.session, routing, now);
      session.filter = candidates.filter;
    }
    const member = this.#picker.pick(request, candidates, session, now);
    if (member === undefined) return undefined;
    if (perHostSpacingMs > 0) member.space(targetHost, now + perHostSpacingMs, now);
    if (session !== undefined) this.#recordSessionDemand(member.source, now);
    return this.#leases.grant(member, { now, waitedMs: now - sinceAt, session, request });
  }

  #wait(
    request: LeaseRequest,
    candidates: Candidates,
    now: number,
  ): LeaseRefusal | Promise<Lease | LeaseRefusal> {
    const { waitMs, routing } = request;
    if (waitMs <= 0)
      return this.#refusals.poolEmpty('No member that can serve this request is free.', routing);
    const hopeless = this.#refusals.judge(now)(request, waitMs);
    if (hopeless !== undefined) return hopeless;
    if (this.#queue.size >= this.#maxWaiting) {
      const reason = `No member is free, and ${this.#maxWaiting} other clients, the maximum, already wait for one.`;
      return this.#refusals.poolEmpty(reason, routing);
    }
    const { spacedUntil, slotAt } = this.#picker.check;
    if (slotAt < Number.POSITIVE_INFINITY) this.#queue.retryAt(slotAt);
    if (spacedUntil < Number.POSITIVE_INFINITY) {
      this.#queue.retryAt(spacedUntil);
      for (const source of candidates.tiers[0]?.sources ?? []) source.usedUp.add(1, now);
    }
    const parts = { members: this.#members, sessions: this.#sessions };
    const terms = { candidates, now, needsDraw: needsDraw(request, candidates, parts) };
    const answer = this.#queue.join(request, terms);
    // Emits the demand at 1, 2, 4, 8 … waiting clients: refill must know that their number grows, but needs no event for each
    // client.
    if ((candidates.waitingCount & (candidates.waitingCount - 1)) === 0) this.#emitDemand(candidates, now);
    return answer;
  }

  #emitDemand(candidates: Candidates, now: number): void {
    const sources = searchedSources(candidates, now);
    if (sources.length > 0) this.#bus.emit('demand.rose', { sources });
  }

  /**
   * Records the demand of a session in its source. If the session keeps its member, its request searches no tier, so
   * no tier records the demand.
   */
  #recordSessionDemand(source: PoolSource, now: number): void {
    const wasQuiet = now - source.lastWantedAt > QUIET_MS;
    source.lastWantedAt = now;
    if (wasQuiet && !this.#picker.check.endedQuiet) this.#bus.emit('demand.rose', { sources: [source.name] });
  }
}

function badRouting(reason: string): LeaseRefusal {
  return { code: 'bad-routing', reason, sources: [] };
}
