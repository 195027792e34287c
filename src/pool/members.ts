/**
 * The roster: who is in the pool, who joins and who leaves, and what becomes of a member by evidence.
 *
 * It owns the members, their keys and their seating. Whoever lends members tells it what came of them; it decides
 * by the rules of `health`, moves the member and tells the bus.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import { Seating } from './candidate-index.ts';
import type { Candidates, MemberFilter } from './candidates.ts';
import { type DepartedMember, DepartedMembers, keyOf, memoryOf } from './departed-members.ts';
import type { DrawnMember } from './drawn-member.ts';
import { isAny } from './filter.ts';
import { freshId } from './ids.ts';
import { Locations } from './locations.ts';
import { type Leaving, Member } from './member.ts';
import type { PoolSettings } from './options.ts';
import { PoolSource } from './source.ts';

/** An assumed end of life is moved when that gains at least this part of it: not at every success. */
const RENEWAL_STEP = 1 / 64;

/** What a member of a snapshot brings along; moments are monotonic. */
export interface Past extends Pick<DepartedMember, 'bans' | 'health'> {
  readonly id: string;
  readonly joinedAt: number;
  readonly assumed: boolean;
  readonly uses: number;
  readonly latencyMs: number | undefined;
  readonly rest: { readonly untilAt: number; readonly fault: FaultCode } | undefined;
}

/** What the roster is handed. */
export interface RosterParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly settings: PoolSettings;
}

/** All members of a pool. */
export class Roster {
  readonly sources = new Map<string, PoolSource>();
  readonly places = new Locations();
  readonly remembered = new DepartedMembers();
  readonly seating: Seating;

  readonly #random: Random;
  readonly #bus: EventBus;
  readonly #byId = new Map<string, Member>();
  /** Members that are not draining. */
  readonly #byKey = new Map<string, Member>();
  #frozen = false;

  /** @param onTurn - called when the timer has moved members on. */
  constructor({ clock, random, bus, settings }: RosterParts, onTurn: () => void) {
    this.#random = random;
    this.#bus = bus;
    this.seating = new Seating({ clock, random, settings }, () => {
      this.turn(clock.monotonic());
      onTurn();
    });
  }

  /** What the pool was told last. */
  get settings(): PoolSettings {
    return this.seating.settings;
  }

  get size(): number {
    return this.#byId.size;
  }

  members(): IterableIterator<Member> {
    return this.#byId.values();
  }

  find(id: string): Member | undefined {
    return this.#byId.get(id);
  }

