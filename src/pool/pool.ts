/**
 * The pool: the members that clients may use. It grants leases on members to the data plane (`LeaseProvider`) and adds
 * the members that refill draws. For refill, it counts the usable members and measures the demand of the clients.
 *
 * It owns its parts and their timers: members, sessions, open leases and waiting clients. Each method that frees a
 * member serves the waiting clients before it returns.
 */
import type { Clock } from '../core/clock.ts';
import { countedAt, demandFor, heldAt, usableAt } from './demand.ts';
import type { AddedMembers, Demand, DrawnMember } from './drawn-member.ts';
import type {
  Lease,
  LeaseProvider,
  LeaseRefusal,
  LeaseReport,
  LeaseRequest,
  ProbeLease,
  RoutingOptions,
  UpcomingMember,
  UpcomingQuery,
} from './lease.ts';
import { type LeaseHolder, Leases } from './leases.ts';
import type { PoolSource } from './member.ts';
import { MemberFaults } from './member-faults.ts';
import { MemberIntake } from './member-intake.ts';
import { Members } from './members.ts';
import { DEFAULT_LIMITS, type PoolOptions, type PoolSettings } from './options.ts';
import { type AssignmentRequest, Picker, type SessionRotation } from './picker.ts';
import { leaseForProbes, memberThatWorked } from './probe-leases.ts';
import { Requests } from './requests.ts';
import type { SessionJournal } from './session-journal.ts';
import { Sessions } from './sessions.ts';
import { PoolSharing, type SharingOptions, type SharingParts } from './sharing.ts';
import { restoreSnapshot, takeSnapshot } from './snapshot.ts';
import type { PoolSnapshot, StoredSession } from './stored-state.ts';
import {
  type AssignedMember,
  assignedMember,
  type MemberView,
  memberView,
  type SessionView,
  type SourceCounts,
  sessionView,
  sourceCounts,
} from './views.ts';

/** A client's report that a target host bans a member, or no longer bans it. */
interface BanReport {
  readonly holder: LeaseHolder;
  /** Canonical host of the target. */
  readonly host: string;
  /** `banned`: the host bans the member. `ok`: the host no longer bans the member. */
  readonly verdict: 'banned' | 'ok';
}

type SourceLimits = Pick<PoolSource, 'blockedReason' | 'leaseLimit'>;

export class Pool implements LeaseProvider {
  readonly #clock: Clock;
  readonly #members: Members;
  readonly #intake: MemberIntake;
  readonly #sessions: Sessions;
  readonly #faults: MemberFaults;
  readonly #leases: Leases;
  readonly #picker: Picker;
  readonly #requests: Requests;
  readonly #parts: SharingParts;
  #closed = false;

