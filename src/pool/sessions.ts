/**
 * Names under which clients keep one member until they have been idle for their TTL. One timer serves all sessions. A session refers to
 * its member by id, so it keeps no removed member in memory. A use only stores the moment; the timer sorts the session again later.
 */
import { type Clock, EarliestTimer } from '../core/clock.ts';
import { formatDuration } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import { clientNetwork } from '../core/networks.ts';
import { ANY_MEMBER, type MemberFilter } from './filter.ts';
import type { RoutingOptions } from './lease.ts';
import type { PoolSettings } from './options.ts';
import type { SessionRecord, StoredSession } from './stored-state.ts';

const NO_OWNER: Session['owner'] = { user: '', address: '' };
/** A use changes the journal's record of a session only after this share of its TTL: a busy session causes four writes per TTL. */
const REFRESH_SHARE = 1 / 4;

/** What other replicas have to know of sessions. */
export interface SessionObserver {
  sessionBound(session: Session, reason: string): void;
  sessionMoved(session: Session, reason: string, from: string | undefined): void;
  /** Leases changed, or the session is still in use. Called for every request, so it must be cheap. @param uses - new leases. */
  sessionUsed(session: Session, uses: number): void;
  sessionEnded(session: Session, reason: string): void;
}

/** `key` is the monotonic moment at which the timer checks the session next. */
export class Session implements HeapNode {
  readonly name: string;
  readonly owner: NonNullable<RoutingOptions['sessionOwner']>;
  ttlMs: number;
  member: string | undefined;
  /** The member through which a hedge last won. If the session's own member fails, the session moves to it. */
  fallback: string | undefined;
  /** Whether a pick gave the session its member, and the member has accepted no attempt since: so no target has seen its exit. */
  memberIsNew = false;
  /** Whether the session's member failed an attempt and has accepted no attempt since. */
  memberFailed = false;
  filter: MemberFilter = ANY_MEMBER;
  usedAt: number;
  /** When the session got its member or, if later, when this member last accepted an attempt. */
  confirmedAt = Number.NEGATIVE_INFINITY;
  uses = 0;
  /** Both follow the options of the session's last request, so they need no place in the journal. */
  isFixed = false;
  isExclusive = false;
  reserved: readonly string[] = [];
  /** With those of other replicas if `SharingOptions.countsLeases` is set. A session with open leases is not idle. */
  openLeases = 0;
  recordedAt = Number.NEGATIVE_INFINITY;
  readonly use: SessionUse = { session: this, key: 0, heapIndex: -1 };
  key: number;
  heapIndex = -1;

  constructor(name: string, owner: Session['owner'], { ttlMs, usedAt }: { ttlMs: number; usedAt: number }) {
    this.name = name;
    this.owner = owner;
    this.ttlMs = ttlMs;
    this.usedAt = usedAt;
    this.key = this.nextCheckAt(usedAt);
  }

  get endsAt(): number {
    return this.usedAt + this.ttlMs;
  }

  /** At its end, or earlier to renew its journal record. */
  nextCheckAt(now: number): number {
    return Math.min(
      this.openLeases > 0 ? Number.POSITIVE_INFINITY : this.endsAt,
      now + this.ttlMs * REFRESH_SHARE,
    );
  }
}

export class Sessions {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #maxCount: number;
  readonly byName = new Map<string, Session>();
  /** By member id; some may have left. */
  readonly countByMember = new Map<string, number>();
  /** The exits, and the members that have them, that only one session may use. */
  readonly reserved = new Map<string, Session>();
  readonly #byEnd = new Heap<Session>();
  readonly #clients = new SessionClients();
  readonly #timer: EarliestTimer;
  /** Names of the sessions whose record changed since the journal took it. */
  readonly #changed = new Set<string>();
  /** Undefined without a journal: nobody would take the changes. */
  #onChange: (() => void) | undefined;
  readonly observers: readonly SessionObserver[];
  settings: Pick<PoolSettings['rotation'], 'sessionTtlMs' | 'maxSessionTtlMs' | 'maxSessionsPerClient'>;

