/**
 * The roster: who is in the pool, and what becomes of each member as time and evidence go on.
 *
 * It owns the members, their keys, their lanes and the one timer for whatever changes next: an end of life, a life
 * grown short, a rest that is over. Whoever lends members tells it what came of them; it decides by the rules of
 * `health`, moves the member and tells the bus.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import { type Random, randomBelow } from '../core/random.ts';
import { Alarm } from './alarm.ts';
import { Heap } from './heap.ts';
import { Lanes } from './lanes.ts';
import { type Leaving, type Mark, Member } from './member.ts';
import type { Offer } from './offer.ts';
import type { PoolOptions, PoolSettings } from './options.ts';
import { Places } from './places.ts';
import { keyOf, type Memory, Remembered } from './remembered.ts';
import { type Berth, ENDING, LASTING, NOWHERE, RESTING } from './seat.ts';
import { Source } from './source.ts';

/** Eight digits to the base 36: too many to guess, few enough to read out. */
const ID_BASE = 36;
const ID_LENGTH = 8;
/** An assumed end of life is moved when that gains at least this part of it: not at every success. */
const RENEWAL_STEP = 1 / 64;

/** What a member of a snapshot brings along; moments are monotonic. */
export interface Past extends Pick<Memory, 'bans' | 'health'> {
  readonly id: string;
  readonly joinedAt: number;
  readonly assumed: boolean;
  readonly uses: number;
  readonly latencyMs: number | undefined;
  readonly rest: { readonly untilAt: number; readonly fault: FaultCode } | undefined;
}

export class Roster {
  readonly sources = new Map<string, Source>();
  readonly places = new Places();
  readonly remembered = new Remembered();
  readonly lanes: Lanes;
  settings: PoolSettings;
  /** Members may be picked that could not before: whoever waits should look again, and clear it. */
  seatsFreed = false;

  readonly #clock: Clock;
  readonly #random: Random;
  readonly #bus: EventBus;
  readonly #byId = new Map<string, Member>();
  /** Members that are not draining. */
  readonly #byKey = new Map<string, Member>();
  readonly #changes = new Heap<Mark>();
  readonly #alarm: Alarm;
  #frozen = false;

  /** @param onTurn - called when the timer has moved members on. */
  constructor(options: PoolOptions, onTurn: () => void) {
    this.#clock = options.clock;
    this.#random = options.random;
    this.#bus = options.bus;
    this.lanes = new Lanes(options.random);
    this.settings = options;
    this.#alarm = new Alarm(options.clock, () => {
      this.turn(this.#clock.monotonic());
      this.#alarm.setBy(this.#changes.firstKey);
      onTurn();
    });
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

