/**
 * The desk: where clients take a member and say what came of it.
 *
 * It keeps the open leases and the clients that wait. Which member is next is the lanes' matter, what becomes of it
 * the roster's. Whatever frees a member serves those who wait before the call returns, in the order of their coming.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { type Kind, type Ladder, QUIET_MS } from './lanes.ts';
import type { Lease, LeaseReport, LeaseRequest, Lending, Refusal, Wish } from './lease.ts';
import type { Member } from './member.ts';
import type { Outlook, PoolLimits } from './options.ts';
import { foldLocation, looksLikeCode } from './places.ts';
import { Query } from './query.ts';
import type { Roster } from './roster.ts';
import { ENDING, LASTING, NOWHERE, RESTING } from './seat.ts';
import type { Session, Sessions } from './sessions.ts';
import type { Source } from './source.ts';
import type { Waiter, Waiting } from './waiting.ts';

/** One open lease, from the pool's side. */
interface Loan {
  readonly id: number;
  readonly member: Member;
  readonly session: Session | undefined;
  readonly takenAt: number;
  /** To find out whether the member works: no client's use. */
  readonly probe: boolean;
  accepted: boolean;
}

/** A session that was moved by hand. */
export interface Rotated {
  readonly from: string | undefined;
  /** undefined: no other member was free; it gets one with its next use. */
  readonly to: string | undefined;
  /** Leases that were open under its name. */
  readonly leases: readonly number[];
}

/** What the desk works with; it owns none of it. */
export interface DeskParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly roster: Roster;
  readonly sessions: Sessions;
  readonly waiting: Waiting;
  readonly limits: PoolLimits;
  readonly outlook: () => Outlook;
}

export class Desk implements Lending {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #roster: Roster;
  readonly #sessions: Sessions;
  readonly #waiting: Waiting;
  readonly #limits: PoolLimits;
  readonly #outlook: () => Outlook;
  readonly #loans = new Map<number, Loan>();
  readonly #query = new Query();
  #lastLease = 0;
  #closed = false;

  constructor(parts: DeskParts) {
    this.#clock = parts.clock;
    this.#bus = parts.bus;
    this.#roster = parts.roster;
    this.#sessions = parts.sessions;
    this.#waiting = parts.waiting;
    this.#limits = parts.limits;
    this.#outlook = parts.outlook;
  }

