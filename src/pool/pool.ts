/**
 * The pool: the members noria may pick from, for whom, and which of them are not to be trusted.
 *
 * It lends members to the data plane (`Lending`), tells refill how much is there and wanted, and takes what is
 * drawn. It owns its parts and their timers: the roster of members, the sessions, the clients that wait.
 */
import type { Clock } from '../core/clock.ts';
import { type Random, shuffled } from '../core/random.ts';
import { demandOf, heldAt, nextLossAt, usableAt } from './demand.ts';
import { Desk } from './desk.ts';
import type { AddedMembers, Demand, DrawnMember } from './drawn-member.ts';
import type { Lease, LeaseProvider, LeaseRefusal, LeaseReport, LeaseRequest } from './lease.ts';
import type { Holder } from './leases.ts';
import { Roster } from './members.ts';
import { DEFAULT_LIMITS, type PoolOptions, type PoolSettings, type PoolSourceOptions } from './options.ts';
import type { Rotated } from './picker.ts';
import { Sessions } from './sessions.ts';
import { type PoolSnapshot, type Restored, restoreSnapshot, takeSnapshot } from './snapshot.ts';
import {
  countsOf,
  type MemberView,
  memberView,
  type SessionView,
  type SourceCounts,
  sessionView,
} from './views.ts';
import { Waiting } from './waiting-queue.ts';

/** A client's own verdict on what it got from a target. */
export interface ClientVerdict {
  readonly of: Holder;
  /** Canonical host of the target. */
  readonly host: string;
  /** `ok` takes a ban back. */
  readonly verdict: 'banned' | 'ok';
}

/** Opens an empty pool that lends, waits and watches lifetimes from now on. */
export function openPool(options: PoolOptions): Pool {
  return new Pool(options);
}

/** See `openPool`. */
export class Pool implements LeaseProvider {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #roster: Roster;
  readonly #sessions: Sessions;
  readonly #waiting: Waiting;
  readonly #desk: Desk;
  #closed = false;