  /** Takes over new settings: sources that are not in them any more lose their members, the others keep them. */
  configure(settings: PoolSettings, now: number): void {
    this.settings = settings;
    const names = new Set(settings.sources.map(({ name }) => name));
    for (const source of [...this.sources.values()]) {
      if (names.has(source.name)) continue;
      this.drainSource(source, now);
      this.sources.delete(source.name);
    }
    for (const options of settings.sources) {
      const known = this.sources.get(options.name);
      if (known === undefined) this.sources.set(options.name, new Source(options));
      else known.options = options;
    }
    this.lanes.rebuild([...this.sources.values()], settings.rotation.strategy, this.#byId.values());
    for (const member of [...this.#byKey.values()]) {
      this.#setEnd(member, member.endsAt);
      this.settle(member, now);
    }
    this.seatsFreed = true;
  }

  /** Moves on every member whose time has come. Cheap when there is none, so it is asked before every pick. */
  turn(now: number): void {
    while (this.#changes.firstKey <= now) {
      const member = this.#changes.first?.member;
      if (member === undefined) return;
      if (member.end.key <= now) this.leave(member, { reason: 'expired' }, now);
      else this.settle(member, now);
    }
  }

  /** A draw brought it: new, known (the later end of life holds), or not wanted. */
  offer(source: Source, offer: Offer, now: number): 'joined' | 'renewed' | 'rejected' {
    const endsAt = offer.endsAt ?? now + source.options.unknownLifetimeMs;
    if (endsAt - this.settings.safetyMarginMs <= now) return 'rejected';
    const key = keyOf(source.name, offer);
    const known = this.#byKey.get(key);
    if (known !== undefined) {
      this.#renew(known, offer, endsAt, now);
      return 'renewed';
    }
    const memory = this.remembered.recall(key, now);
    if (memory?.barred === true) return 'rejected';
    const member = this.#make(source, offer, { endsAt, id: this.#freshId(), joinedAt: now });
    if (memory !== undefined) inherit(member, memory, now);
    this.#enter(member, now);
    return 'joined';
  }

  /** A member comes back as a snapshot has it, unless it is here already or would be expired. */
  readmit(source: Source, offer: Offer, past: Past, now: number): void {
    const { endsAt = now } = offer;
    if (endsAt - this.settings.safetyMarginMs <= now) return;
    if (this.#byKey.has(keyOf(source.name, offer)) || this.#byId.has(past.id)) return;
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
    this.settle(member, now);
  }

  /** An attempt through it was accepted. */
  accepted(member: Member, latencyMs: number | undefined, now: number): void {
    const { name } = member.phase;
    member.proved(now, latencyMs);
    if (latencyMs !== undefined) member.source.learnLatency(latencyMs);
    if (name === 'draining') return;
    if (name === 'joining' || name === 'quarantined') this.#admit(member, now);
    if (member.assumed) this.#prolong(member, now);
    const { maxUsesPerMember } = this.settings.rotation;
    if (maxUsesPerMember > 0 && member.uses >= maxUsesPerMember)
      this.leave(member, { reason: 'used-up' }, now);
  }

  /**
   * A fault was laid at it by a lease taken at `takenAt`. Leases that were open when it went into quarantine tell
   * nothing new: what they met with is what it rests for.
   */
  faulted(member: Member, half: boolean, fault: FaultCode, takenAt: number, now: number): void {
    const { phase } = member;
    if (this.#frozen || phase.name === 'draining') return;
    if (phase.name === 'quarantined' && takenAt < phase.sinceAt) return;
    const halfLifeMs = member.endsAt - member.joinedAt;
    const verdict = member.health.fault(half, now, halfLifeMs, this.settings.health);
    // Unproven members are many and mostly dead: one fault is enough.
    if (verdict === 'evict' || (phase.name === 'joining' && !half)) {
      this.leave(member, { reason: 'failed', fault }, now);
    } else if (verdict === 'rest' && phase.name !== 'joining') {
      this.#rest(member, fault, now);
    }
  }

  /** A lease of it was given to a client: `open` and `pending` have been counted up. */
  lent(member: Member, now: number): void {
    for (const seat of member.seats) seat.rotation?.picked(seat);
    this.settle(member, now);
  }

  /** A lease of it ended: `open` and `pending` have been counted down. */
  released(member: Member, now: number): void {
    const { name } = member.phase;
    if (name === 'gone') return;
    if (name === 'draining') {
      if (member.open > 0) return;
      member.finish();
      this.#remove(member);
      return;
    }
    for (const seat of member.seats) seat.rotation?.changed(seat);
    if (member.source.tunnelLimit !== Number.POSITIVE_INFINITY) this.seatsFreed = true;
    this.settle(member, now);
  }

  /** It takes nothing new any more; when no lease is open it is gone. */
  leave(member: Member, why: Leaving, now: number): void {
    const { source } = member;
    const key = keyOf(source.name, member);
    this.#byKey.delete(key);
    this.#changes.remove(member.next);
    source.ends.remove(member.end);
    source.quarantined.delete(member);
    this.lanes.leave(member);
    this.#remember(key, member, why, now);
    member.leave(why);
    if (member.phase.name === 'gone') this.#remove(member);
    else this.#bus.emit('member.drained', { ...told(member), openTunnels: member.open });
  }

  drainSource(source: Source, now: number): void {
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
        this.settle(member, now);
      }
    }
  }

  /** Members that need a probe now, the most urgent first; see `takeForProbe`. */
  *toProbe(now: number, staleMs: number): Generator<Member> {
    for (const { counts, members } of this.sources.values()) {
      if (counts.joining === 0) continue;
      for (const member of members)
        if (member.phase.name === 'joining' && member.trial === undefined) yield member;
    }
    for (const { quarantined } of this.sources.values()) {
      for (const member of quarantined) {
        const { phase } = member;
        if (phase.name === 'quarantined' && phase.untilAt <= now && member.trial === undefined) yield member;
      }
    }
    if (staleMs === Number.POSITIVE_INFINITY) return;
    for (const member of this.#byKey.values()) {
      if (member.phase.name === 'ready' && (member.provenAt ?? member.joinedAt) <= now - staleMs)
        yield member;
    }
  }

  /** Puts the member where it now belongs: its berth, and the moment of its next change. */
  settle(member: Member, now: number): void {
    const { name } = member.phase;
    if (name === 'draining' || name === 'gone') return; // out of the lanes, and nothing left to wait for
    const berth = this.#berthOf(member, now);
    if (berth !== member.berth) {
      this.lanes.move(member, berth);
      if (berth !== NOWHERE) this.seatsFreed = true;
    }
    const changesAt = this.#nextChangeAt(member, now);
    if (changesAt === member.next.key) return;
    this.#changes.update(member.next, changesAt);
    this.#alarm.setBy(changesAt);
  }

  /** Stops the timer. Members stay as they are. */
  close(): void {
    this.#alarm.close();
  }

  #berthOf(member: Member, now: number): Berth {
    const { phase, source } = member;
    if (phase.name !== 'ready' && phase.name !== 'quarantined') return NOWHERE;
    if (source.blocked !== undefined || this.#isFull(member)) return NOWHERE;
    if (phase.name === 'quarantined') {
      if (member.trial !== undefined) return NOWHERE; // never a crowd
      if (phase.untilAt > now) return RESTING;
    }
    return member.endsAt - this.settings.minRemainingMs > now ? LASTING : ENDING;
  }

  #isFull(member: Member): boolean {
    const { maxTunnelsPerMember, maxUsesPerMember } = this.settings.rotation;
    return (
      (maxTunnelsPerMember > 0 && member.open >= maxTunnelsPerMember) ||
      (maxUsesPerMember > 0 && member.uses + member.pending >= maxUsesPerMember)
    );
  }

  #nextChangeAt(member: Member, now: number): number {
    const { phase } = member;
    if (phase.name === 'quarantined' && phase.untilAt > now) return Math.min(phase.untilAt, member.end.key);
    const endingAt = member.endsAt - this.settings.minRemainingMs;
    return endingAt > now ? Math.min(endingAt, member.end.key) : member.end.key;
  }