  take(request: LeaseRequest): Lease | Refusal | Promise<Lease | Refusal> {
    if (this.#closed) return goneAway();
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    if (this.#roster.seatsFreed) this.serve(now);
    const impossible = this.#impossible(request.wish);
    if (impossible !== undefined) return this.#refuse('bad-routing', impossible);
    const ladder = this.#ladderFor(request.wish, now);
    const lease = this.#lend(request, ladder, now, now);
    if (this.#query.brokeQuiet) this.#tellDemand(ladder, now);
    return lease ?? this.#wait(request, ladder, now);
  }

  cancel(requestId: number): void {
    const waiter = this.#waiting.find(requestId);
    if (waiter === undefined) return;
    this.#waiting.leave(waiter);
    this.#tellWaited(waiter, 'gave-up', this.#clock.monotonic());
    waiter.resolve({ refused: 'client-gone', reason: 'The client left while it waited.', sources: [] });
  }

  report(report: LeaseReport): void {
    const loan = this.#loans.get(report.lease);
    if (loan === undefined) return;
    const now = this.#clock.monotonic();
    if (report.kind === 'accepted') this.#accepted(loan, report.latencyMs, now);
    else {
      this.#end(loan, now);
      const { member } = loan;
      if (report.kind === 'failed' && (report.blame === 'member' || report.blame === 'half-member')) {
        const half = report.blame === 'half-member';
        this.#roster.faulted(member, half, report.fault, loan.takenAt, now);
      } else if (report.kind === 'closed' && report.cut) {
        this.#roster.faulted(member, true, 'member-cut', loan.takenAt, now);
      } else if (report.kind === 'closed' && loan.accepted) {
        member.health.completed();
      }
      this.#roster.released(member, now);
    }
    this.serve(now);
  }

  /**
   * Leases on members that need a probe, at most `limit`: unproven ones first, then those in quarantine whose rest is
   * over, then, where `staleMs` is given, those that nobody has got through for so long. Reported on like any other.
   */
  takeForProbe(limit: number, staleMs = Number.POSITIVE_INFINITY): Lease[] {
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    const leases: Lease[] = [];
    if (this.#closed) return leases;
    for (const member of this.#roster.toProbe(now, staleMs)) {
      if (leases.length >= limit) break;
      leases.push(this.#grant(member, { probe: true, now }));
    }
    return leases;
  }

  /** Gives members that have become free to those who wait for one. */
  serve(now: number): void {
    if (!this.#roster.seatsFreed) return;
    this.#roster.seatsFreed = false;
    if (this.#waiting.size > 0) this.#serveLines(now);
  }

  /** Answers those whose deadline has passed, and looks again for the others: a spacing may be over. */
  wake(): void {
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    this.#roster.seatsFreed = true;
    this.serve(now);
    for (let due = this.#waiting.due(now); due !== undefined; due = this.#waiting.due(now)) {
      this.#waiting.leave(due);
      this.#tellWaited(due, 'refused', now);
      due.resolve(this.#refuse('pool-empty', 'No member that fits the wish became available in time.'));
    }
  }

  /** After a reload: everyone who waits stands for the new lanes. */
  regroup(now: number): void {
    for (const waiter of this.#waiting.all()) {
      this.#waiting.change(waiter, this.#ladderFor(waiter.request.wish, now));
    }
    this.serve(now);
  }

  /** The open leases of a session or a member. */
  leasesOf(of: { readonly session: string } | { readonly member: string }): number[] {
    const loans = [...this.#loans.values()];
    const wanted =
      'session' in of
        ? loans.filter(({ session }) => session?.name === of.session)
        : loans.filter(({ member }) => member.id === of.member);
    return wanted.map(({ id }) => id);
  }

  /** Moves a session to another member, if one is free; else it gets one with its next use. */
  rotateSession(name: string): Rotated | undefined {
    const session = this.#sessions.find(name);
    if (session === undefined) return undefined;
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    const from = session.member;
    const own = from === undefined ? undefined : this.#roster.find(from);
    const query = this.#query;
    query.restart();
    query.now = now;
    query.host = '';
    query.avoid = from === undefined ? [] : [from];
    query.leastEndsAt = Number.NEGATIVE_INFINITY;
    query.lastExit = own?.exit ?? '';
    const to = this.#roster.lanes.ladder(session.kind, this.#roster.members(), now).pick(query);
    const leases = this.leasesOf({ session: name });
    if (to === undefined || to.berth === RESTING) {
      session.member = undefined;
      return { from, to: undefined, leases };
    }
    this.#sessions.bind(session, to.id, 'rotated', now);
    return { from, to: to.id, leases };
  }

  /** Refuses everyone who waits, and whoever comes from now on. Leases that are open may still be reported on. */
  close(): void {
    this.#closed = true;
    const now = this.#clock.monotonic();
    for (const waiter of [...this.#waiting.all()]) {
      this.#waiting.leave(waiter);
      this.#tellWaited(waiter, 'refused', now);
      waiter.resolve(goneAway());
    }
  }

  #lend(request: LeaseRequest, ladder: Ladder, sinceAt: number, now: number): Lease | undefined {
    const query = this.#query;
    const { wish } = request;
    query.restart();
    query.now = now;
    query.host = request.targetHost;
    query.avoid = request.avoid;
    query.leastEndsAt = wish.minLifeMs === undefined ? Number.NEGATIVE_INFINITY : now + wish.minLifeMs;
    if (wish.session !== undefined) return this.#lendToSession(request, wish.session, ladder, sinceAt);
    query.lastExit = ladder.lastExit;
    const member = ladder.pick(query);
    if (member === undefined) return undefined;
    ladder.lastExit = member.exit;
    const { perHostSpacingMs } = this.#roster.settings.rotation;
    if (perHostSpacingMs > 0) member.space(request.targetHost, now + perHostSpacingMs, now);
    return this.#grant(member, { probe: false, now, sinceAt });
  }

  #lendToSession(request: LeaseRequest, name: string, ladder: Ladder, sinceAt: number): Lease | undefined {
    const query = this.#query;
    const { now } = query;
    const ttlMs = request.wish.sessionTtlMs ?? this.#roster.settings.rotation.sessionTtlMs;
    const session = this.#sessions.use(name, ttlMs, now);
    session.kind = ladder.kind;
    const member = this.#memberFor(session, ladder);
    if (member === undefined) return undefined;
    this.#wanted(member.source, now);
    return this.#grant(member, { probe: false, now, sinceAt, session });
  }

  /** A session's own member is wanted without a look into the lanes. */
  #wanted(source: Source, now: number): void {
    const quiet = now - source.wantedAt > QUIET_MS;
    source.wantedAt = now;
    if (quiet) this.#bus.emit('demand.rose', { sources: [source.name] });
  }

  /** The session's own member, or the one it moves to; none when it has to wait for its own. */
  #memberFor(session: Session, ladder: Ladder): Member | undefined {
    const query = this.#query;
    query.lastExit = '';
    const own = session.member === undefined ? undefined : this.#roster.find(session.member);
    // Tried for this client already: another one serves it, and keeps the session only if it is accepted.
    if (own !== undefined && query.avoid.includes(own.id)) return ladder.pick(query);
    const why = own === undefined ? 'left' : whyMove(own, ladder, query);
    if (own !== undefined && why === undefined) {
      if (own.berth === NOWHERE || own.source.full) {
        query.choosy = true; // full for now: the session waits for its own member
        return undefined;
      }
      if (own.berth !== ENDING) return own;
      const longer = ladder.pick(query);
      if (longer?.berth !== LASTING) return own;
      this.#sessions.bind(session, longer.id, 'ending', query.now);
      return longer;
    }
    const member = ladder.pick(query);
    if (member !== undefined) this.#sessions.bind(session, member.id, why ?? 'left', query.now);
    return member;
  }

  #grant(member: Member, loan: { probe: boolean; now: number; sinceAt?: number; session?: Session }): Lease {
    const { probe, now, session } = loan;
    this.#lastLease += 1;
    const id = this.#lastLease;
    const doubtful = member.phase.name !== 'ready' || member.provenAt === undefined;
    member.open += 1;
    member.source.open += 1;
    if (!probe) member.pending += 1;
    if (session !== undefined) {
      session.open += 1;
      session.uses += 1;
    }
    if (member.phase.name !== 'ready') member.trial = id;
    this.#loans.set(id, { id, member, session, takenAt: now, probe, accepted: false });
    if (probe) this.#roster.settle(member, now);
    else this.#roster.lent(member, now);
    return leaseOf(member, { id, waitedMs: now - (loan.sinceAt ?? now), doubtful }, session?.name, now);
  }

  #accepted(loan: Loan, latencyMs: number | undefined, now: number): void {
    if (loan.accepted) return;
    loan.accepted = true;
    const { member, session } = loan;
    if (!loan.probe) {
      member.pending -= 1;
      member.uses += 1;
      const { maxUsesPerMember } = this.#roster.settings.rotation;
      if (maxUsesPerMember > 0) member.source.usedUp.add(1 / maxUsesPerMember, now);
    }
    this.#roster.accepted(member, latencyMs, now);
    if (session === undefined) return;
    // Its own member failed or was slower, and nothing has been settled since this attempt began.
    if (session.member !== member.id && session.settledAt <= loan.takenAt) {
      this.#sessions.bind(session, member.id, 'failed over', now);
    } else if (session.member === member.id) session.settledAt = now;
  }

  #end(loan: Loan, now: number): void {
    const { member, session } = loan;
    this.#loans.delete(loan.id);
    member.open -= 1;
    member.source.open -= 1;
    if (!loan.accepted && !loan.probe) member.pending -= 1;
    if (member.trial === loan.id) member.trial = undefined;
    if (session === undefined) return;
    session.open -= 1;
    session.usedAt = now;
  }

  #wait(request: LeaseRequest, ladder: Ladder, now: number): Refusal | Promise<Lease | Refusal> {
    if (request.waitMs <= 0) return this.#refuse('pool-empty', 'No member that fits the wish is free.');
    if (this.#waiting.size >= this.#limits.waiting) {
      return this.#refuse('pool-empty', 'No member is free, and too many clients wait for one already.');
    }
    if (this.#waiting.find(request.id) !== undefined) {
      throw new TypeError(`lease request ${request.id} is under way already`);
    }
    if (this.#query.freeAt < Number.POSITIVE_INFINITY) {
      this.#waiting.wakeBy(this.#query.freeAt);
      for (const source of ladder.lanes[0]?.sources ?? []) source.usedUp.add(1, now);
    }
    const answer = this.#waiting.join(request, ladder, now);
    // At 1, 2, 4, 8 … in a line: often enough for whoever draws, and never ten thousand times.
    if ((ladder.waitingCount & (ladder.waitingCount - 1)) === 0) this.#tellDemand(ladder, now);
    return answer;
  }

  #serveLines(now: number): void {
    const lines = this.#waiting.lines().map((line) => lineOf(line));
    for (;;) {
      const line = earliest(lines);
      if (line?.head === undefined) return;
      const waiter = line.head;
      const lease = this.#lend(waiter.request, waiter.ladder, waiter.sinceAt, now);
      if (lease !== undefined) {
        this.#waiting.leave(waiter);
        this.#tellWaited(waiter, 'served', now);
        waiter.resolve(lease);
      } else if (this.#query.freeAt < Number.POSITIVE_INFINITY) this.#waiting.wakeBy(this.#query.freeAt);
      // Nobody was refused for this client's own sake: those behind it in the line would get nothing either.
      line.head = lease === undefined && !this.#query.choosy ? undefined : next(line.rest);
    }
  }

  #ladderFor(wish: Wish, now: number): Ladder {
    const { source, protocol, location } = wish;
    const { lanes } = this.#roster;
    const anywhere = location === undefined || location === '';
    if (source === undefined && protocol === undefined && anywhere) return lanes.plain;
    const kind: Kind = {
      ...(source === undefined ? {} : { source }),
      ...(protocol === undefined ? {} : { protocol }),
      ...(anywhere ? {} : { location: foldLocation(location) }),
    };
    return lanes.ladder(kind, this.#roster.members(), now);
  }

  /** Why no member could ever meet the wish, in words for the client. */
  #impossible({ source, location }: Wish): string | undefined {
    const { sources, places } = this.#roster;
    if (source !== undefined && !sources.has(source)) {
      return 'No source of that name is configured; noria status lists the names.';
    }
    if (location === undefined || !looksLikeCode(location) || places.anyHas(foldLocation(location))) {
      return undefined;
    }
    for (const { options } of sources.values()) {
      if (source !== undefined && source !== options.name) continue;
      if (options.couldHaveLocation?.(location) === true) return undefined;
    }
    return (
      'No source of this configuration has members in such a place: locations are words of the service, ' +
      'province, city or carrier, not country codes. Leave the location out, or name one that the member list shows.'
    );
  }

  #refuse(refused: 'pool-empty' | 'bad-routing', reason: string): Refusal {
    const { retryAfterMs, sources } = this.#outlook();
    const told = sources.map((outlook) => {
      const blocked = this.#roster.sources.get(outlook.name)?.blocked;
      return blocked === undefined ? outlook : { ...outlook, reason: blocked };
    });
    return { refused, reason, sources: told, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
  }

  #tellDemand(ladder: Ladder, now: number): void {
    const wanted = ladder.lanes.filter(({ wantedAt }) => wantedAt === now);
    const sources = wanted.flatMap((lane) => lane.sources.map(({ name }) => name));
    if (sources.length > 0) this.#bus.emit('demand.rose', { sources });
  }

