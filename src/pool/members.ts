/**
 * The members of the pool: adds and removes them, and changes their phases as evidence arrives. It owns the sources, the members,
 * the memory of departed members and the candidate index. It emits an event for each change of a member.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import { type Random, randomBelow } from '../core/random.ts';
import { CandidateIndex } from './candidate-index.ts';
import type { Candidates } from './candidates.ts';
import { DepartedMembers, departedMember, type MemberHistory, memberKey } from './departed-members.ts';
import type { DrawnMember } from './drawn-member.ts';
import type { MemberFilter } from './filter.ts';
import { Locations } from './locations.ts';
import { type Departure, Member, PoolSource } from './member.ts';
import type { PoolSettings, PoolShare } from './options.ts';
import type { PoolObserver } from './pool-observer.ts';
import type { MemberQuarantine, SharedMember } from './shared-member.ts';
import { Turns } from './turns.ts';

/** A success renews an assumed end of life only if it adds at least this share of the life. This saves work on most successes. */
const MIN_RENEWAL_SHARE = 1 / 64;
/** Length of member ids: short enough to read aloud, long enough that ids cannot be guessed. */
const ID_RADIX = 36;
const ID_LENGTH = 8;
const ID_COUNT = ID_RADIX ** ID_LENGTH;

/** A member in a snapshot. Moments are monotonic. */
export interface RestoredMember extends DrawnMember, MemberHistory {
  readonly id: string;
  readonly joinedAt: number;
  readonly endsAt: number;
  readonly endIsAssumed: boolean;
  readonly uses: number;
  readonly latencyMs: number | undefined;
  readonly quarantine:
    | { readonly untilAt: number; readonly fault: FaultCode; readonly replaced: boolean }
    | undefined;
}

export interface MembersOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly settings: PoolSettings;
  /** Called after members have changed because time has passed. */
  readonly onChange: () => void;
}

/** All members of a pool. */
export class Members {
  readonly sources = new Map<string, PoolSource>();
  readonly locations = new Locations();
  readonly departed = new DepartedMembers();
  readonly index: CandidateIndex;
  /** Undefined until `configure` is called. */
  settings: PoolSettings;
  /** Set while the pool has other replicas. */
  observer: PoolObserver | undefined;
  /** Set where several processes share limits on uses. */
  turns: Turns | undefined;

  readonly #random: Random;
  readonly #bus: EventBus;
  readonly #byId = new Map<string, Member>();
  /** Members that are not draining. */
  readonly #byKey = new Map<string, Member>();

  constructor({ clock, random, bus, settings, onChange }: MembersOptions) {
    this.#random = random;
    this.#bus = bus;
    this.settings = settings;
    this.index = new CandidateIndex({ clock, random, settings }, () => {
      this.update(clock.monotonic());
      onChange();
    });
  }

  get size(): number {
    return this.#byId.size;
  }

  all(): IterableIterator<Member> {
    return this.#byId.values();
  }

  find(id: string | undefined): Member | undefined {
    return id === undefined ? undefined : this.#byId.get(id);
  }

