/**
 * Sessions: the names under which clients stay on one member until the session has been idle for its TTL.
 *
 * It owns all sessions and one timer for them. A session refers to its member by id, so it keeps no member alive. Using
 * a session only records the time: its place in the heap is corrected when the timer reaches it.
 */
import type { Clock } from '../core/clock.ts';
import { EarliestTimer } from '../core/earliest-timer.ts';
import type { EventBus } from '../core/events.ts';
import { Heap, type HeapNode } from '../core/heap.ts';
import { ANY_MEMBER, type MemberFilter } from './filter.ts';

/** One session. `key` is the monotonic moment at which the timer looks at it next. */
export class Session implements HeapNode {
  readonly name: string;
  ttlMs: number;
  /** Id of its member; undefined until the next pick when it has none. */
  member: string | undefined;
  /** The filter of its last request. */
  filter: MemberFilter = ANY_MEMBER;
  /** Monotonic moment of its last use. */
  usedAt: number;
  /** Monotonic moment at which its member was last picked for it or accepted an attempt. */
  confirmedAt = Number.NEGATIVE_INFINITY;
  /** Leases so far. */
  uses = 0;
  /** Open leases; with one, the session is not idle. */
  openLeases = 0;
  key: number;
  heapIndex = -1;

  constructor(name: string, ttlMs: number, now: number) {
    this.name = name;
    this.ttlMs = ttlMs;
    this.usedAt = now;
    this.key = now + ttlMs;
  }

  /** Monotonic moment at which it ends without another use. */
  get endsAt(): number {
    return this.usedAt + this.ttlMs;
  }
}

/** All sessions, up to a limit. */
export class Sessions {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #maxCount: number;
  readonly #byName = new Map<string, Session>();
  readonly #countByMember = new Map<string, number>();
  readonly #byEnd = new Heap<Session>();
  readonly #timer: EarliestTimer;

  constructor(clock: Clock, bus: EventBus, maxCount: number) {
    this.#clock = clock;
    this.#bus = bus;
    this.#maxCount = maxCount;
    this.#timer = new EarliestTimer(clock, () => this.#endIdle(this.#clock.monotonic()));
  }

  get size(): number {
    return this.#byName.size;
  }

  /** The number of sessions on each member, by member id. Some of the members may have left. */
  get countByMember(): ReadonlyMap<string, number> {
    return this.#countByMember;
  }

  all(): IterableIterator<Session> {
    return this.#byName.values();
  }

  /** Does not count as a use. */
  find(name: string): Session | undefined {
    return this.#byName.get(name);
  }

  /** Uses the session of this name; creates one without a member when there is none. */
  use(name: string, ttlMs: number, now: number): Session {
    const session = this.#byName.get(name);
    if (session !== undefined && session.openLeases === 0 && session.endsAt <= now) {
      this.#end(session, 'idle'); // its timer is late
    } else if (session !== undefined) {
      session.usedAt = now;
      session.ttlMs = ttlMs;
      if (session.endsAt < session.key) this.#byEnd.update(session, session.endsAt);
      this.#timer.armBy(session.key);
      return session;
    }
    this.#makeRoom();
    return this.add(new Session(name, ttlMs, now));
  }

  add(session: Session): Session {
    this.#byName.set(session.name, session);
    this.#count(session.member, 1);
    this.#byEnd.add(session);
    this.#timer.armBy(session.key);
    return session;
  }

  /** Puts the session on the member and emits `session.bound` or `session.moved`. */
  bind(session: Session, member: string, reason: string, now: number): void {
    const from = session.member;
    this.#setMember(session, member);
    session.confirmedAt = now;
    if (from === undefined) this.#bus.emit('session.bound', { session: session.name, member });
    else if (from !== member) {
      this.#bus.emit('session.moved', { session: session.name, from, to: member, reason });
    }
  }

  /** Leaves the session without a member until its next pick. */
  unbind(session: Session): void {
    this.#setMember(session, undefined);
  }

  /** @returns false when there is no such session. */
  forget(name: string): boolean {
    const session = this.#byName.get(name);
    if (session === undefined) return false;
    this.#end(session, 'forgotten');
    return true;
  }

  /** Stops the timer and keeps the sessions. */
  close(): void {
    this.#timer.disarm();
  }

  #endIdle(now: number): void {
    for (let first = this.#byEnd.first; first !== undefined && first.key <= now; first = this.#byEnd.first) {
      if (first.openLeases > 0) this.#byEnd.update(first, now + first.ttlMs);
      else if (first.endsAt > now) this.#byEnd.update(first, first.endsAt);
      else this.#end(first, 'idle');
    }
    this.#timer.armBy(this.#byEnd.firstKey);
  }

  /** At the limit, ends the session that would end first. */
  #makeRoom(): void {
    if (this.#byName.size < this.#maxCount) return;
    for (let first = this.#byEnd.first; first !== undefined; first = this.#byEnd.first) {
      if (first.key >= first.endsAt) {
        this.#end(first, 'too-many');
        return;
      }
      this.#byEnd.update(first, first.endsAt);
    }
  }

  #setMember(session: Session, member: string | undefined): void {
    this.#count(session.member, -1);
    this.#count(member, 1);
    session.member = member;
  }

  #count(member: string | undefined, change: 1 | -1): void {
    if (member === undefined) return;
    const count = (this.#countByMember.get(member) ?? 0) + change;
    if (count === 0) this.#countByMember.delete(member);
    else this.#countByMember.set(member, count);
  }

  #end(session: Session, reason: string): void {
    this.#byName.delete(session.name);
    this.#count(session.member, -1);
    this.#byEnd.remove(session);
    this.#bus.emit('session.ended', { session: session.name, reason });
  }
}