  /** Where to look for a kind of wish. */
  ladder(kind: MemberFilter, now: number): Candidates {
    const { lanes } = this.seating;
    return isAny(kind) ? lanes.plain : lanes.ladder(kind, this.#byKey.values(), now);
  }

  /** Takes over new settings: sources that are not in them any more lose their members, the others keep them. */
  configure(settings: PoolSettings, now: number): void {
    this.seating.settings = settings;
    const names = new Set(settings.sources.map(({ name }) => name));
    for (const source of [...this.sources.values()]) {
      if (names.has(source.name)) continue;
      this.drainSource(source, now);
      this.sources.delete(source.name);
    }
    for (const options of settings.sources) {
      const known = this.sources.get(options.name);
      if (known === undefined) this.sources.set(options.name, new PoolSource(options));
      else known.options = options;
    }
    this.seating.lanes.rebuild([...this.sources.values()], settings.rotation.strategy, this.#byKey.values());
    for (const member of this.#byKey.values()) {
      this.seating.setEnd(member, member.endsAt);
      this.seating.settle(member, now);
    }
    this.turn(now);
    this.seating.freed = true;
  }

  /** Moves on every member whose time has come. Cheap when there is none, so it is asked before every pick. */
  turn(now: number): void {
    for (let due = this.seating.due(now); due !== undefined; due = this.seating.due(now)) {
      if (due.end.key <= now) this.leave(due, { reason: 'expired' }, now);
      else this.seating.settle(due, now);
    }
  }

  /** A draw brought it: new, known (the later end of life holds), or not wanted. */
  offer(source: PoolSource, offer: DrawnMember, now: number): 'joined' | 'renewed' | 'rejected' {
    const endsAt = offer.endsAt ?? now + source.options.unknownLifetimeMs;
    if (endsAt - this.settings.safetyMarginMs <= now) return 'rejected';
    source.learn(offer, endsAt - now);
    const key = keyOf(source.name, offer);
    const known = this.#byKey.get(key);
    if (known !== undefined) {
      this.#renew(known, offer, endsAt, now);
      return 'renewed';
    }
    const memory = this.remembered.recall(key, now);
    if (memory?.barred === true) return 'rejected';
    const member = this.#make(source, offer, {
      endsAt,
      id: freshId(this.#random, (id) => this.#byId.has(id)),
      joinedAt: now,
    });
    if (memory !== undefined) inherit(member, memory, now);
    this.#enter(member, now);
    return 'joined';
  }

  /** A member comes back as a snapshot has it, unless it is here already or would be expired. */
  readmit(source: PoolSource, offer: DrawnMember, past: Past, now: number): void {
    const { endsAt = now } = offer;
    if (endsAt - this.settings.safetyMarginMs <= now) return;
    if (this.#byKey.has(keyOf(source.name, offer)) || this.#byId.has(past.id)) return;
    source.learn(offer, endsAt - now);
    const member = this.#make(source, offer, { endsAt, id: past.id, joinedAt: past.joinedAt });
    member.assumed = past.assumed;
    member.uses = past.uses;
    member.latencyMs = past.latencyMs;
    inherit(member, past, now);
    this.#enter(member, now);
    const { rest } = past;
    if (rest === undefined || member.phase.name !== 'ready') return;
    member.quarantine(now, rest.untilAt, rest.fault);
    source.quarantined.add(member);
    this.seating.settle(member, now);
  }

  /** An attempt through it was accepted. */
  accepted(member: Member, latencyMs: number | undefined, now: number): void {
    const { name } = member.phase;
    member.proved(now, latencyMs);
    if (latencyMs !== undefined) member.source.learnLatency(latencyMs);
    if (name === 'draining') return;
    if (name !== 'ready') this.#admit(member, now);
    if (member.assumed) this.#prolong(member, now);
    const { maxUsesPerMember } = this.settings.rotation;
    if (maxUsesPerMember > 0 && member.uses >= maxUsesPerMember)
      this.leave(member, { reason: 'used-up' }, now);
  }

  /**
   * A fault was laid at it by a lease taken at `takenAt`. Leases that were open when it went into quarantine tell
   * nothing new: what they met with is what it rests for.
   */
  faulted(member: Member, evidence: { half: boolean; fault: FaultCode; takenAt: number }, now: number): void {
    const { phase } = member;
    const { half, fault, takenAt } = evidence;
    if (this.#frozen || phase.name === 'draining') return;
    if (phase.name === 'quarantined' && takenAt < phase.sinceAt) return;
    const halfLifeMs = member.endsAt - member.joinedAt;
    const verdict = member.health.fault(half, now, halfLifeMs, this.settings.health);
    // Unproven members are many and mostly dead: one fault is enough.
    if (verdict === 'evict' || (phase.name === 'joining' && !half)) {
      this.leave(member, { reason: 'failed', fault }, now);
    } else if (verdict === 'rest' && phase.name !== 'joining') this.#rest(member, fault, now);
  }

  /** A lease of it has ended: its counters are down already. */
  released(member: Member, now: number): void {
    if (member.phase.name !== 'draining') this.seating.eased(member, now);
    else if (member.open === 0) this.#remove(member, member.finish());
  }

  /** It takes nothing new any more; when no lease is open it is gone. */
  leave(member: Member, why: Leaving, now: number): void {
    const { source } = member;
    const key = keyOf(source.name, member);
    this.#byKey.delete(key);
    source.ends.remove(member.end);
    source.quarantined.delete(member);
    this.seating.leave(member);
    const memory = memoryOf(member, why, now, this.settings.health.quarantineMs);
    if (memory !== undefined) this.remembered.keep(key, memory, now);
    member.leave(why);
    if (member.phase.name === 'gone') this.#remove(member, why);
    else this.#bus.emit('member.drained', { ...told(member), openTunnels: member.open });
  }

  drainSource(source: PoolSource, now: number): void {
    for (const member of [...source.members]) {
      if (member.phase.name !== 'draining') this.leave(member, { reason: 'removed' }, now);
    }
  }

  /** While frozen, faults cost nobody anything. Afterwards those in quarantine may be tried at once. */
  freeze(on: boolean, now: number): void {
    this.#frozen = on;
    if (on) return;
    for (const source of this.sources.values()) {
      for (const member of source.quarantined) {
        member.endRest(now);
        this.seating.settle(member, now);
      }
    }
  }

  /** It is not used for that host any more. */
  ban(member: Member, host: string): void {
    if (member.bans?.has(host) === true) return;
    member.ban(host);
    this.#bus.emit('member.banned', { ...told(member), host });
  }

  unban(member: Member, host: string): void {
    if (member.bans?.delete(host) === true) this.seating.freed = true;
  }

  #make(
    source: PoolSource,
    offer: DrawnMember,
    life: { endsAt: number; id: string; joinedAt: number },
  ): Member {
    const { protocol, host, port } = offer;
    const place = this.places.of(offer.location);
    const identity = { id: life.id, source, protocol, host, port, place };
    const member = new Member(identity, offer.unproven, life.joinedAt);
    member.endsAt = life.endsAt;
    member.assumed = offer.endsAt === undefined;
    member.exitIp = offer.exitIp;
    member.facts = offer.facts;
    return member;
  }

  #enter(member: Member, now: number): void {
    const { source } = member;
    this.#byId.set(member.id, member);
    this.#byKey.set(keyOf(source.name, member), member);
    source.members.add(member);
    source.counts[member.phase.name] += 1;
    this.seating.setEnd(member, member.endsAt);
    this.seating.enter(member, now);
    this.#tellJoined(member, false, now);
  }

  #renew(member: Member, offer: DrawnMember, endsAt: number, now: number): void {
    member.exitIp = offer.exitIp ?? member.exitIp;
    member.facts = offer.facts ?? member.facts;
    if (endsAt > member.endsAt) {
      member.assumed = offer.endsAt === undefined;
      this.seating.setEnd(member, endsAt);
      this.seating.settle(member, now);
    }
    this.#tellJoined(member, true, now);
  }

