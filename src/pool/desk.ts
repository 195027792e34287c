/**
 * The desk: where clients take a member, wait for one, and say what came of it.
 *
 * It owns the open leases; which member is next is the picker's matter, what becomes of it the roster's. Whatever
 * frees a member serves those who wait before the call returns, in the order of their coming.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { type Candidates, QUIET_MS } from './candidates.ts';
import { filterOf, mightDraw, whyImpossible } from './filter.ts';
import type { Lease, LeaseProvider, LeaseRefusal, LeaseReport, LeaseRequest } from './lease.ts';
import { type Holder, type OpenLease, OpenLeases } from './leases.ts';
import type { Roster } from './members.ts';
import type { Outlook } from './options.ts';
import { Picker, type Rotated } from './picker.ts';
import { toProbe } from './probing.ts';
import type { Session, Sessions } from './sessions.ts';
import type { PoolSource } from './source.ts';
import type { Waiter, Waiting } from './waiting-queue.ts';

/** What the desk works with; it owns none of it. */
export interface DeskParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly roster: Roster;
  readonly sessions: Sessions;
  readonly waiting: Waiting;
  readonly outlook: () => Outlook;
}

/** The pool's side of `Lending`, for one pool. */
export class Desk implements LeaseProvider {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #roster: Roster;
  readonly #sessions: Sessions;
  readonly #waiting: Waiting;
  readonly #outlook: () => Outlook;
  readonly #picker: Picker;
  readonly #loans = new OpenLeases();
  #closed = false;

