/**
 * The members that clients may use: the pool grants leases on them to the data plane, adds those that refill draws, and tells refill how many
 * are usable and how many the clients need. A request gets a lease at once, waits for one, or is refused.
 *
 * It owns its parts and their timers. Each method that frees a member serves the waiting clients before it returns.
 */
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import type { Random } from '../core/random.ts';
import { roughDuration } from '../core/words.ts';
import { type Candidates, QUIET_MS } from './candidates.ts';
import { demandHere, demandOf, SOON_SHARE, servedAt } from './demand.ts';
import { type AddedMembers, type Demand, type DrawnMember, NO_DEMAND } from './drawn-member.ts';
import {
  couldDraw,
  couldServe,
  filterOf,
  type MemberFilter,
  mayServe,
  whyImpossible,
  whyUnusable,
} from './filter.ts';
import type {
  Lease,
  LeaseProvider,
  LeaseRefusal,
  LeaseReport,
  LeaseRequest,
  ProbeLease,
  RoutingOptions,
  SourceForecast,
  UpcomingMember,
  UpcomingQuery,
} from './lease.ts';
import { type LeaseHolder, Leases, type Verdict } from './leases.ts';
import type { Member, PoolSource } from './member.ts';
import { type MemberObserver, Members, memberKey } from './members.ts';
import type { PoolSettings } from './options.ts';
import { type AssignmentRequest, MemberPick, type SessionRotation } from './pick.ts';
import { type Session, type SessionObserver, Sessions } from './sessions.ts';
import { freeAt, type Site, type Sites } from './sites.ts';
import {
  assignedMember,
  memberView,
  restoreSnapshot,
  type SourceCounts,
  sessionView,
  sourceCounts,
  takeSnapshot,
} from './snapshot.ts';
import type { PoolSnapshot } from './stored-state.ts';
import { type WaitingClient, WaitingQueue } from './waiting-queue.ts';

const SHUTTING_DOWN = refused('shutting-down', 'noria is shutting down.');
const CLIENT_LEFT = refused('client-gone', 'The client disconnected while it waited for a member.');
const NONE_FREE = 'No member that can serve this request is free.';

/** So many open tunnels through one member are worth another member, unless `maxTunnelsPerMember` says how many. */
const TUNNELS_WORTH_A_MEMBER = 16;
/** A session is in use this long, in ms, after its last request, and so long it needs a member of its own. */
const SESSION_IN_USE_MS = 60_000;
const COUNT_NEEDS_EVERY_MS = 1_000;

export class Pool implements LeaseProvider {
  readonly #sessionsInUse = new Map<PoolSource, number>();
  #exitsNeeded = 0;
  #needsCountedAt = Number.NEGATIVE_INFINITY;
  waitingElsewhere = 0;
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #forecasts: () => readonly SourceForecast[];
  readonly #maxWaiting: number;
  readonly #members: Members;
  readonly #sessions: Sessions;
  readonly leases: Leases;
  readonly sites: Sites;
  readonly #pick: MemberPick;
  readonly #queue: WaitingQueue;
  readonly #sourceMoves: Disposable;
  /** For fleet/pool-sharing.ts and the journal. `observers` is empty if no other replica shares the pool. */
  readonly parts: {
    readonly clock: Clock;
    readonly bus: EventBus;
    readonly members: Members;
    readonly sessions: Sessions;
    readonly pool: Pool;
    readonly observers: (MemberObserver & SessionObserver)[];
  };
  #closed = false;