  #make(source: Source, offer: Offer, life: { endsAt: number; id: string; joinedAt: number }): Member {
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
    this.lanes.enter(member);
    this.#setEnd(member, member.endsAt);
    this.settle(member, now);
    this.#tellJoined(member, false, now);
  }

  #renew(member: Member, offer: Offer, endsAt: number, now: number): void {
    member.exitIp = offer.exitIp ?? member.exitIp;
    member.facts = offer.facts ?? member.facts;
    if (endsAt > member.endsAt) {
      member.assumed = offer.endsAt === undefined;
      this.#setEnd(member, endsAt);
      this.settle(member, now);
    }
    this.#tellJoined(member, true, now);
  }

  /** A success renews a life of which nobody knows the length. */
  #prolong(member: Member, now: number): void {
    const { unknownLifetimeMs } = member.source.options;
    const endsAt = now + unknownLifetimeMs;
    if (endsAt - member.endsAt < unknownLifetimeMs * RENEWAL_STEP) return;
    this.#setEnd(member, endsAt);
    this.settle(member, now);
  }

  #setEnd(member: Member, endsAt: number): void {
    member.endsAt = endsAt;
    member.source.ends.update(member.end, endsAt - this.settings.safetyMarginMs);
    for (const seat of member.seats) seat.rotation?.changed(seat);
  }

  #admit(member: Member, now: number): void {
    const restored = member.source.quarantined.delete(member);
    member.admit();
    this.settle(member, now);
    if (restored) this.#bus.emit('member.restored', told(member));
  }

  #rest(member: Member, fault: FaultCode, now: number): void {
    const forMs = Math.min(member.health.nextRestMs(this.settings.health), member.endsAt - now);
    member.quarantine(now, now + forMs, fault);
    member.source.quarantined.add(member);
    this.settle(member, now);
    this.#bus.emit('member.quarantined', { ...told(member), forMs, fault, faults: member.health.score });
  }

  #remember(key: string, member: Member, { reason }: Leaving, now: number): void {
    const barred = reason !== 'expired' && reason !== 'removed';
    const bans = [...(member.bans ?? [])];
    if (!barred && bans.length === 0 && member.health.score === 0) return;
    const untilAt = barred
      ? Math.max(member.endsAt, now + this.settings.health.quarantineMs)
      : now + (member.endsAt - member.joinedAt);
    this.remembered.keep(key, { untilAt, barred, bans, health: member.health.record() }, now);
  }

  #remove(member: Member): void {
    this.#byId.delete(member.id);
    member.source.members.delete(member);
    const why: Leaving = member.phase.name === 'gone' ? member.phase.why : { reason: 'expired' };
    this.#bus.emit('member.left', { ...told(member), ...why, uses: member.uses });
  }

  #tellJoined(member: Member, renewed: boolean, now: number): void {
    const remainingMs = member.assumed ? undefined : member.endsAt - now;
    this.#bus.emit('member.joined', { ...told(member), remainingMs, renewed });
  }

  #freshId(): string {
    const below = ID_BASE ** ID_LENGTH;
    let number = randomBelow(this.#random, below);
    for (;;) {
      const id = number.toString(ID_BASE).padStart(ID_LENGTH, '0');
      if (!this.#byId.has(id)) return id;
      number = (number + 1) % below;
    }
  }
}

function inherit(member: Member, past: Pick<Memory, 'bans' | 'health'>, now: number): void {
  for (const host of past.bans) member.ban(host);
  member.health.inherit(past.health, now);
}

function told(member: Member) {
  return { source: member.source.name, member: member.id, protocol: member.protocol };
}