  constructor({ clock, bus, roster, sessions, waiting, outlook }: DeskParts) {
    this.#clock = clock;
    this.#bus = bus;
    this.#roster = roster;
    this.#sessions = sessions;
    this.#waiting = waiting;
    this.#outlook = outlook;
    this.#picker = new Picker(roster, sessions);
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    if (this.#closed) return shuttingDown();
    const now = this.#clock.monotonic();
    this.#catchUp(now); // what has just become free belongs to those who came before
    const impossible = whyImpossible(request.routing, this.#roster);
    if (impossible !== undefined) return this.#refuse('bad-routing', impossible);
    const ladder = this.#roster.ladder(filterOf(request.routing), now);
    const lease = this.#lend(request, ladder, now, now);
    if (this.#picker.found.brokeQuiet) this.#tellDemand(ladder, now);
    return lease ?? this.#wait(request, ladder, now);
  }

  cancel(requestId: number): void {
    const waiter = this.#waiting.find(requestId);
    if (waiter === undefined) return;
    const left: LeaseRefusal = {
      refused: 'client-gone',
      reason: 'The client left while it waited.',
      sources: [],
    };
    this.#dismiss(waiter, left, 'gave-up', this.#clock.monotonic());
  }

  report(report: LeaseReport): void {
    const loan = this.#loans.find(report.lease);
    if (loan === undefined) return;
    const now = this.#clock.monotonic();
    if (report.kind !== 'accepted') this.#end(loan, report, now);
    else if (!loan.accepted) this.#accept(loan, report.latencyMs, now);
    this.serve(now);
  }

  /** See `Pool.acquireForProbe`. */
  acquireForProbe(limit: number, staleMs = Number.POSITIVE_INFINITY): Lease[] {
    const leases: Lease[] = [];
    if (this.#closed) return leases;
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    for (const member of toProbe(this.#roster, now, staleMs)) {
      if (leases.length >= limit) break;
      leases.push(this.#loans.grant(member, { now, waitedMs: 0, session: undefined, probe: true }));
      this.#roster.seating.settle(member, now);
    }
    return leases;
  }

  /** Gives members that have become free to those who wait. */
  serve(now: number): void {
    const { seating } = this.#roster;
    if (!seating.freed) return;
    seating.freed = false;
    if (this.#waiting.size > 0) this.#serveLines(now);
  }

  /** A deadline has passed, or a member may be used for some host again. */
  wake(): void {
    const now = this.#clock.monotonic();
    this.#catchUp(now);
    for (let due = this.#waiting.due(now); due !== undefined; due = this.#waiting.due(now)) {
      const waitedS = Math.round((now - due.sinceAt) / 100) / 10;
      const late = this.#refuse(
        'pool-empty',
        `Waited ${waitedS} s for a member that fits the routing options.`,
      );
      this.#dismiss(due, late, 'refused', now);
    }
  }

  /** After a reload: everyone who waits stands for the new lanes. */
  regroup(now: number): void {
    for (const waiter of this.#waiting.all()) {
      const impossible = whyImpossible(waiter.request.routing, this.#roster);
      if (impossible !== undefined) {
        this.#dismiss(waiter, this.#refuse('bad-routing', impossible), 'refused', now);
      } else this.#waiting.change(waiter, this.#roster.ladder(filterOf(waiter.request.routing), now));
    }
    this.serve(now);
  }

  /** Moves a session to another member. @returns undefined when there is no such session. */
  rotate(name: string): (Rotated & { readonly leases: readonly number[] }) | undefined {
    const session = this.#sessions.find(name);
    if (session === undefined) return undefined;
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    return { ...this.#picker.rotate(session, now), leases: this.leasesOf({ session: name }) };
  }

  leasesOf(holder: Holder): number[] {
    return this.#loans.of(holder);
  }

  /** Refuses everyone who waits, and whoever comes from now on. Open leases may still be reported on. */
  close(): void {
    this.#closed = true;
    const now = this.#clock.monotonic();
    for (const waiter of [...this.#waiting.all()]) this.#dismiss(waiter, shuttingDown(), 'refused', now);
  }

  /** Does what time has brought: timers may be late, `now` is not. */
  #catchUp(now: number): void {
    this.#roster.turn(now);
    if (this.#waiting.mayRetry(now)) this.#roster.seating.freed = true;
    this.serve(now);
  }

  #lend(request: LeaseRequest, ladder: Candidates, sinceAt: number, now: number): Lease | undefined {
    const session = this.#sessionOf(request, ladder, now);
    const member = this.#picker.pick(request, ladder, session, now);
    if (member === undefined) return undefined;
    const { perHostSpacingMs } = this.#roster.settings.rotation;
    if (perHostSpacingMs > 0) member.space(request.targetHost, now + perHostSpacingMs, now);
    if (session !== undefined) this.#wanted(member.source, now);
    const lease = this.#loans.grant(member, { now, waitedMs: now - sinceAt, session, probe: false });
    this.#roster.seating.picked(member, now);
    return lease;
  }

  #sessionOf({ routing }: LeaseRequest, ladder: Candidates, now: number): Session | undefined {
    if (routing.session === undefined) return undefined;
    const ttlMs = routing.sessionTtlMs ?? this.#roster.settings.rotation.sessionTtlMs;
    const session = this.#sessions.use(routing.session, ttlMs, now);
    session.kind = ladder.kind;
    return session;
  }

  /** A session's own member is taken without a look into the lanes, which would note that clients came. */
  #wanted(source: PoolSource, now: number): void {
    const quiet = now - source.wantedAt > QUIET_MS;
    source.wantedAt = now;
    if (quiet && !this.#picker.found.brokeQuiet) this.#bus.emit('demand.rose', { sources: [source.name] });
  }

  #accept(loan: OpenLease, latencyMs: number | undefined, now: number): void {
    const { member, session } = loan;
    this.#loans.accept(loan);
    const { maxUsesPerMember } = this.#roster.settings.rotation;
    if (maxUsesPerMember > 0 && !loan.probe) member.source.usedUp.add(1 / maxUsesPerMember, now);
    this.#roster.accepted(member, latencyMs, now);
    if (session === undefined) return;
    if (session.member === member.id) session.settledAt = now;
    // Its own member failed, or was slower: unless it was settled elsewhere since this attempt began.
    else if (session.settledAt <= loan.takenAt) this.#sessions.bind(session, member.id, 'failed-over', now);
  }

  #end(loan: OpenLease, report: Exclude<LeaseReport, { kind: 'accepted' }>, now: number): void {
    const { member, takenAt } = loan;
    this.#loans.end(loan, now);
    if (report.kind === 'failed') {
      const { blame, fault } = report;
      const half = blame === 'half-member';
      if (half || blame === 'member') this.#roster.faulted(member, { half, fault, takenAt }, now);
    } else if (report.cut) {
      this.#roster.faulted(member, { half: true, fault: 'member-cut', takenAt }, now);
    } else if (loan.accepted) member.health.completed();
    if (member.phase.name !== 'gone') this.#roster.released(member, now);
  }

  #wait(
    request: LeaseRequest,
    ladder: Candidates,
    now: number,
  ): LeaseRefusal | Promise<Lease | LeaseRefusal> {
    if (request.waitMs <= 0)
      return this.#refuse('pool-empty', 'No member that fits the routing options is free.');
    if (this.#waiting.full) {
      return this.#refuse('pool-empty', 'No member is free, and too many clients wait for one already.');
    }
    const { freeAt } = this.#picker.found;
    if (freeAt < Number.POSITIVE_INFINITY) {
      this.#waiting.retryAt(freeAt);
      for (const source of ladder.lanes[0]?.sources ?? []) source.usedUp.add(1, now);
    }
    const answer = this.#waiting.join(request, { ladder, now, drawHelps: this.#drawHelps(request, ladder) });
    // At 1, 2, 4, 8 … in a line: often enough for whoever draws, and never ten thousand times.
    if ((ladder.waitingCount & (ladder.waitingCount - 1)) === 0) this.#tellDemand(ladder, now);
    return answer;
  }

  /** Whether another member could serve it: not so for a session that waits for its own, or a life that none has. */
  #drawHelps({ routing, avoid }: LeaseRequest, ladder: Candidates): boolean {
    const own = routing.session === undefined ? undefined : this.#sessions.find(routing.session)?.member;
    if (own !== undefined && !avoid.includes(own) && this.#roster.find(own)?.phase.name === 'ready')
      return false;
    return ladder.lanes.some(({ sources }) =>
      sources.some((source) => mightDraw(source, ladder.kind, routing.minLifeMs)),
    );
  }

  #serveLines(now: number): void {
    for (const turn of this.#waiting.inOrder()) {
      const { waiter } = turn;
      const lease = this.#lend(waiter.request, waiter.ladder, waiter.sinceAt, now);
      if (lease !== undefined) {
        this.#dismiss(waiter, lease, 'served', now);
        continue;
      }
      const { freeAt, choosy } = this.#picker.found;
      if (freeAt < Number.POSITIVE_INFINITY) this.#waiting.retryAt(freeAt);
      // Nobody was refused for this client's own sake: those behind it in the line would get nothing either.
      if (!choosy) turn.endLine();
    }
  }

  #dismiss(
    waiter: Waiter,
    answer: Lease | LeaseRefusal,
    outcome: 'served' | 'gave-up' | 'refused',
    now: number,
  ): void {
    this.#waiting.leave(waiter);
    this.#bus.emit('client.waited', { ms: now - waiter.sinceAt, outcome });
    waiter.resolve(answer);
  }

  #refuse(refused: 'pool-empty' | 'bad-routing', reason: string): LeaseRefusal {
    const { retryAfterMs, sources } = this.#outlook();
    const told = sources.map((outlook) => {
      const blocked = this.#roster.sources.get(outlook.name)?.blocked;
      return blocked === undefined ? outlook : { ...outlook, reason: blocked };
    });
    return { refused, reason, sources: told, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
  }

  #tellDemand(ladder: Candidates, now: number): void {
    const lanes = ladder.lanes.filter(({ wantedAt }) => wantedAt === now);
    const sources = lanes.flatMap((lane) => lane.sources.map(({ name }) => name));
    if (sources.length > 0) this.#bus.emit('demand.rose', { sources });
  }
}

function shuttingDown(): LeaseRefusal {
  return { refused: 'shutting-down', reason: 'noria is shutting down.', sources: [] };
}
