/**
 * Names under which clients keep one member until they have been idle for their TTL. One timer serves all sessions. A session refers to
 * its member by id, so it keeps no removed member in memory. A use only stores the moment; the timer sorts the session again later.
 */
import { type Clock, EarliestTimer } from '../core/clock.ts';
import { formatDuration } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { Heap } from '../core/heap.ts';
import type { RoutingOptions, SessionOwner } from './lease.ts';
import type { RotationOptions } from './options.ts';
import type { PoolObserver } from './pool-observer.ts';
import { REFRESH_SHARE, Session, SessionClients } from './session.ts';
import type { SessionRecord, StoredSession } from './stored-state.ts';

const NO_OWNER: SessionOwner = { user: '', address: '' };

export class Sessions {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #maxCount: number;
  readonly #byName = new Map<string, Session>();
  /** By member id; some may have left. */
  readonly countByMember = new Map<string, number>();
  /** The exits, and the members that have them, that only one session may use. */
  readonly reserved = new Map<string, Session>();
  readonly #byEnd = new Heap<Session>();
  readonly #clients = new SessionClients();
  readonly #timer: EarliestTimer;
  #journal: SessionJournal | undefined;
  readonly observers: readonly PoolObserver[];
  settings: Pick<RotationOptions, 'sessionTtlMs' | 'maxSessionTtlMs' | 'maxSessionsPerClient'>;

  constructor(
    { clock, bus, observers }: { clock: Clock; bus: EventBus; observers: readonly PoolObserver[] },
    maxCount: number,
    settings: Sessions['settings'],
  ) {
    this.#clock = clock;
    this.#bus = bus;
    this.#maxCount = maxCount;
    this.observers = observers;
    this.settings = settings;
    this.#timer = new EarliestTimer(clock, () => this.#endIdle(this.#clock.monotonic()));
  }

  get size(): number {
    return this.#byName.size;
  }

  all(): IterableIterator<Session> {
    return this.#byName.values();
  }

  find(name: string): Session | undefined {
    return this.#byName.get(name);
  }

  journal(onChange: () => void): SessionJournal {
    this.#journal = new SessionJournal(this.#clock, this.#byName, onChange);
    return this.#journal;
  }

  restore(stored: Iterable<readonly [name: string, StoredSession]>, now: number): void {
    for (const [name, { record, ageMs }] of stored) {
      const { user, address, member, ttlMs, uses } = record;
      const idleMs = record.idleMs + ageMs;
      if (this.#byName.has(name) || idleMs >= ttlMs) continue;
      const session = new Session(name, { user, address }, { ttlMs, usedAt: now - idleMs });
      session.member = member;
      session.uses = uses;
      this.add(session, now);
    }
  }

  /** A text for the client; undefined when the TTL is allowed. */
  whyRefused({ sessionTtlMs = 0 }: RoutingOptions): string | undefined {
    const { maxSessionTtlMs } = this.settings;
    if (sessionTtlMs <= maxSessionTtlMs) return undefined;
    const [given, max] = [formatDuration(sessionTtlMs), formatDuration(maxSessionTtlMs)];
    return `ttl is ${given}, but a session may be idle for at most ${max} (rotation.maxSessionTtl).`;
  }

  use(name: string, routing: RoutingOptions, now: number): Session {
    const ttlMs = routing.sessionTtlMs ?? this.settings.sessionTtlMs;
    let session = this.#byName.get(name);
    if (session !== undefined && session.openLeases <= 0 && session.endsAt <= now) {
      this.#end(session, 'idle'); // the session has already ended, but the timer that ends idle sessions is late
      session = undefined;
    }
    if (session === undefined) {
      const { sessionOwner = NO_OWNER } = routing;
      session = this.add(new Session(name, sessionOwner, { ttlMs, usedAt: now }), now);
    } else {
      session.usedAt = now;
      session.ttlMs = ttlMs;
      this.#journal?.sessionUsed(session, now);
      if (session.endsAt < session.key) this.#byEnd.update(session, session.endsAt);
      this.#timer.armBy(session.key);
    }
    session.isFixed = routing.fixed === true;
    session.isExclusive = routing.exclusive === true;
    return session;
  }

  add(session: Session, now: number): Session {
    const { owner } = session;
    const { maxSessionsPerClient } = this.settings;
    while (owner !== NO_OWNER && this.#clients.countOf(owner) >= maxSessionsPerClient) {
      const least = this.#clients.leastUsedOf(owner, now);
      if (least === undefined) break;
      this.#end(least, 'too-many');
    }
    return this.#insert(session, now);
  }

  /** From another replica, which has checked the limit per client. */
  adopt(
    shared: Pick<Session, 'name' | 'owner' | 'ttlMs' | 'usedAt' | 'uses'> & {
      readonly member?: string | undefined;
    },
    reason: string,
    now: number,
  ): void {
    const { name, owner, member, ttlMs, usedAt, uses } = shared;
    let session = this.#byName.get(name);
    if (session === undefined) {
      if (usedAt + ttlMs <= now) return;
      session = new Session(name, owner.address === '' ? NO_OWNER : owner, { ttlMs, usedAt });
      session.uses = uses;
      this.#insert(session, now);
    }
    this.usedElsewhere(session, { ttlMs, usedAt }, now);
    if (member === undefined) this.unbind(session);
    else if (member !== session.member) this.bind(session, { member, reason }, now);
  }

  #insert(session: Session, now: number): Session {
    while (this.#byName.size >= this.#maxCount) {
      const least = this.#clients.leastUsedOfLargest(now);
      if (least === undefined) break;
      this.#end(least, 'too-many');
    }
    this.#byName.set(session.name, session);
    this.#clients.add(session);
    this.#count(session.member, 1);
    this.#byEnd.add(session);
    this.#timer.armBy(session.key);
    this.#journal?.sessionChanged(session);
    return session;
  }