  constructor({ clock, random, bus, forecasts, limits, ...settings }: PoolOptions) {
    const { waiting, sessions } = { ...DEFAULT_LIMITS, ...limits };
    this.#clock = clock;
    const onChange = () => this.#requests.serveWaiting(clock.monotonic());
    const sharings: PoolSharing[] = [];
    this.#members = new Members({ clock, random, bus, settings, observers: sharings, onChange });
    this.#intake = new MemberIntake(this.#members, random);
    this.#sessions = new Sessions({
      clock,
      bus,
      maxCount: sessions,
      observers: sharings,
      settings: settings.rotation,
    });
    this.#faults = new MemberFaults(this.#members);
    this.#leases = new Leases(this.#members, this.#sessions, this.#faults);
    this.#picker = new Picker(this.#members, this.#sessions);
    this.#requests = new Requests({
      clock,
      bus,
      members: this.#members,
      sessions: this.#sessions,
      leases: this.#leases,
      picker: this.#picker,
      forecasts,
      maxWaiting: waiting,
    });
    this.#parts = {
      clock,
      bus,
      members: this.#members,
      intake: this.#intake,
      faults: this.#faults,
      sessions: this.#sessions,
      requests: this.#requests,
      sharings,
    };
    this.#configure(settings, clock.monotonic());
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    return this.#requests.acquire(request);
  }

  cancel(requestId: number): void {
    this.#requests.cancel(requestId);
  }

  upcoming(query: UpcomingQuery): readonly UpcomingMember[] {
    return this.#requests.upcoming(query);
  }

  report(report: LeaseReport): void {
    const now = this.#clock.monotonic();
    if (this.#leases.report(report, now)) this.#requests.serveWaiting(now);
  }

  /**
   * Grants leases for probes on at most `limit` members, most urgent first. If `staleMs` is given, also grants leases
   * on ready members that had no success for that time. The caller reports the outcomes like those of other leases.
   */
  acquireForProbe(limit: number, staleMs?: number): readonly ProbeLease[] {
    if (this.#closed) return [];
    const now = this.#clock.monotonic();
    this.#members.update(now);
    return leaseForProbes(this.#members, this.#leases, { now, limit, staleMs });
  }

  /**
   * Leases one of the source's members that worked during the last `withinMs`, so that the prober can compare a
   * suspected member with it.
   */
  acquireForComparison(sourceName: string, withinMs: number): Lease | undefined {
    const source = this.#members.sources.get(sourceName);
    if (source === undefined || this.#closed) return undefined;
    const now = this.#clock.monotonic();
    const member = memberThatWorked(source, now, withinMs);
    return member && this.#leases.grantProbe(member, now);
  }

  /** The number of members that will be usable at `moment`; see `usableAt` in demand.ts. */
  usableAt(sourceName: string, moment: number): number {
    const source = this.#members.sources.get(sourceName);
    return source === undefined ? 0 : usableAt(this.#members, source, moment);
  }

  /**
   * Like `usableAt`, but also counts each quarantined member that no draw will replace; see `countedAt` in demand.ts.
   */
  countedAt(sourceName: string, moment: number): number {
    const source = this.#members.sources.get(sourceName);
    return source === undefined ? 0 : countedAt(this.#members, source, moment);
  }

  /** The number of members that will not have expired at `moment`; see `heldAt` in demand.ts. */
  heldAt(sourceName: string, moment: number): number {
    const source = this.#members.sources.get(sourceName);
    return source === undefined ? 0 : heldAt(source, moment);
  }

  /** The first monotonic moment after `moment` at which a member of the source stops being usable; undefined if no member does. */
  nextLossAt(sourceName: string, moment: number): number | undefined {
    const at = this.#members.sources.get(sourceName)?.expiries.nextAfter(moment);
    return at === Number.POSITIVE_INFINITY ? undefined : at;
  }

  demand(sourceName: string): Demand {
    const source = this.#members.sources.get(sourceName);
    return source === undefined
      ? { waiting: 0, lastWantedAt: Number.NEGATIVE_INFINITY, usedUpPerSecond: 0 }
      : demandFor(this.#members, source, { now: this.#clock.monotonic() });
  }

  /** Adds the members of a draw in random order. */
  addMembers(sourceName: string, drawn: readonly DrawnMember[]): AddedMembers {
    const source = this.#members.sources.get(sourceName);
    // A reload during the draw may have removed the source.
    if (source === undefined || this.#closed) return { joined: 0, renewed: 0, rejected: drawn.length };
    const now = this.#clock.monotonic();
    this.#members.update(now);
    const added = this.#intake.addDraw(source, drawn, now);
    this.#requests.serveWaiting(now);
    return added;
  }

  members(): readonly MemberView[] {
    const now = this.#clock.monotonic();
    return [...this.#members.all()]
      .map((member) => memberView(member, now))
      .filter((view) => view !== undefined);
  }

  counts(): readonly SourceCounts[] {
    return [...this.#members.sources.values()].map(sourceCounts);
  }

  get waitingCount(): number {
    return this.#requests.waitingCount;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  sessions(): readonly SessionView[] {
    const now = this.#clock.monotonic();
    return [...this.#sessions.all()].map((session) =>
      sessionView(session, this.#members.find(session.member)?.id, now),
    );
  }

  /**
   * Removes a member at the request of the operator. Its open tunnels continue. @returns false when there is no such
   * member.
   */
  evict(id: string): boolean {
    const member = this.#members.find(id);
    if (member === undefined) return false;
    this.#members.remove(member, { reason: 'evicted' }, this.#clock.monotonic());
    return true;
  }

  /** Applies new settings. Keeps sessions, waiting clients and the members of sources that are still configured. */
  reconfigure(settings: PoolSettings): void {
    const now = this.#clock.monotonic();
    this.#configure(settings, now);
    this.#requests.reconsider(now);
  }

  /**
   * Applies a client's report that a target host bans a member, or no longer bans it. The report names the member or
   * its session. While the ban lasts, the pool does not use the member for this host.
   * @returns false when there is no such member or session.
   */
  ban({ holder, host, verdict }: BanReport): boolean {
    const session = 'session' in holder ? this.#sessions.find(holder.session) : undefined;
    const member = this.#members.find('member' in holder ? holder.member : session?.member);
    if (member === undefined) return session !== undefined; // the session's member has left, so there is no member to ban
    if (verdict === 'banned') this.#members.ban(member, host);
    else this.#members.unban(member, host);
    this.#requests.serveWaiting(this.#clock.monotonic());
    return true;
  }

  /** Moves a session to another member. @returns undefined when there is no such session. */
  rotateSession(name: string): SessionRotation | undefined {
    const session = this.#sessions.find(name);
    if (session === undefined) return undefined;
    const now = this.#clock.monotonic();
    this.#members.update(now);
    return this.#picker.rotate(session, now);
  }

  /** Assigns a member to a session, but grants no lease; see `Requests.assignMember`. */
  assignMember(request: AssignmentRequest): AssignedMember | undefined {
    const member = this.#requests.assignMember(request);
    return member && assignedMember(member, this.#clock.monotonic());
  }

  /** The id of the session's member; undefined if the member is no longer in the pool. */
  memberOfSession(name: string): string | undefined {
    return this.#members.find(this.#sessions.find(name)?.member)?.id;
  }

  /** Whether a client with these routing options may get a member within `waitMs`. */
  isWorthWaiting(routing: RoutingOptions, waitMs: number): boolean {
    return this.#requests.isWorthWaiting(routing, waitMs);
  }

  /** Why no member can serve these routing options now. */
  refusalFor(routing: RoutingOptions): LeaseRefusal {
    return this.#requests.refusalFor(routing);
  }

  /**
   * Applies a client's report that the member of a session is bad: it counts as a fault of the member, and the session moves. If
   * the member is quarantined, its fault is known already and does not count again. @returns false when there is no such session.
   */
  rejectMemberOf(name: string): boolean {
    const now = this.#clock.monotonic();
    this.#members.update(now);
    const session = this.#sessions.find(name);
    if (session === undefined) return false;
    const member = this.#members.find(session.member);
    if (member?.phase.name === 'ready') {
      this.#faults.recordFault(member, { fault: 'member-rejected', leasedAt: now }, now);
    }
    this.#picker.rotate(session, now);
    this.#requests.serveWaiting(now);
    return true;
  }

  /** Ends a session. Its open tunnels continue. @returns false when there is no such session. */
  forgetSession(name: string): boolean {
    return this.#sessions.forget(name);
  }

  leasesOf(holder: LeaseHolder): readonly number[] {
    return this.#leases.of(holder);
  }

  /** Lowers the limit of the source's open leases; see `PoolSource.limitedTo`. */
  limitTunnels(sourceName: string, factor: number): void {
    this.#restrict(sourceName, (source) => ({ leaseLimit: source.limitedTo(factor) }));
  }

  unlimitTunnels(sourceName: string): void {
    this.#restrict(sourceName, () => ({ leaseLimit: Number.POSITIVE_INFINITY }));
  }

  /** Call it when the forecasts have changed. Refuses the waiting clients for which no member can come in time. */
  refuseHopeless(): void {
    this.#requests.refuseHopeless();
  }

  /**
   * Stops picking members of a source; clients see the reason. If the reason is undefined, the pool picks these members
   * again.
   */
  blockSource(sourceName: string, reason: string | undefined): void {
    this.#restrict(sourceName, () => ({ blockedReason: reason }));
    this.#requests.refuseHopeless();
  }

  /**
   * If `on` is true, faults of members no longer count, because noria's own network is down. If it is false, faults
   * count again, and clients may try quarantined members at once.
   */
  freezeEvictions(on: boolean): void {
    const now = this.#clock.monotonic();
    this.#faults.freezeEvictions(on, now);
    this.#requests.serveWaiting(now);
  }

  snapshot(): PoolSnapshot {
    return takeSnapshot(this.#parts);
  }

  /**
   * Restores what has not expired since the snapshot. Call it on a pool that has just been opened.
   *
   * @param passedMs - time since the snapshot.
   */
  restore(snapshot: PoolSnapshot, passedMs: number): void {
    restoreSnapshot(this.#parts, snapshot, passedMs);
    this.#requests.serveWaiting(this.#clock.monotonic());
  }

  /** Returns a journal with a record of each session, and of each change of a session from now on. */
  sessionJournal(onChange: () => void): SessionJournal {
    return this.#sessions.journal(onChange);
  }

  /** Restores the stored sessions that have not ended in the meantime. */
  restoreSessions(stored: Iterable<readonly [name: string, StoredSession]>): void {
    this.#sessions.restore(stored, this.#clock.monotonic());
  }

  /** Shares the pool with a group of replicas from now on. Each group also gets what the pool learns from the other groups. */
  share(options: SharingOptions): PoolSharing {
    return new PoolSharing(this.#parts, options);
  }

  /** Refuses all waiting and new requests and stops every timer. Keeps the members, so that a last snapshot is possible. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#requests.close();
    this.#members.index.close();
    this.#sessions.close();
  }

  #restrict(sourceName: string, restriction: (source: PoolSource) => Partial<SourceLimits>): void {
    const source = this.#members.sources.get(sourceName);
    if (source === undefined) return;
    const { blockedReason, leaseLimit } = source;
    const next = { blockedReason, leaseLimit, ...restriction(source) };
    if (next.blockedReason === blockedReason && next.leaseLimit === leaseLimit) return;
    const now = this.#clock.monotonic();
    this.#members.restrict(source, next, now);
    this.#requests.serveWaiting(now);
  }

  #configure(settings: PoolSettings, now: number): void {
    this.#members.configure(settings, now);
    this.#sessions.settings = settings.rotation;
  }
}