  constructor(
    { clock, bus, observers }: { clock: Clock; bus: EventBus; observers: readonly SessionObserver[] },
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

  /** The sessions as records that survive a restart. */
  journal(onChange: () => void) {
    this.#onChange = onChange;
    const [sessions, changed] = [this.byName, this.#changed];
    const entryOf = (name: string) => {
      const session = sessions.get(name);
      return [name, session && this.#record(session)] as const;
    };
    return {
      get size() {
        return sessions.size;
      },
      all: () => sessions.keys().map(entryOf),
      takeChanges(maxCount: number) {
        const names = changed.values().take(maxCount).toArray();
        for (const name of names) changed.delete(name);
        return names.map(entryOf);
      },
      dropChanges: () => changed.clear(),
    };
  }

  restore(stored: Iterable<readonly [name: string, StoredSession]>): void {
    const now = this.#clock.monotonic();
    for (const [name, { record, ageMs }] of stored) {
      const { user, address, member, ttlMs, uses } = record;
      const idleMs = record.idleMs + ageMs;
      if (this.byName.has(name) || idleMs >= ttlMs) continue;
      const session = new Session(name, { user, address }, { ttlMs, usedAt: now - idleMs });
      session.member = member;
      session.uses = uses;
      this.add(session, now);
    }
  }

  /** A text for the client; undefined when the TTL is allowed. */
  whyRefused(sessionTtlMs = 0): string | undefined {
    const { maxSessionTtlMs } = this.settings;
    if (sessionTtlMs <= maxSessionTtlMs) return undefined;
    const [given, max] = [formatDuration(sessionTtlMs), formatDuration(maxSessionTtlMs)];
    return `ttl is ${given}, but a session may be idle for at most ${max} (rotation.maxSessionTtl).`;
  }

  use(name: string, routing: RoutingOptions, now: number): Session {
    const ttlMs = routing.sessionTtlMs ?? this.settings.sessionTtlMs;
    let session = this.byName.get(name);
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
      this.#noteUse(session, now);
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
    while (owner.address !== '' && this.#clients.countOf(owner) >= maxSessionsPerClient) {
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
    let session = this.byName.get(name);
    if (session === undefined) {
      if (usedAt + ttlMs <= now) return;
      session = new Session(name, owner, { ttlMs, usedAt });
      session.uses = uses;
      this.#insert(session, now);
    }
    this.usedElsewhere(session, { ttlMs, usedAt }, now);
    if (member === undefined) this.unbind(session);
    else if (member !== session.member) this.bind(session, { member, reason }, now);
  }

  #insert(session: Session, now: number): Session {
    while (this.byName.size >= this.#maxCount) {
      const least = this.#clients.leastUsedOfLargest(now);
      if (least === undefined) break;
      this.#end(least, 'too-many');
    }
    this.byName.set(session.name, session);
    this.#clients.add(session);
    this.#count(session.member, 1);
    this.#byEnd.add(session);
    this.#timer.armBy(session.key);
    this.#noteChange(session);
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
    } else {
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
    this.#noteUse(session, now);
  }

  unbind(session: Session): void {
    const from = session.member;
    if (from === undefined) return;
    this.#setMember(session, undefined);
    this.#release(session);
    for (const observer of this.observers) observer.sessionMoved(session, 'rotated', from);
  }

  forget(name: string): boolean {
    const session = this.byName.get(name);
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
        this.#noteUse(first, now);
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
    this.#noteChange(session);
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
    this.byName.delete(session.name);
    this.#release(session);
    this.#count(session.member, -1);
    this.#byEnd.remove(session);
    this.#clients.remove(session);
    this.#noteChange(session);
    for (const observer of this.observers) observer.sessionEnded(session, reason);
    this.#bus.emit('session.ended', { session: session.name, reason });
  }

  #noteChange({ name }: Session): void {
    if (this.#onChange === undefined) return;
    this.#changed.add(name);
    this.#onChange();
  }

  #noteUse(session: Session, now: number): void {
    if (now - session.recordedAt >= session.ttlMs * REFRESH_SHARE) this.#noteChange(session);
  }

  #record(session: Session): SessionRecord {
    const { owner, member, ttlMs, usedAt, openLeases, uses } = session;
    const now = this.#clock.monotonic();
    session.recordedAt = now;
    return { ...owner, member, ttlMs, idleMs: openLeases > 0 ? 0 : Math.max(0, now - usedAt), uses };
  }
}

/** `key` may be older than the last use: `SessionClients` corrects it before it chooses a session to end. */
interface SessionUse extends HeapNode {
  readonly session: Session;
}

/** `key` is the negated number of its sessions, so that the client with the most sessions comes first. */
interface SessionClient extends HeapNode {
  readonly byNetwork: Map<string, Heap<SessionUse>>;
}

/**
 * Decides which session ends at a limit. A client is a user or, without users, the network of its address. The sessions of a user are
 * grouped by network, so that one of their machines cannot displace the sessions of another. Uses of sessions change no group.
 */
class SessionClients {
  readonly #byKey = new Map<string, SessionClient>();
  readonly #bySize = new Heap<SessionClient>();

  add({ owner, use, usedAt }: Session): void {
    const key = clientKey(owner);
    const network = clientNetwork(owner.address);
    const client = this.#byKey.get(key) ?? { byNetwork: new Map(), key: 0, heapIndex: -1 };
    const uses = client.byNetwork.get(network) ?? new Heap();
    this.#byKey.set(key, client);
    client.byNetwork.set(network, uses);
    uses.update(use, usedAt);
    this.#bySize.update(client, client.key - 1);
  }

  remove({ owner, use }: Session): void {
    const key = clientKey(owner);
    const network = clientNetwork(owner.address);
    const client = this.#byKey.get(key);
    const uses = client?.byNetwork.get(network);
    if (client === undefined || uses === undefined) return;
    uses.remove(use);
    if (uses.size === 0) client.byNetwork.delete(network);
    this.#bySize.update(client, client.key + 1);
    if (client.key < 0) return;
    this.#bySize.remove(client);
    this.#byKey.delete(key);
  }

  countOf(owner: Session['owner']): number {
    return -(this.#byKey.get(clientKey(owner))?.key ?? 0);
  }

  leastUsedOf(owner: Session['owner'], now: number): Session | undefined {
    return leastUsed(this.#byKey.get(clientKey(owner)), now);
  }

  /** At the limit of all clients together. */
  leastUsedOfLargest(now: number): Session | undefined {
    return leastUsed(this.#bySize.first, now);
  }
}

function clientKey({ user, address }: Session['owner']): string {
  return user === '' ? `address ${clientNetwork(address)}` : `user ${user}`;
}

/** Looks only at the network with the most sessions. If no session is idle, any of them. */
function leastUsed(client: SessionClient | undefined, now: number): Session | undefined {
  let largest: Heap<SessionUse> | undefined;
  for (const uses of client?.byNetwork.values() ?? []) {
    if (largest === undefined || uses.size > largest.size) largest = uses;
  }
  for (let first = largest?.first; first !== undefined; first = largest?.first) {
    const { openLeases, usedAt } = first.session;
    const usedLastAt = openLeases > 0 ? now : usedAt;
    if (first.key >= usedLastAt) return first.session;
    largest?.update(first, usedLastAt);
  }
  return undefined;
}