  bind(
    session: Session,
    { member, reason }: { readonly member: string; readonly reason: string },
    now: number,
  ): void {
    const from = session.member;
    this.#setMember(session, member);
    this.#release(session);
    session.confirmedAt = now;
    session.fallback = undefined;
    session.memberIsNew = false;
    session.memberFailed = false;
    if (from === undefined) {
      for (const observer of this.observers) observer.sessionBound(session, reason);
      this.#bus.emit('session.bound', { session: session.name, member });
    } else if (from !== member) {
      for (const observer of this.observers) observer.sessionMoved(session, reason, from);
      this.#bus.emit('session.moved', { session: session.name, from, to: member, reason });
    }
  }

  usedElsewhere(
    session: Session,
    { usedAt, ttlMs }: { readonly usedAt: number; readonly ttlMs: number },
    now: number,
  ): void {
    session.ttlMs = ttlMs;
    session.usedAt = Math.max(session.usedAt, usedAt);
    this.#journal?.sessionUsed(session, now);
  }

  unbind(session: Session): void {
    const from = session.member;
    if (from === undefined) return;
    this.#setMember(session, undefined);
    this.#release(session);
    for (const observer of this.observers) observer.sessionMoved(session, 'rotated', from);
  }

  forget(name: string): boolean {
    const session = this.#byName.get(name);
    if (session === undefined) return false;
    this.#end(session, 'forgotten');
    return true;
  }

  close(): void {
    this.#timer.disarm();
  }

  #endIdle(now: number): void {
    for (let first = this.#byEnd.first; first !== undefined && first.key <= now; first = this.#byEnd.first) {
      if (first.openLeases <= 0 && first.endsAt <= now) {
        this.#end(first, 'idle');
        continue;
      }
      if (first.openLeases > 0) {
        this.#journal?.sessionUsed(first, now);
        for (const observer of this.observers) observer.sessionUsed(first, 0);
      }
      this.#byEnd.update(first, first.nextCheckAt(now));
    }
    this.#timer.armBy(this.#byEnd.firstKey);
  }

  #setMember(session: Session, member: string | undefined): void {
    this.#count(session.member, -1);
    this.#count(member, 1);
    session.member = member;
    this.#journal?.sessionChanged(session);
  }

  reserve(session: Session, { id, exit }: { readonly id: string; readonly exit: string }): void {
    this.#release(session);
    session.reserved = [exit, id]; // a later draw of the same member may bring another exit
    for (const key of session.reserved) this.reserved.set(key, session);
  }

  #release(session: Session): void {
    for (const key of session.reserved) this.reserved.delete(key);
    session.reserved = [];
  }

  #count(member: string | undefined, change: 1 | -1): void {
    if (member === undefined) return;
    const count = (this.countByMember.get(member) ?? 0) + change;
    if (count === 0) this.countByMember.delete(member);
    else this.countByMember.set(member, count);
  }

  #end(session: Session, reason: string): void {
    this.#byName.delete(session.name);
    this.#release(session);
    this.#count(session.member, -1);
    this.#byEnd.remove(session);
    this.#clients.remove(session);
    this.#journal?.sessionChanged(session);
    for (const observer of this.observers) observer.sessionEnded(session, reason);
    this.#bus.emit('session.ended', { session: session.name, reason });
  }
}

type SessionEntry = readonly [name: string, record: SessionRecord | undefined];

/**
 * The sessions as records that survive a restart, and which of them changed since `takeChanges`. A use changes the record only if it is
 * older than a quarter of the TTL, so a busy session causes four writes per TTL.
 */
export class SessionJournal {
  readonly #clock: Clock;
  readonly #sessions: ReadonlyMap<string, Session>;
  readonly #onChange: () => void;
  readonly #changed = new Set<string>();

  constructor(clock: Clock, sessions: ReadonlyMap<string, Session>, onChange: () => void) {
    this.#clock = clock;
    this.#sessions = sessions;
    this.#onChange = onChange;
  }

  get size(): number {
    return this.#sessions.size;
  }

  *all(): Generator<SessionEntry> {
    for (const session of this.#sessions.values()) yield [session.name, this.#record(session)];
  }

  takeChanges(maxCount: number): SessionEntry[] {
    const taken: SessionEntry[] = [];
    for (const name of this.#changed) {
      if (taken.length === maxCount) break;
      this.#changed.delete(name);
      const session = this.#sessions.get(name);
      taken.push([name, session && this.#record(session)]);
    }
    return taken;
  }

  dropChanges(): void {
    this.#changed.clear();
  }

  sessionChanged({ name }: Session): void {
    this.#changed.add(name);
    this.#onChange();
  }

  sessionUsed(session: Session, now: number): void {
    if (now - session.recordedAt >= session.ttlMs * REFRESH_SHARE) this.sessionChanged(session);
  }

  #record(session: Session): SessionRecord {
    const { owner, member, ttlMs, usedAt, openLeases, uses } = session;
    const now = this.#clock.monotonic();
    session.recordedAt = now;
    return { ...owner, member, ttlMs, idleMs: openLeases > 0 ? 0 : Math.max(0, now - usedAt), uses };
  }
}