  constructor(options: PoolOptions) {
    const { clock, random, bus, outlook, limits: given, ...settings } = options;
    const limits = { ...DEFAULT_LIMITS, ...given };
    this.#clock = clock;
    this.#random = random;
    this.#roster = new Roster({ clock, random, bus, settings }, () => this.#desk.serve(clock.monotonic()));
    this.#sessions = new Sessions(clock, bus, limits.sessions);
    this.#waiting = new Waiting(clock, limits.waiting, () => this.#desk.wake());
    this.#desk = new Desk({
      clock,
      bus,
      roster: this.#roster,
      sessions: this.#sessions,
      waiting: this.#waiting,
      outlook,
    });
    this.#configure(settings, clock.monotonic());
  }

  acquire(request: LeaseRequest): Lease | LeaseRefusal | Promise<Lease | LeaseRefusal> {
    return this.#desk.acquire(request);
  }

  cancel(requestId: number): void {
    this.#desk.cancel(requestId);
  }

  report(report: LeaseReport): void {
    this.#desk.report(report);
  }

  /**
   * Leases on members that need a probe, at most `limit`: unproven ones, then those whose quarantine is over, then,
   * where `staleMs` is given, those through which nobody got for so long. To be reported on like any other lease.
   */
  acquireForProbe(limit: number, staleMs?: number): Lease[] {
    return this.#desk.acquireForProbe(limit, staleMs);
  }

  /** Members of the source that a client could have at that moment if nothing more were drawn; see `Demand`. */
  usableAt(source: string, atMs: number): number {
    return usableAt(this.#roster, source, atMs);
  }

  /** Members of the source that are alive at that moment, those that rest included. */
  heldAt(source: string, atMs: number): number {
    return heldAt(this.#roster, source, atMs);
  }

  /** The next moment after `afterMs` at which a member of the source stops being usable; undefined when none will. */
  nextLossAt(source: string, afterMs: number): number | undefined {
    return nextLossAt(this.#roster, source, afterMs);
  }

  demand(source: string): Demand {
    return demandOf(this.#roster, source, this.#clock.monotonic());
  }

  /** Takes what a draw brought, in shuffled order; clients that wait are served at once. */
  addMembers(sourceName: string, offers: readonly DrawnMember[]): AddedMembers {
    const source = this.#roster.sources.get(sourceName);
    const poured = { joined: 0, renewed: 0, rejected: 0 };
    // Without a source: a reload removed it while a draw was on its way.
    if (source === undefined || this.#closed) return { ...poured, rejected: offers.length };
    const now = this.#clock.monotonic();
    this.#roster.turn(now);
    for (const offer of shuffled(this.#random, offers)) poured[this.#roster.offer(source, offer, now)] += 1;
    this.#desk.serve(now);
    return poured;
  }

  members(): readonly MemberView[] {
    const now = this.#clock.monotonic();
    const views: MemberView[] = [];
    for (const member of this.#roster.members()) {
      const view = memberView(member, now);
      if (view !== undefined) views.push(view);
    }
    return views;
  }

  /** Members by state, for each source. */
  counts(): readonly SourceCounts[] {
    return [...this.#roster.sources.values()].map(countsOf);
  }

  /** Clients that wait for a member. */
  get waitingCount(): number {
    return this.#waiting.size;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  sessions(): readonly SessionView[] {
    const now = this.#clock.monotonic();
    const held = (member: string | undefined) =>
      member !== undefined && this.#roster.find(member) !== undefined;
    return [...this.#sessions.all()].map((session) => sessionView(session, held(session.member), now));
  }

  /** Removes a member for good, by hand; its open tunnels go on. @returns whether there was such a member. */
  evict(id: string): boolean {
    const member = this.#roster.find(id);
    if (member === undefined) return false;
    if (member.phase.name !== 'draining') {
      this.#roster.leave(member, { reason: 'evicted' }, this.#clock.monotonic());
    }
    return true;
  }

  /** Lets all members of a source go; what is drawn later joins as ever. */
  drainSource(name: string): void {
    const source = this.#roster.sources.get(name);
    if (source !== undefined) this.#roster.drainSource(source, this.#clock.monotonic());
  }

  /** Takes over new settings. Members of sources that are still there stay; sessions and waiting clients do, too. */
  reconfigure(settings: PoolSettings): void {
    const now = this.#clock.monotonic();
    this.#configure(settings, now);
    this.#desk.regroup(now);
  }

  /** As `reconfigure`, for the sources alone. */
  updateSources(sources: readonly PoolSourceOptions[]): void {
    this.reconfigure({ ...this.#roster.settings, sources });
  }

  /**
   * What a client says about what it got. A member banned for a host is not used for it again, nor does a session
   * keep it for that host. @returns whether there was such a member or session.
   */
  ban({ of, host, verdict }: ClientVerdict): boolean {
    const session = 'session' in of ? this.#sessions.find(of.session) : undefined;
    const id = 'member' in of ? of.member : session?.member;
    const member = id === undefined ? undefined : this.#roster.find(id);
    if (member === undefined) return session !== undefined; // its member has left, and the trouble with it
    if (verdict === 'banned') this.#roster.ban(member, host);
    else this.#roster.unban(member, host);
    this.#desk.serve(this.#clock.monotonic());
    return true;
  }

  /** Moves a session to another member. @returns undefined when there is no such session. */
  rotateSession(name: string): (Rotated & { readonly leases: readonly number[] }) | undefined {
    return this.#desk.rotate(name);
  }

  /** Forgets a session; its open tunnels go on. @returns whether there was one. */
  forgetSession(name: string): boolean {
    return this.#sessions.forget(name);
  }

  /** Ids of the open leases of a session or a member. */
  leasesOf(of: Holder): readonly number[] {
    return this.#desk.leasesOf(of);
  }

  /** Lets the source hold only `factor` of the tunnels it may hold, or holds where nothing limits it yet; at least one. */
  limitTunnels(sourceName: string, factor: number): void {
    const source = this.#roster.sources.get(sourceName);
    if (source === undefined) return;
    const held = source.tunnelLimit === Number.POSITIVE_INFINITY ? source.open : source.tunnelLimit;
    source.tunnelLimit = Math.max(1, Math.floor(held * factor));
  }

  unlimitTunnels(sourceName: string): void {
    const source = this.#roster.sources.get(sourceName);
    if (source === undefined || source.tunnelLimit === Number.POSITIVE_INFINITY) return;
    source.tunnelLimit = Number.POSITIVE_INFINITY;
    this.#roster.seating.freed = true;
    this.#desk.serve(this.#clock.monotonic());
  }

  /** None of the source's members is picked, for this reason (told to clients), until it is called with none. */
  blockSource(sourceName: string, reason: string | undefined): void {
    const source = this.#roster.sources.get(sourceName);
    if (source === undefined) return;
    source.blocked = reason;
    const now = this.#clock.monotonic();
    for (const member of source.members) this.#roster.seating.settle(member, now);
    this.#desk.serve(now);
  }

  /** While on, faults cost no member anything: our own network is down. Afterwards resting members are tried at once. */
  freezeEvictions(on: boolean): void {
    const now = this.#clock.monotonic();
    this.#roster.freeze(on, now);
    this.#desk.serve(now);
  }

  snapshot(): PoolSnapshot {
    return takeSnapshot({ clock: this.#clock, roster: this.#roster, sessions: this.#sessions });
  }

  /**
   * Brings back what a snapshot holds and has not expired meanwhile. For a pool that has just been opened.
   *
   * @param passedMs - since it was taken; by the wall clock when left out.
   */
  restore(snapshot: PoolSnapshot, passedMs?: number): Restored {
    const kept = { clock: this.#clock, roster: this.#roster, sessions: this.#sessions };
    const restored = restoreSnapshot(kept, snapshot, passedMs);
    this.#desk.serve(this.#clock.monotonic());
    return restored;
  }

  /** Refuses everyone who waits and stops every timer. Members stay, for a last snapshot. Safe to call twice. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#desk.close();
    this.#roster.seating.close();
    this.#sessions.close();
    this.#waiting.close();
  }

  /** The start of a source counts as a client, at the pool's own start and at a reload that brings it. */
  #configure(settings: PoolSettings, now: number): void {
    const known = new Set(this.#roster.sources.keys());
    this.#roster.configure(settings, now);
    const first = Math.min(...settings.sources.map(({ priority }) => priority));
    for (const [name, source] of this.#roster.sources) {
      if (!known.has(name) && source.options.priority === first) source.wantedAt = now;
    }
  }
}