  /** A success renews a life of which nobody knows the length. */
  #prolong(member: Member, now: number): void {
    const { unknownLifetimeMs } = member.source.options;
    const endsAt = now + unknownLifetimeMs;
    if (endsAt - member.endsAt < unknownLifetimeMs * RENEWAL_STEP) return;
    this.seating.setEnd(member, endsAt);
    this.seating.settle(member, now);
  }

  #admit(member: Member, now: number): void {
    const restored = member.source.quarantined.delete(member);
    member.admit();
    this.seating.settle(member, now);
    if (restored) this.#bus.emit('member.restored', told(member));
  }

  #rest(member: Member, fault: FaultCode, now: number): void {
    const forMs = Math.min(member.health.nextRestMs(this.settings.health), member.endsAt - now);
    member.quarantine(now, now + forMs, fault);
    member.source.quarantined.add(member);
    this.seating.settle(member, now);
    this.#bus.emit('member.quarantined', { ...told(member), forMs, fault, faults: member.health.score });
  }

  #remove(member: Member, why: Leaving): void {
    this.#byId.delete(member.id);
    member.source.members.delete(member);
    this.#bus.emit('member.left', { ...told(member), ...why, uses: member.uses });
  }

  #tellJoined(member: Member, renewed: boolean, now: number): void {
    const remainingMs = member.assumed ? undefined : member.endsAt - now;
    this.#bus.emit('member.joined', { ...told(member), remainingMs, renewed });
  }
}

function inherit(member: Member, past: Pick<DepartedMember, 'bans' | 'health'>, now: number): void {
  for (const host of past.bans) member.ban(host);
  member.health.inherit(past.health, now);
}

function told(member: Member) {
  return { source: member.source.name, member: member.id, protocol: member.protocol };
}
