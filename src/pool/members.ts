/**
 * Removes the pool's members, and changes their phases as evidence arrives; member-intake.ts adds members. `Members`
 * owns the sources, the members, the memory of departed members and the candidate index. It emits an event for each
 * change of a member.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { Random } from '../core/random.ts';
import { CandidateIndex } from './candidate-index.ts';
import type { Candidates } from './candidates.ts';
import { DepartedMembers, departedMember, memberKey } from './departed-members.ts';
import type { DrawnMember } from './drawn-member.ts';
import type { MemberFilter } from './filter.ts';
import { Locations } from './locations.ts';
import { type Member, PoolSource } from './member.ts';
import type { Departure } from './member-phase.ts';
import type { PoolSettings, ProcessPart } from './options.ts';
import type { PoolObserver } from './pool-observer.ts';
import type { MemberQuarantine } from './shared-member.ts';
import { TimeSlots } from './time-slots.ts';

/**
 * A success renews an assumed end of life only if it extends the life by at least this share of the lifetime. So a
 * busy member needs few renewals.
 */
const MIN_RENEWAL_SHARE = 1 / 64;
interface MembersOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly settings: PoolSettings;
  /** The observers that get each change of a member or session. Empty if no other replica shares the pool. */
  readonly observers: readonly PoolObserver[];
  /** Called after the passage of time has changed members, for example after a quarantine has ended. */
  readonly onChange: () => void;
}

export class Members {
  readonly sources = new Map<string, PoolSource>();
  readonly locations = new Locations();
  readonly departed = new DepartedMembers();
  readonly index: CandidateIndex;
  settings: PoolSettings;
  readonly observers: readonly PoolObserver[];
  /** Decides when this process may use a member. Undefined unless several processes share a limit on uses. */
  slots: TimeSlots | undefined;

  readonly #bus: EventBus;
  readonly #byId = new Map<string, Member>();
  /** The members that are not draining, by their key (see `memberKey`). */
  readonly #byKey = new Map<string, Member>();

  constructor({ clock, random, bus, settings, observers, onChange }: MembersOptions) {
    this.observers = observers;
    this.#bus = bus;
    this.settings = settings;
    this.index = new CandidateIndex({ clock, random, settings }, () => {
      this.update(clock.monotonic());
      onChange();
    });
  }

  all(): IterableIterator<Member> {
    return this.#byId.values();
  }

  find(id: string | undefined): Member | undefined {
    return id === undefined ? undefined : this.#byId.get(id);
  }

  /**
   * Returns the member with this key, unless it drains.
   * @param key - see `memberKey`.
   */
  findByKey(key: string): Member | undefined {
    return this.#byKey.get(key);
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
    this.setPart(this.index.part);
    this.index.rebuild(settings, [...this.sources.values()], this.#byKey);
    for (const member of this.#byKey.values()) {
      this.index.setEnd(member, member.endsAt);
      this.index.update(member, now);
    }
    this.update(now);
    this.index.membersFreed = true;
  }

  /**
   * Applies the changes that are due at `now`. Called before every pick, because timers may be late. The call is cheap if nothing
   * is due.
   */
  update(now: number): void {
    for (let due = this.index.due(now); due !== undefined; due = this.index.due(now)) {
      if (due.usableUntil.key <= now) this.remove(due, { reason: 'expired' }, now);
      else this.index.update(due, now);
    }
  }

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

  recordAnswer(member: Member, client: string, now: number): void {
    member.health.answered(now);
    member.source.evidence.recordAnswer(client, now);
  }

  /** Applies the end of a lease. Call it after the counters of open leases have been updated. */
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
    const minBarMs = this.settings.health.quarantineMs;
    const departed = departedMember(member, departure, { now, minBarMs });
    if (departed !== undefined) this.departed.add(key, departed, now);
    member.leave(departure);
    for (const observer of this.observers) observer.memberLeft(member, departure);
    if (member.phase.name === 'left') this.#delete(member, departure);
    else this.#bus.emit('member.drained', { ...eventOf(member), openTunnels: member.openLeases });
  }

  /**
   * Sets the share that this process has of the limits of several processes. The caller must then call `index.update`
   * for each member.
   */
  setPart(part: ProcessPart): void {
    const { rotation } = this.settings;
    const needsSlots = rotation.maxUsesPerMember > 0 || rotation.perHostSpacingMs > 0;
    const { count, clockAheadMs } = part;
    this.index.part = part;
    const hasSlots = count > 1 && needsSlots && clockAheadMs !== undefined;
    this.slots = hasSlots ? new TimeSlots(part, clockAheadMs, rotation) : undefined;
  }

  /**
   * Sets whether clients may use the members of the source, and how many open leases all these members may have
   * together.
   */
  restrict(
    source: PoolSource,
    { blockedReason, leaseLimit }: Pick<PoolSource, 'blockedReason' | 'leaseLimit'>,
    now: number,
  ): void {
    if (leaseLimit > source.leaseLimit) this.index.membersFreed = true;
    source.leaseLimit = leaseLimit;
    source.blockedReason = blockedReason;
    for (const observer of this.observers) observer.sourceRestricted(source);
    for (const member of source.members) this.index.update(member, now);
  }

  ban(member: Member, host: string): void {
    if (member.bans?.has(host) === true) return;
    member.ban(host);
    for (const observer of this.observers) observer.memberBanned(member, host, false);
    this.#bus.emit('member.banned', { ...eventOf(member), host });
  }

  unban(member: Member, host: string): void {
    if (member.bans?.delete(host) !== true) return;
    for (const observer of this.observers) observer.memberBanned(member, host, true);
    this.index.membersFreed = true;
  }

  join(member: Member, now: number): void {
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

  /** Updates a member that a draw brought again. `endsAt` is the end of life that this draw gives the member. */
  renew(
    member: Member,
    { drawn, endsAt }: { readonly drawn: DrawnMember; readonly endsAt: number },
    now: number,
  ): void {
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
    for (const observer of this.observers) observer.memberReady(member);
    if (wasQuarantined) this.#bus.emit('member.restored', eventOf(member));
  }

  quarantineUntil(
    member: Member,
    { untilAt, fault, replaced = true }: Pick<MemberQuarantine, 'untilAt' | 'fault' | 'replaced'>,
    now: number,
  ): void {
    const forMs = untilAt - now;
    member.quarantine({ sinceAt: now, untilAt, fault, replaced });
    member.source.quarantined.add(member);
    this.index.update(member, now);
    for (const observer of this.observers) observer.memberQuarantined(member);
    this.#bus.emit('member.quarantined', { ...eventOf(member), forMs, fault, faults: member.health.score });
  }

  #delete(member: Member, departure: Departure): void {
    this.#byId.delete(member.id);
    member.source.members.delete(member);
    this.#bus.emit('member.left', { ...eventOf(member), ...departure, uses: member.uses });
  }

  #emitJoined(member: Member, renewed: boolean, now: number): void {
    for (const observer of this.observers) observer.memberJoined(member);
    const remainingMs = member.endIsAssumed ? undefined : member.endsAt - now;
    this.#bus.emit('member.joined', { ...eventOf(member), remainingMs, renewed });
  }
}

function eventOf(member: Member) {
  return { source: member.source.name, member: member.id, protocol: member.protocol };
}