  constructor({
    clock,
    random,
    bus,
    forecasts,
    limits: { waiting = 20_000, sessions = 100_000 } = {},
    ...settings
  }: PoolSettings & {
    readonly clock: Clock;
    readonly random: Random;
    readonly bus: EventBus;
    /** Called only for requests that cannot be served at once. A source without a forecast may draw at any time. */
    readonly forecasts: () => readonly SourceForecast[];
    /** `sessions`: of all clients. At the limit, a new one replaces one of the client with the most sessions. */
    readonly limits?: { readonly waiting?: number; readonly sessions?: number };
  }) {
    this.#clock = clock;
    this.#bus = bus;
    this.#forecasts = forecasts;
    this.#maxWaiting = waiting;
    const observers: (MemberObserver & SessionObserver)[] = [];
    this.#members = new Members({ clock, random, bus, observers }, settings, () =>
      this.serveWaiting(clock.monotonic()),
    );
    this.sites = this.#members.sites;
    this.#sessions = new Sessions({ clock, bus, observers }, sessions, settings.rotation);
    this.leases = new Leases(clock, this.#members, this.#sessions, (use, host, verdict) =>
      this.#judge(use, host, verdict),
    );
    this.#pick = new MemberPick(this.#members, this.#sessions);
    this.#queue = new WaitingQueue(clock, bus, this.sites.waiting, () => this.#onQueueDue());
    this.#sourceMoves = bus.on('source.moved', () => this.refuseHopeless());
    this.parts = { clock, bus, members: this.#members, sessions: this.#sessions, pool: this, observers };
    this.#members.configure(settings, clock.monotonic());
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    if (this.#closed) return SHUTTING_DOWN;
    const now = this.#clock.monotonic();
    this.#catchUp(now); // clients that already wait get free members first
    const impossible = this.#whyImpossible(request.routing);
    if (impossible !== undefined) return refused('bad-routing', impossible);
    const site = this.sites.of(request.targetHost);
    site.lastWantedAt = now;
    const candidates = this.#members.index.find(filterAt(site, request.routing), now);
    const lease = this.#tryLease(request, { candidates, site, sinceAt: now }, now);
    if (this.#pick.endedQuiet) this.#emitDemand(candidates, now);
    if (this.#pick.ended !== undefined) return refused('session-ended', this.#pick.ended);
    return lease ?? this.#wait(request, candidates, site, now);
  }

  cancel(requestId: number): void {
    const client = this.#queue.byRequest.get(requestId);
    if (client !== undefined) this.#queue.answer(client, CLIENT_LEFT, this.#clock.monotonic());
  }

  upcoming({ routing, count, isKnown }: UpcomingQuery): readonly UpcomingMember[] {
    if (this.#closed) return [];
    const now = this.#clock.monotonic();
    this.#members.update(now);
    const minEndsAt = now + (routing.minLifeMs ?? 0);
    const { session } = routing;
    const own = this.#members.find(this.#sessions.byName.get(session ?? '')?.member);
    const ownNext = own?.bucket === 'fresh' ? [own] : [];
    const anyNext = () => this.#members.index.find(filterOf(routing), now).upcoming(count, now);
    return (session === undefined ? anyNext() : ownNext)
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

  report(report: LeaseReport): void {
    const now = this.#clock.monotonic();
    this.leases.report(report, now);
    this.serveWaiting(now);
  }

  acquireForProbe(limit: number, staleMs?: number): readonly ProbeLease[] {
    if (this.#closed) return [];
    const now = this.#clock.monotonic();
    this.#members.update(now);
    return this.leases.grantForProbes(now, limit, staleMs);
  }

  /** The source's member that worked last, with which the prober compares a suspected one. */
  acquireForComparison(sourceName: string, withinMs: number): Lease | undefined {
    const source = this.#members.sources.get(sourceName);
    if (source === undefined || this.#closed) return undefined;
    const now = this.#clock.monotonic();
    let found: Member | undefined;
    let foundAt = now - withinMs;
    for (const member of source.members) {
      const { phase, trialLease, lastSuccessAt = Number.NEGATIVE_INFINITY } = member;
      if (phase.name !== 'ready' || trialLease !== undefined || lastSuccessAt < foundAt) continue;
      found = member;
      foundAt = lastSuccessAt;
    }
    return found && this.leases.grant(found, now);
  }

  /**
   * The members at `moment` without another draw; while clients are stranded, members that cannot serve them take no room. `usable`: for clients,
   * minus the waiting ones, at most `size` of them; with unproven members and those of a blocked source. `counted`: also each quarantined
   * member that no draw will replace. `held`: all, also the quarantined ones.
   */
  stockAt(sourceName: string, moment: number) {
    const source = this.#members.sources.get(sourceName);
    if (source === undefined) return { usable: 0, counted: 0, held: 0 };
    const { expiries, quarantined, options } = source;
    const { waiting, stranded } = this.demandFor(source);
    const held = expiries.size - expiries.countUpTo(moment);
    let usable = held - Math.min(waiting, options.size);
    let counted = usable;
    for (const { phase, usableUntil } of quarantined) {
      if (phase.name !== 'quarantined' || phase.untilAt <= moment || usableUntil.key <= moment) continue;
      usable -= 1;
      if (phase.replaced) counted -= 1;
    }
    const room = stranded === 0 ? Number.POSITIVE_INFINITY : Math.max(0, options.size - stranded);
    const inRoom = (count: number) => Math.max(0, Math.min(count, room));
    return { usable: inRoom(usable), counted: inRoom(counted), held: inRoom(held) };
  }

  nextLossAt(sourceName: string, moment: number): number | undefined {
    const at = this.#members.sources.get(sourceName)?.expiries.nextAfter(moment);
    return at === Number.POSITIVE_INFINITY ? undefined : at;
  }

  demand(sourceName: string): Demand {
    const source = this.#members.sources.get(sourceName);
    return source === undefined ? NO_DEMAND : this.demandFor(source);
  }

  demandFor(source: PoolSource, except?: object): Demand {
    const now = this.#clock.monotonic();
    const held = this.#heldFor(source, now);
    const here = demandHere(this.#members, source, this.#queue.byRequest.values(), { now, held });
    return demandOf(source, here, except);
  }

  #heldFor(source: PoolSource, now: number): number {
    const { maxTunnelsPerMember } = this.#members.settings.rotation;
    const perMember = maxTunnelsPerMember > 0 ? maxTunnelsPerMember : TUNNELS_WORTH_A_MEMBER;
    const forTunnels = Math.ceil(source.openLeases / perMember);
    if (now - this.#needsCountedAt >= COUNT_NEEDS_EVERY_MS) this.#countNeeds(now);
    const forSites = this.#exitsNeeded * this.#shareOf(source, now);
    return Math.max(forTunnels, this.#sessionsInUse.get(source) ?? 0, Math.ceil(forSites));
  }

  #shareOf({ requests }: PoolSource, now: number): number {
    let sum = 0;
    for (const source of this.#members.sources.values()) sum += source.requests.perSecond(now);
    return sum === 0 ? 1 : requests.perSecond(now) / sum;
  }

  #countNeeds(now: number): void {
    this.#needsCountedAt = now;
    this.#exitsNeeded = this.sites.exitsNeeded(now);
    this.#sessionsInUse.clear();
    for (const { member, usedAt } of this.#sessions.byName.values()) {
      const source = now - usedAt < SESSION_IN_USE_MS ? this.#members.find(member)?.source : undefined;
      if (source !== undefined) this.#sessionsInUse.set(source, (this.#sessionsInUse.get(source) ?? 0) + 1);
    }
  }

  addMembers(sourceName: string, drawn: readonly DrawnMember[]): AddedMembers {
    const source = this.#members.sources.get(sourceName);
    // A reload during the draw may have removed the source.
    if (source === undefined || this.#closed) return { joined: 0, renewed: 0, rejected: drawn.length };
    const now = this.#clock.monotonic();
    this.#members.update(now);
    const { stranded } = demandHere(this.#members, source, this.#queue.byRequest.values(), { now, held: 0 });
    const added = this.#members.addDraw(source, drawn, now);
    this.#countDraws(source, Math.min(stranded, added.joined), now);
    this.serveWaiting(now);
    return added;
  }

  retainMembers(sourceName: string, drawn: readonly DrawnMember[]): void {
    const source = this.#members.sources.get(sourceName);
    const kept = new Set(drawn.map((proxy) => memberKey(sourceName, proxy)));
    const now = this.#clock.monotonic();
    for (const member of [...(source?.members ?? [])])
      if (!kept.has(memberKey(sourceName, member))) this.#members.remove(member, { reason: 'removed' }, now);
  }

  drainMember(sourceName: string, drawn: DrawnMember): string | undefined {
    const member = this.#members.byKey.get(memberKey(sourceName, drawn));
    if (member === undefined) return undefined;
    this.#members.remove(member, { reason: 'removed' }, this.#clock.monotonic());
    return member.openLeases > 0 ? member.id : undefined;
  }

  members() {
    const now = this.#clock.monotonic();
    const bans = this.sites.byExit();
    return [...this.#members.byId.values()]
      .map((member) => memberView(member, now, bans.get(member.exit)))
      .filter((view) => view !== undefined);
  }

  counts(): readonly SourceCounts[] {
    return [...this.#members.sources.values()].map(sourceCounts);
  }

  countsOf(sourceName: string): SourceCounts | undefined {
    const source = this.#members.sources.get(sourceName);
    return source && sourceCounts(source);
  }

  get waitingCount(): number {
    return this.#queue.byRequest.size + this.waitingElsewhere;
  }

  sessions() {
    const now = this.#clock.monotonic();
    return [...this.#sessions.byName.values()].map((session) =>
      sessionView(session, this.#members.find(session.member)?.id, now),
    );
  }

  /** Its open tunnels continue. @returns false when there is no such member. */
  evict(id: string): boolean {
    const member = this.#members.find(id);
    if (member === undefined) return false;
    this.#members.remove(member, { reason: 'evicted' }, this.#clock.monotonic());
    return true;
  }

  reconfigure(settings: PoolSettings): void {
    const now = this.#clock.monotonic();
    this.#members.configure(settings, now);
    this.#sessions.settings = settings.rotation;
    for (const client of this.#queue.byRequest.values()) {
      const { routing } = client.request;
      const impossible = this.#whyImpossible(routing);
      if (impossible === undefined)
        this.#queue.changeLine(client, this.#members.index.find(filterAt(client.site, routing), now));
      else this.#queue.answer(client, refused('bad-routing', impossible), now);
    }
    this.serveWaiting(now);
    this.refuseHopeless();
  }

  /**
   * A verdict of a client or the operator about a member, also up to ten minutes after it left, or about that of a session.
   * @param host - canonical.
   * @param user - for whom alone a ban counts until a second user agrees; absent: for everybody.
   * @returns false when there is no such member or session.
   */
  ban({
    holder,
    host,
    verdict,
    forMs,
    user,
  }: Pick<Verdict, 'verdict'> &
    Partial<Verdict> & { readonly holder: LeaseHolder; readonly host: string }): boolean {
    const session = 'session' in holder ? this.#sessions.byName.get(holder.session) : undefined;
    const id = 'member' in holder ? holder.member : session?.member;
    const found = this.#members.exitOf(id ?? '', this.#clock.monotonic());
    if (found === undefined) return session !== undefined; // the session has no member, so there is no exit to ban
    this.#judge(found, host, { verdict, forMs, user });
    return true;
  }

  #judge(
    { exit, source }: { readonly exit: string; readonly source: string },
    host: string,
    { verdict, forMs, user }: Omit<Verdict, 'host'>,
  ): void {
    if (verdict === 'ok') this.unbanExit(host, exit, user);
    else this.banExit({ host, exit, source, evidence: 'report', forMs, user });
  }

  banExit(banned: Parameters<Sites['ban']>[0]): void {
    const lifeMs = this.#members.sources.get(banned.source ?? '')?.longestLifeMs;
    if (!this.sites.ban({ ...banned, lifeMs })) return;
    // a ban may leave waiting clients without an exit: they need a draw, or have no chance
    this.refuseHopeless();
    this.#announceStranded(this.sites.of(banned.host));
  }

  unbanExit(host: string, exit: string, user?: string): void {
    this.sites.lift(host, exit, user);
    this.#members.index.membersFreed = true;
    this.serveWaiting(this.#clock.monotonic());
  }

  rotateSession(name: string): SessionRotation | undefined {
    const session = this.#sessions.byName.get(name);
    if (session === undefined || session.isFixed) return undefined;
    const now = this.#clock.monotonic();
    this.#members.update(now);
    return this.#pick.rotate(session, now);
  }

  /** Grants no lease; undefined if no member can serve the session now. Counts as demand for the member's source. */
  assignMember(request: AssignmentRequest) {
    const now = this.#clock.monotonic();
    this.#catchUp(now);
    if (this.#closed || this.#whyImpossible(request.routing) !== undefined) return undefined;
    const candidates = this.#members.index.find(filterOf(request.routing), now);
    const member = this.#pick.assign(request, candidates, now);
    if (this.#pick.endedQuiet) this.#emitDemand(candidates, now);
    if (member === undefined) return undefined;
    this.#recordSessionDemand(member.source, now);
    return assignedMember(member, now);
  }

  memberOfSession(name: string): string | undefined {
    return this.#members.find(this.#sessions.byName.get(name)?.member)?.id;
  }

  isWorthWaiting(routing: RoutingOptions, waitMs: number): boolean {
    if (this.#closed || this.#whyImpossible(routing) !== undefined) return false;
    const request = { id: 0, routing, targetHost: '', avoid: [], waitMs };
    const now = this.#clock.monotonic();
    const candidates = this.#members.index.find(filterOf(routing), now);
    return this.#hopelessness(now)(request, waitMs, candidates) === undefined;
  }

  refusalFor(routing: RoutingOptions): LeaseRefusal {
    const impossible = this.#whyImpossible(routing);
    return impossible === undefined
      ? this.#poolEmpty(NONE_FREE, routing)
      : refused('bad-routing', impossible);
  }

  /**
   * A fault of the member, and the session moves. The fault of a quarantined member is known and does not count again. @returns false when
   * there is no such session.
   */
  rejectMemberOf(name: string): boolean {
    const now = this.#clock.monotonic();
    this.#members.update(now);
    const session = this.#sessions.byName.get(name);
    if (session === undefined) return false;
    const member = this.#members.find(session.member);
    if (member?.phase.name === 'ready') this.#members.recordFault(member, 'member-rejected', now, now);
    this.#pick.rotate(session, now);
    this.serveWaiting(now);
    return true;
  }

  limitTunnels(sourceName: string, factor: number): void {
    const { leaseLimit = 0, openLeases = 0 } = this.#members.sources.get(sourceName) ?? {};
    const current = leaseLimit === Number.POSITIVE_INFINITY ? openLeases : leaseLimit;
    this.#restrict(sourceName, { leaseLimit: Math.max(1, Math.floor(current * factor)) });
  }

  unlimitTunnels(sourceName: string): void {
    this.#restrict(sourceName, { leaseLimit: Number.POSITIVE_INFINITY });
  }

  /** Clients see the reason; undefined: the pool picks members of the source again. */
  blockSource(sourceName: string, reason: string | undefined): void {
    this.#restrict(sourceName, { blockedReason: reason });
    this.refuseHopeless();
  }

  freezeEvictions(on: boolean): void {
    const now = this.#clock.monotonic();
    this.#members.freezeEvictions(on, now);
    this.serveWaiting(now);
  }

  snapshot(): PoolSnapshot {
    return takeSnapshot(this.#clock, this.#members);
  }

  /** Call it on a pool that has just been opened. @param passedMs - time since the snapshot. */
  restore(snapshot: PoolSnapshot, passedMs: number): void {
    restoreSnapshot(this.#members, snapshot, passedMs, this.#clock.monotonic());
  }

  serveWaiting(now: number): void {
    const { index } = this.#members;
    if (!index.membersFreed) return;
    index.membersFreed = false;
    if (this.#queue.byRequest.size > 0) this.#queue.serveEach((client) => this.#serve(client, now));
  }

  /** Refuses the waiting clients for which no member can come in time. Call it when the forecasts have changed. */
  refuseHopeless(): void {
    if (this.#queue.byRequest.size === 0) return;
    const now = this.#clock.monotonic();
    const hopelessness = this.#hopelessness(now);
    for (const client of this.#queue.byRequest.values()) {
      const hopeless = hopelessness(client.request, client.key - now, client.candidates);
      if (hopeless !== undefined) this.#queue.answer(client, hopeless, now);
    }
  }

  /** Keeps the members, so that a last snapshot is possible. */
  close(): void {
    this.#closed = true;
    const now = this.#clock.monotonic();
    for (const client of this.#queue.byRequest.values()) this.#queue.answer(client, SHUTTING_DOWN, now);
    this.#queue.close();
    this.#sourceMoves[Symbol.dispose]();
    this.#members.index.close();
    this.#sessions.close();
  }

  #restrict(sourceName: string, change: Partial<Pick<PoolSource, 'blockedReason' | 'leaseLimit'>>): void {
    const source = this.#members.sources.get(sourceName);
    if (source === undefined) return;
    const { blockedReason, leaseLimit } = source;
    const next = { blockedReason, leaseLimit, ...change };
    if (next.blockedReason === blockedReason && next.leaseLimit === leaseLimit) return;
    const now = this.#clock.monotonic();
    this.#members.restrict(source, next, now);
    this.serveWaiting(now);
  }

  #catchUp(now: number): void {
    this.#members.update(now);
    if (this.#queue.retryAt <= now) {
      this.#queue.retryAt = Number.POSITIVE_INFINITY;
      this.#members.index.membersFreed = true;
    }
    this.serveWaiting(now);
  }

  #onQueueDue(): void {
    const now = this.#clock.monotonic();
    this.#catchUp(now);
    const { byDeadline } = this.#queue;
    for (let late = byDeadline.first; late !== undefined && late.key <= now; late = byDeadline.first) {
      const waitedS = Math.round((now - late.sinceAt) / 100) / 10;
      const reason = `Waited ${waitedS} s for a member that can serve this request.`;
      const isLimited = late.site.nextRequestAt > now;
      const refusal = isLimited
        ? limitRefusal(late.site, now)
        : this.#poolEmpty(reason, late.request.routing);
      this.#queue.answer(late, refusal, now);
    }
  }

  /** @returns whether another client with the same filter may be served now. */
  #serve(client: WaitingClient, now: number): boolean {
    const lease = this.#tryLease(client.request, client, now);
    if (this.#pick.ended !== undefined)
      this.#queue.answer(client, refused('session-ended', this.#pick.ended), now);
    else if (lease !== undefined) this.#queue.answer(client, lease, now);
    else this.#queue.retryBy(this.#pick.retryAt);
    return lease !== undefined || this.#pick.ended !== undefined || this.#pick.rejectedForRequest;
  }

  #tryLease(
    request: LeaseRequest,
    { candidates, site, sinceAt }: Pick<WaitingClient, 'candidates' | 'site' | 'sinceAt'>,
    now: number,
  ): Lease | undefined {
    const { routing } = request;
    if (site.nextRequestAt > now) {
      this.#pick.waitFor(site.nextRequestAt);
      return undefined;
    }
    let session: Session | undefined;
    if (routing.session !== undefined) {
      session = this.#sessions.use(routing.session, routing, now);
      session.filter = candidates.filter;
    }
    const member = this.#pick.member(request, candidates, { session, site }, now);
    if (member === undefined) return undefined;
    const { rate } = site.rule;
    if (rate !== 'off') {
      const { count, machine } = this.#members.index.part;
      const intervalMs = (SECOND_MS * count * (machine?.count ?? 1)) / rate;
      site.nextRequestAt = Math.max(site.nextRequestAt, now - intervalMs) + intervalMs;
    }
    if (session !== undefined) this.#recordSessionDemand(member.source, now);
    return this.leases.grant(member, now, { request, session, site, waitedMs: now - sinceAt });
  }

  #wait(
    request: LeaseRequest,
    candidates: Candidates,
    site: Site,
    now: number,
  ): LeaseRefusal | Promise<Lease | LeaseRefusal> {
    const { waitMs, routing } = request;
    const isLimited = site.nextRequestAt > now;
    if (waitMs <= 0) return isLimited ? limitRefusal(site, now) : this.#poolEmpty(NONE_FREE, routing);
    const hopeless = isLimited ? undefined : this.#hopelessness(now)(request, waitMs, candidates);
    if (hopeless !== undefined) return hopeless;
    if (this.#queue.byRequest.size >= this.#maxWaiting) {
      const reason = `No member is free, and ${this.#maxWaiting} other clients, the maximum, already wait for one.`;
      return this.#poolEmpty(reason, routing);
    }
    this.#queue.retryBy(this.#pick.retryAt);
    const needsDraw = !isLimited && this.#needsDraw(request, candidates, site.waitingCount, now);
    const answer = this.#queue.join({ request, candidates, site, sinceAt: now, needsDraw });
    // Emits the demand at 1, 2, 4, 8 … waiting clients: refill must know that their number grows, but needs no event for each
    // client.
    if ((candidates.waitingCount & (candidates.waitingCount - 1)) === 0) this.#emitDemand(candidates, now);
    return answer;
  }

  /**
   * Whether a new member could serve the request, with `ahead` other clients before it. Not if it waits for the member of its session or for
   * an exit that its site lets noria use soon, or if no source draws members that fit it.
   */
  #needsDraw(request: LeaseRequest, candidates: Candidates, ahead: number, now: number): boolean {
    const { routing, avoid, targetHost, waitMs } = request;
    const { tiers, filter } = candidates;
    const { sites } = this;
    const site = sites.of(targetHost);
    const session = this.#sessions.byName.get(routing.session ?? '');
    const own = this.#members.find(session?.member);
    if (own !== undefined && session?.isFixed === true) return false;
    if (own !== undefined && !avoid.includes(own.id)) {
      const isBanned = freeAt(site, own, 0, routing.user) > now;
      if (whyUnusable(own, filter, isBanned) === undefined) return false;
    }
    if (!tiers.some(({ sources }) => sources.some((source) => couldDraw(source, filter, routing.minLifeMs))))
      return false;
    const at = servedAt(request, candidates, sites, now, ahead);
    return at <= now || at > now + waitMs * SOON_SHARE;
  }

  /** Counts drawn members against `drawsForBans` of the sites whose clients needed them. */
  #countDraws(source: PoolSource, joined: number, now: number): void {
    let left = joined;
    for (const { site, needsDraw } of this.#queue.byRequest.values()) {
      if (left === 0) return;
      if (!needsDraw || !site.pairs.values().some(({ untilAt }) => untilAt > now)) continue;
      site.drew(source.name, now);
      left -= 1;
    }
  }

  /** Tells refill of the clients that wait for a site whose exits a ban has just reduced. */
  #announceStranded(site: Site): void {
    if (site.waitingCount === 0) return;
    const now = this.#clock.monotonic();
    let ahead = 0;
    for (const client of this.#queue.byRequest.values()) {
      if (client.site !== site) continue;
      const needsDraw = this.#needsDraw(client.request, client.candidates, ahead, now);
      ahead += 1;
      if (needsDraw === client.needsDraw) continue;
      client.candidates.waitingForDrawCount += needsDraw ? 1 : -1;
      client.needsDraw = needsDraw;
    }
    this.#bus.emit('demand.rose', { sources: [...this.#members.sources.keys()] });
  }

  #emitDemand(candidates: Candidates, now: number): void {
    const searched = candidates.tiers.filter(({ lastWantedAt }) => lastWantedAt === now);
    const sources = searched.flatMap((tier) => tier.sources.map(({ name }) => name));
    if (sources.length > 0) this.#bus.emit('demand.rose', { sources });
  }

  /** If the session keeps its member, its request searches no tier, so no tier records the demand. */
  #recordSessionDemand(source: PoolSource, now: number): void {
    const wasQuiet = now - source.lastWantedAt > QUIET_MS;
    source.lastWantedAt = now;
    if (wasQuiet && !this.#pick.endedQuiet) this.#bus.emit('demand.rose', { sources: [source.name] });
  }

  #whyImpossible(routing: RoutingOptions): string | undefined {
    const { sources, locations } = this.#members;
    return this.#sessions.whyRefused(routing.sessionTtlMs) ?? whyImpossible(routing, sources, locations);
  }

  #poolEmpty(reason: string, routing: RoutingOptions): LeaseRefusal {
    const sources: LeaseRefusal['sources'][number][] = [];
    let retryAfterMs = Number.POSITIVE_INFINITY;
    for (const { name, state, reason: why, nextDrawMs, nextMemberMs } of this.#forecasts()) {
      const source = this.#members.sources.get(name);
      if (source === undefined || !couldServe(source, routing)) continue;
      if (source.blockedReason !== undefined) {
        sources.push({ name, state: 'paused', reason: source.blockedReason });
        continue;
      }
      sources.push({ name, state, reason: why, ...(nextDrawMs === undefined ? {} : { nextDrawMs }) });
      retryAfterMs = Math.min(retryAfterMs, nextMemberMs ?? Number.POSITIVE_INFINITY);
    }
    const retry = retryAfterMs === Number.POSITIVE_INFINITY ? {} : { retryAfterMs };
    return { code: 'pool-empty', reason, sources, ...retry };
  }

  /**
   * Returns a function that refuses a request for which no member can become free in its waiting time. It uses the forecasts of this moment.
   */
  #hopelessness(
    now: number,
  ): (request: LeaseRequest, waitMs: number, candidates: Candidates) => LeaseRefusal | undefined {
    const { sites } = this;
    const forecasts = new Map(this.#forecasts().map((forecast) => [forecast.name, forecast]));
    return (request, waitMs, candidates) => {
      const { routing } = request;
      const site = sites.of(request.targetHost);
      const able = [...this.#members.sources.values()].filter((source) => couldServe(source, routing));
      if (able.length === 0) return undefined;
      const at = servedAt(request, candidates, sites, now);
      const isBanned = at > now + waitMs && someServes(candidates);
      const mayServe = (source: PoolSource) => {
        if (source.blockedReason !== undefined) return false;
        const { suspendedMs = 0 } = forecasts.get(source.name) ?? {};
        if (suspendedMs >= waitMs) return hasMemberFor(request, source, sites, now);
        return !isBanned || site.drawsLeft(source.name, this.#members.index.part, now) > 0;
      };
      if (able.some(mayServe)) return undefined;
      if (isBanned) return siteBanned(site, at, now);
      return this.#poolEmpty('No source that can serve this request will have a member soon.', routing);
    };
  }
}

function hasMemberFor(
  { routing, avoid, targetHost }: LeaseRequest,
  source: PoolSource,
  sites: Sites,
  now: number,
): boolean {
  const filter = filterOf(routing);
  const site = sites.of(targetHost);
  const minEndsAt = now + (routing.minLifeMs ?? 0);
  for (const member of source.members) {
    if (member.endsAt < minEndsAt || avoid.includes(member.id)) continue;
    if (mayServe(member, filter, freeAt(site, member, 0, routing.user) > now)) return true;
  }
  return false;
}

function someServes({ tiers, filter }: Candidates): boolean {
  return tiers.some(({ sources }) =>
    sources.some(({ members }) => [...members].some((member) => mayServe(member, filter, false))),
  );
}

/** The filter of a request; a rule of `targets` may name the source for its site. */
function filterAt({ rule }: Site, routing: RoutingOptions): MemberFilter {
  return filterOf(routing, routing.source ?? rule.source);
}

/** The refusal of a client for whose site every exit is banned, and for which noria may draw no more. */
function siteBanned(site: Site, at: number, now: number): LeaseRefusal {
  let count = 0;
  let sinceAt = now;
  let untilAt = Number.POSITIVE_INFINITY;
  for (const pair of site.pairs.values()) {
    if (pair.untilAt <= now) continue;
    count += 1;
    sinceAt = Math.min(sinceAt, pair.sinceAt);
    untilAt = Math.min(untilAt, pair.untilAt);
  }
  const retryAt = Math.min(at, site.nextDrawAt > now ? site.nextDrawAt : Number.POSITIVE_INFINITY);
  const retryAfterMs = Number.isFinite(retryAt) ? retryAt - now : undefined;
  const first = roughDuration(untilAt - now);
  const bans =
    count === 0
      ? 'Each exit was used for this site a short time ago'
      : `noria knows of ${count} exits that this site has banned, since ${roughDuration(now - sinceAt)}; in ${first} the first ban ends`;
  const reason = `${bans}. noria has drawn as many IPs for this site in the last hour as drawsForBans allows (${site.rule.drawsForBans} for each source).`;
  return refused('site-banned', reason, retryAfterMs);
}

function limitRefusal({ rule, nextRequestAt }: Site, now: number): LeaseRefusal {
  const reason = `This site gets at most ${rule.rate} requests per second (rate in targets), and other clients wait.`;
  return refused('limit', reason, Math.max(0, nextRequestAt - now));
}

function refused(code: LeaseRefusal['code'], reason: string, retryAfterMs?: number): LeaseRefusal {
  return { code, reason, sources: [], ...(retryAfterMs !== undefined && { retryAfterMs }) };
}