  candidates(filter: MemberFilter, now: number): Candidates {
    return this.index.find(filter, this.#byKey, now);
  }

  /** Applies new settings. Removes the members of sources that are no longer configured. */
  configure(settings: PoolSettings, now: number): void {
    this.settings = settings;
    const names = new Set(settings.sources.map(({ name }) => name));
    for (const source of [...this.sources.values()]) {
      if (names.has(source.name)) continue;
      for (const member of [...source.members]) this.remove(member, { reason: 'removed' }, now);
      this.sources.delete(source.name);
    }
    for (const options of settings.sources) {
      const known = this.sources.get(options.name);
      if (known === undefined) this.sources.set(options.name, new PoolSource(options));
      else known.options = options;
    }
    this.setShare(this.index.share);
    this.index.rebuild(settings, [...this.sources.values()], this.#byKey);
    for (const member of this.#byKey.values()) {
      this.index.setEnd(member, member.endsAt);
      this.index.update(member, now);
    }
    this.update(now);
    this.index.membersFreed = true;
  }

  /**
   * Applies the changes that are due at this time. Called before every pick, because timers may be late. Cheap when nothing is
   * due.
   */
  update(now: number): void {
    for (let due = this.index.due(now); due !== undefined; due = this.index.due(now)) {
      if (due.usableUntil.key <= now) this.remove(due, { reason: 'expired' }, now);
      else this.index.update(due, now);
    }
  }

  /** Adds or renews a member that a draw brought. */
  add(source: PoolSource, drawn: DrawnMember, now: number): 'joined' | 'renewed' | 'rejected' {
    const endsAt = drawn.endsAt ?? now + source.options.unknownLifetimeMs;
    if (endsAt - this.settings.safetyMarginMs <= now) return 'rejected';
    source.learn(drawn, endsAt - now);
    const key = memberKey(source.name, drawn);
    const known = this.#byKey.get(key);
    if (known !== undefined) {
      this.#renew(known, drawn, endsAt, now);
      return 'renewed';
    }
    const departed = this.departed.find(key, now);
    if (departed?.barred === true) return 'rejected';
    const member = this.#make(source, drawn, { id: this.#newId(), joinedAt: now, endsAt });
    if (departed !== undefined) inherit(member, departed, now);
    this.#join(member, now);
    return 'joined';
  }

  /** Adds a member from a snapshot, unless it has expired or is in the pool already. */
  restore(source: PoolSource, restored: RestoredMember, now: number): void {
    const { id, joinedAt, endsAt, quarantine } = restored;
    if (endsAt - this.settings.safetyMarginMs <= now) return;
    if (this.#byKey.has(memberKey(source.name, restored)) || this.#byId.has(id)) return;
    source.learn(restored, endsAt - now);
    const member = this.#make(source, restored, { id, joinedAt, endsAt });
    member.endIsAssumed = restored.endIsAssumed;
    member.uses = restored.uses;
    member.latencyMs = restored.latencyMs;
    inherit(member, restored, now);
    this.#join(member, now);
    if (quarantine === undefined || member.phase.name !== 'ready') return;
    member.quarantine({ ...quarantine, sinceAt: now });
    source.quarantined.add(member);
    this.index.update(member, now);
  }

  /**
   * Adds or renews a member of another replica.
   * @returns false if this replica has to reject it.
   */
  addShared(source: PoolSource, shared: SharedMember, now: number): boolean {
    const { id, joinedAt, endsAt, endIsAssumed, ...rest } = shared;
    const drawn = { ...rest, endsAt: endIsAssumed ? undefined : endsAt };
    if (endsAt - this.settings.safetyMarginMs <= now) return false;
    const key = memberKey(source.name, drawn);
    const known = this.#byKey.get(key) ?? this.#byId.get(id);
    if (known !== undefined) {
      if (endsAt > known.endsAt && known.phase.name !== 'draining') this.#renew(known, drawn, endsAt, now);
      return known.phase.name !== 'draining';
    }
    const departed = this.departed.find(key, now);
    if (departed?.barred === true) return false;
    source.learn(drawn, endsAt - now);
    const member = this.#make(source, drawn, { id, joinedAt, endsAt });
    if (departed !== undefined) inherit(member, departed, now);
    this.#join(member, now);
    return true;
  }

  /** The member has accepted an attempt. */
  recordSuccess(member: Member, latencyMs: number | undefined, now: number): void {
    const { name } = member.phase;
    member.recordSuccess(now, latencyMs);
    member.source.evidence.recordAccept(now);
    if (latencyMs !== undefined) member.source.learnLatency(latencyMs);
    if (name === 'draining') return;
    if (name !== 'ready') this.admit(member, now);
    if (member.endIsAssumed) this.#renewAssumedEnd(member, now);
    const { maxUsesPerMember } = this.settings.rotation;
    if (maxUsesPerMember > 0 && member.uses >= maxUsesPerMember)
      this.remove(member, { reason: 'used-up' }, now);
  }

  /** A target answered through the member. */
  recordAnswer(member: Member, client: string, now: number): void {
    member.health.answered(now);
    member.source.evidence.recordAnswer(client, now);
  }

  /** Applies the end of a lease. Call it after the counters are updated. */
  leaseEnded(member: Member, now: number): void {
    if (member.phase.name !== 'draining') this.index.leaseEnded(member, now);
    else if (member.openLeases === 0) this.#delete(member, member.finishDraining());
  }

  /** Drains the member, and removes it if it has no open lease. No-op for a draining member. */
  remove(member: Member, departure: Departure, now: number): void {
    if (member.phase.name === 'draining') return;
    const { source } = member;
    const key = memberKey(source.name, member);
    this.#byKey.delete(key);
    source.expiries.remove(member.usableUntil);
    source.quarantined.delete(member);
    source.suspected.delete(member);
    this.index.remove(member);
    const departed = departedMember(member, departure, now, this.settings.health.quarantineMs);
    if (departed !== undefined) this.departed.add(key, departed, now);
    member.leave(departure);
    this.observer?.memberLeft(member, departure);
    if (member.phase.name === 'left') this.#delete(member, departure);
    else this.#bus.emit('member.drained', { ...eventOf(member), openTunnels: member.openLeases });
  }

  /** The caller then updates the index for all members. */
  setShare(share: PoolShare): void {
    const { rotation } = this.settings;
    const needsTurns = rotation.maxUsesPerMember > 0 || rotation.perHostSpacingMs > 0;
    const { count, clockAheadMs } = share;
    this.index.share = share;
    const hasTurns = count > 1 && needsTurns && clockAheadMs !== undefined;
    this.turns = hasTurns ? new Turns(share, clockAheadMs, rotation) : undefined;
  }

  /** Sets whether clients may use the source, and how many leases its members may have. */
  restrict(
    source: PoolSource,
    { blockedReason, leaseLimit }: Pick<PoolSource, 'blockedReason' | 'leaseLimit'>,
    now: number,
  ): void {
    if (leaseLimit > source.leaseLimit) this.index.membersFreed = true;
    source.leaseLimit = leaseLimit;
    source.blockedReason = blockedReason;
    this.observer?.sourceRestricted(source);
    for (const member of source.members) this.index.update(member, now);
  }

  ban(member: Member, host: string): void {
    if (member.bans?.has(host) === true) return;
    member.ban(host);
    this.observer?.memberBanned(member, host, false);
    this.#bus.emit('member.banned', { ...eventOf(member), host });
  }

  unban(member: Member, host: string): void {
    if (member.bans?.delete(host) !== true) return;
    this.observer?.memberBanned(member, host, true);
    this.index.membersFreed = true;
  }

  #newId(): string {
    let number = randomBelow(this.#random, ID_COUNT);
    for (;;) {
      const id = number.toString(ID_RADIX).padStart(ID_LENGTH, '0');
      if (!this.#byId.has(id)) return id;
      number = (number + 1) % ID_COUNT;
    }
  }

  #make(
    source: PoolSource,
    { protocol, host, port, unproven, location, endsAt: knownEndsAt, exitIp, login, facts }: DrawnMember,
    { id, joinedAt, endsAt }: { id: string; joinedAt: number; endsAt: number },
  ): Member {
    const identity = { id, source, protocol, host, port, location: this.locations.of(location) };
    const member = new Member(identity, unproven, joinedAt);
    member.endsAt = endsAt;
    member.endIsAssumed = knownEndsAt === undefined;
    member.exitIp = exitIp;
    member.login = login;
    member.facts = facts;
    return member;
  }

  #join(member: Member, now: number): void {
    const { source } = member;
    this.#byId.set(member.id, member);
    this.#byKey.set(memberKey(source.name, member), member);
    source.members.add(member);
    source.evidence.memberJoined(source.options.size);
    source.counts[member.phase.name] += 1;
    this.index.setEnd(member, member.endsAt);
    this.index.add(member, now);
    this.#emitJoined(member, false, now);
  }

  #renew(member: Member, drawn: DrawnMember, endsAt: number, now: number): void {
    member.exitIp = drawn.exitIp ?? member.exitIp;
    member.login = drawn.login ?? member.login;
    member.facts = drawn.facts ?? member.facts;
    if (endsAt > member.endsAt) {
      member.endIsAssumed = drawn.endsAt === undefined;
      this.index.setEnd(member, endsAt);
      this.index.update(member, now);
    }
    this.#emitJoined(member, true, now);
  }

  #renewAssumedEnd(member: Member, now: number): void {
    const { unknownLifetimeMs } = member.source.options;
    const endsAt = now + unknownLifetimeMs;
    if (endsAt - member.endsAt < unknownLifetimeMs * MIN_RENEWAL_SHARE) return;
    this.index.setEnd(member, endsAt);
    this.index.update(member, now);
  }