  #tellWaited(waiter: Waiter, outcome: 'served' | 'gave-up' | 'refused', now: number): void {
    this.#bus.emit('client.waited', { ms: now - waiter.sinceAt, outcome });
  }
}

/** Why a session may not stay with its member; undefined when it may, though perhaps not at this moment. */
function whyMove(own: Member, ladder: Ladder, query: Query): string | undefined {
  const { phase } = own;
  if (phase.name === 'draining') return phase.why.reason;
  if (phase.name !== 'ready') return phase.name;
  if (own.source.blocked !== undefined) return 'source blocked';
  if (own.bans?.has(query.host) === true) return 'banned';
  return ladder.fits(own) && own.endsAt >= query.leastEndsAt ? undefined : 'wish';
}

function leaseOf(
  member: Member,
  loan: Pick<Lease, 'id' | 'waitedMs' | 'doubtful'>,
  session: string | undefined,
  now: number,
): Lease {
  const lease: { -readonly [Key in keyof Lease]: Lease[Key] } = {
    id: loan.id,
    member: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    waitedMs: loan.waitedMs,
    doubtful: loan.doubtful,
  };
  if (member.exitIp !== undefined) lease.exitIp = member.exitIp;
  if (!member.assumed) lease.remainingMs = member.endsAt - now;
  if (session !== undefined) lease.session = session;
  return lease;
}

function goneAway(): Refusal {
  return { refused: 'shutting-down', reason: 'noria is shutting down.', sources: [] };
}

/** A line while it is served: its first, and those behind. */
interface Line {
  head: Waiter | undefined;
  readonly rest: Iterator<Waiter>;
}

function lineOf(waiters: Set<Waiter>): Line {
  const rest = waiters.values();
  return { head: next(rest), rest };
}

function next(waiters: Iterator<Waiter>): Waiter | undefined {
  const step = waiters.next();
  return step.done === true ? undefined : step.value;
}

/** The line whose first came before those of the others. */
function earliest(lines: readonly Line[]): Line | undefined {
  let first: Line | undefined;
  for (const line of lines) {
    if (line.head !== undefined && (first?.head === undefined || line.head.ticket < first.head.ticket))
      first = line;
  }
  return first;
}
