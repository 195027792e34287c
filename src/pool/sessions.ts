/**
 * Sessions: the names under which clients stay on one member, and how long an idle one is remembered.
 *
 * A session holds its member by id, so that it keeps nothing alive. All share one timer; a session's place in its
 * heap is put right only when it gets there, so that using one costs nothing but a note of the time.
 */
import type { Clock } from '../core/clock.ts';
import { EarliestTimer } from '../core/earliest-timer.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberFilter } from './candidates.ts';
import { Heap, type HeapNode } from './heap.ts';

/** One session. Its key is the moment at which it is looked at again. */
export class Session implements HeapNode {
  readonly name: string;
  ttlMs: number;
  /** Id of its member; undefined until the next pick after it was left without. */
  member: string | undefined;
  /** What was last wished for under its name. */
  kind: MemberFilter = {};
  /** Monotonic moment of its last use. */
  usedAt: number;
  /** Monotonic moment at which its member was last confirmed: chosen for it, or accepted. */
  settledAt = Number.NEGATIVE_INFINITY;
  /** Leases given under its name. */
  uses = 0;
  /** Leases that are open under its name: while there are any it is not idle. */
  open = 0;
  key: number;
  place = -1;

  constructor(name: string, ttlMs: number, now: number) {
    this.name = name;
    this.ttlMs = ttlMs;
    this.usedAt = now;
    this.key = now + ttlMs;
  }

  /** Monotonic moment at which it ends if it is not used before. */
  get endsAt(): number {
    return this.usedAt + this.ttlMs;
  }
}

/** All sessions, up to a limit. */
export class Sessions {
  readonly #clock: Clock;
  readonly #bus: EventBus;
  readonly #limit: number;
  readonly #byName = new Map<string, Session>();
  /** How many sessions have each member, by its id. */
  readonly #held = new Map<string, number>();
  readonly #ends = new Heap<Session>();
  readonly #alarm: EarliestTimer;

  constructor(clock: Clock, bus: EventBus, limit: number) {
    this.#clock = clock;
    this.#bus = bus;
    this.#limit = limit;
    this.#alarm = new EarliestTimer(clock, () => this.#sweep(this.#clock.monotonic()));
  }

  get size(): number {
    return this.#byName.size;
  }

  /** Ids of the members that sessions have; some may be gone. */
  get held(): ReadonlyMap<string, number> {
    return this.#held;
  }

  all(): IterableIterator<Session> {
    return this.#byName.values();
  }

  /** The session as it is, not used by this. */
  find(name: string): Session | undefined {
    return this.#byName.get(name);
  }

  /** The session of this name, used now; a new one without a member where there was none. */
  use(name: string, ttlMs: number, now: number): Session {
    let session = this.#byName.get(name);
    if (session !== undefined && session.open === 0 && session.endsAt <= now) {
      this.#end(session, 'idle');
      session = undefined;
    }
    if (session === undefined) {
      this.#makeRoom();
      session = this.add(new Session(name, ttlMs, now));
    } else {
      session.usedAt = now;
      session.ttlMs = ttlMs;
      if (session.endsAt < session.key) this.#ends.update(session, session.endsAt);
    }
    this.#alarm.armBy(session.key);
    return session;
  }

  add(session: Session): Session {
    this.#byName.set(session.name, session);
    this.#count(session.member, 1);
    this.#ends.add(session);
    this.#alarm.armBy(session.key);
    return session;
  }

  /** It has this member from now on: told as bound, or as moved from the one before. */
  bind(session: Session, member: string, reason: string, now: number): void {
    const from = session.member;
    this.#settle(session, member);
    session.settledAt = now;
    if (from === undefined) this.#bus.emit('session.bound', { session: session.name, member });
    else if (from !== member) {
      this.#bus.emit('session.moved', { session: session.name, from, to: member, reason });
    }
  }

  /** It has no member until its next pick. */
  unbind(session: Session): void {
    this.#settle(session, undefined);
  }

  /** @returns whether there was such a session. */
  forget(name: string): boolean {
    const session = this.#byName.get(name);
    if (session === undefined) return false;
    this.#end(session, 'forgotten');
    return true;
  }

  /** Stops the timer. Sessions stay as they are. */
  close(): void {
    this.#alarm.disarm();
  }

  #sweep(now: number): void {
    for (let first = this.#ends.first; first !== undefined && first.key <= now; first = this.#ends.first) {
      if (first.open > 0) this.#ends.update(first, now + first.ttlMs);
      else if (first.endsAt > now) this.#ends.update(first, first.endsAt);
      else this.#end(first, 'idle');
    }
    this.#alarm.armBy(this.#ends.firstKey);
  }

  /** With as many as there may be, the one that would end first goes. */
  #makeRoom(): void {
    if (this.#byName.size < this.#limit) return;
    for (let first = this.#ends.first; first !== undefined; first = this.#ends.first) {
      if (first.key >= first.endsAt) {
        this.#end(first, 'too-many');
        return;
      }
      this.#ends.update(first, first.endsAt);
    }
  }

  #settle(session: Session, member: string | undefined): void {
    this.#count(session.member, -1);
    this.#count(member, 1);
    session.member = member;
  }

  #count(member: string | undefined, more: 1 | -1): void {
    if (member === undefined) return;
    const count = (this.#held.get(member) ?? 0) + more;
    if (count === 0) this.#held.delete(member);
    else this.#held.set(member, count);
  }

  #end(session: Session, reason: string): void {
    this.#byName.delete(session.name);
    this.#count(session.member, -1);
    this.#ends.remove(session);
    this.#bus.emit('session.ended', { session: session.name, reason });
  }
}