  /** Sets an unproven or quarantined member to ready. */
  admit(member: Member, now: number): void {
    const wasQuarantined = member.source.quarantined.delete(member);
    member.source.suspected.delete(member);
    member.admit();
    this.index.update(member, now);
    this.observer?.memberReady(member);
    if (wasQuarantined) this.#bus.emit('member.restored', eventOf(member));
  }

  /** Quarantines a member that is ready or quarantined. */
  quarantineUntil(
    member: Member,
    { untilAt, fault, replaced = true }: Pick<MemberQuarantine, 'untilAt' | 'fault' | 'replaced'>,
    now: number,
  ): void {
    const forMs = untilAt - now;
    member.quarantine({ sinceAt: now, untilAt, fault, replaced });
    member.source.quarantined.add(member);
    this.index.update(member, now);
    this.observer?.memberQuarantined(member);
    this.#bus.emit('member.quarantined', { ...eventOf(member), forMs, fault, faults: member.health.score });
  }

  #delete(member: Member, departure: Departure): void {
    this.#byId.delete(member.id);
    member.source.members.delete(member);
    this.#bus.emit('member.left', { ...eventOf(member), ...departure, uses: member.uses });
  }

  #emitJoined(member: Member, renewed: boolean, now: number): void {
    this.observer?.memberJoined(member);
    const remainingMs = member.endIsAssumed ? undefined : member.endsAt - now;
    this.#bus.emit('member.joined', { ...eventOf(member), remainingMs, renewed });
  }
}

function inherit(member: Member, { bans, health }: MemberHistory, now: number): void {
  for (const host of bans) member.ban(host);
  member.health.inherit(health, now);
}

/** The fields that every event about a member contains. */
function eventOf(member: Member) {
  return { source: member.source.name, member: member.id, protocol: member.protocol };
}
