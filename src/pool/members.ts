/**
 * The pool's members: adds them (from draws, snapshots and other replicas), changes their phases as evidence arrives, and
 * removes them. Owns the sources, the members, the memory of departed members and the candidate index. docs/health.md explains
 * the consequences of faults.
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { MINUTE_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import { type Random, randomBelow, shuffled } from '../core/random.ts';
import { CandidateIndex } from './candidates.ts';
import type { AddedMembers, DrawnMember } from './drawn-member.ts';
import { Locations } from './locations.ts';
import {
  type Departure,
  type HealthSnapshot,
  Member,
  PoolSource,
  type Quarantine,
  replacesEnd,
  type SuspectFailure,
  WORKED_MS,
} from './member.ts';
import type { PoolSettings } from './options.ts';
import { type SiteBan, Sites } from './sites.ts';
import type { PoolSnapshot } from './stored-state.ts';

/** A success renews an assumed end of life only if it adds at least this share of the lifetime: a busy member needs few renewals. */
const MIN_RENEWAL_SHARE = 1 / 64;

const MAX_DEPARTED = 50_000;
/** How long after a member left clients may still report bans of its exit. */
const REPORTED_LATE_MS = 10 * MINUTE_MS;

/** Length of member ids: short enough to read aloud, long enough that ids cannot be guessed. */
const ID_RADIX = 36;
const ID_LENGTH = 8;
const ID_COUNT = ID_RADIX ** ID_LENGTH;

interface DepartedMember {
  readonly health: HealthSnapshot;
  readonly untilAt: number;
  readonly barred: boolean;
}

type Life = Pick<Member, 'id' | 'joinedAt' | 'endsAt'>;

/** What other replicas have to know of members. */
export interface MemberObserver {
  memberJoined(member: Member): void;
  memberQuarantined(member: Member): void;
  memberReady(member: Member): void;
  memberSuspected(member: Member): void;
  /** The member left the pool, or it drains and gets no new leases. */
  memberLeft(member: Member, departure: Departure): void;
  siteBanned(ban: SiteBan): void;
  /**
   * Leases, uses, latency or an assumed end of life changed. Called for every request, so it must be cheap.
   * @param uses - client leases for which the member has just accepted an attempt.
   */
  memberUsed(member: Member, uses: number): void;
  memberAnswered(member: Member, client: string): void;
  sourceRestricted(source: PoolSource): void;
  evictionsFrozen(on: boolean): void;
}

export class Members {
  readonly sources = new Map<string, PoolSource>();
  readonly locations = new Locations();
  /**
   * The service may draw the same address again, and until the announced end of a member's life it is the same machine. So a member that
   * failed, was used up or was evicted is barred until then; another one may join again, and keeps its health.
   */
  readonly departed = new BoundedMap<string, DepartedMember>(MAX_DEPARTED);
  readonly index: CandidateIndex;
  readonly sites: Sites;
  readonly #departedExits = new BoundedMap<
    string,
    { readonly exit: string; readonly source: string; readonly at: number }
  >(MAX_DEPARTED);
  settings: PoolSettings;
  readonly observers: readonly MemberObserver[];

  readonly #bus: EventBus;
  readonly #random: Random;
  #faultsIgnored = false;
  readonly byId = new Map<string, Member>();
  /** Without the draining members. */
  readonly byKey = new Map<string, Member>();

  /** @param onChange - called after the passage of time has changed members, for example after a quarantine has ended. */
  constructor(
    {
      clock,
      random,
      bus,
      observers,
    }: { clock: Clock; random: Random; bus: EventBus; observers: readonly MemberObserver[] },
    settings: PoolSettings,
    onChange: () => void,
  ) {
    this.observers = observers;
    this.#bus = bus;
    this.#random = random;
    this.settings = settings;
    this.sites = new Sites(clock, bus, (ban) => {
      for (const observer of observers) observer.siteBanned(ban);
    });
    this.index = new CandidateIndex(clock, random, this, () => {
      this.update(clock.monotonic());
      onChange();
    });
  }

  find(id: string | undefined): Member | undefined {
    return this.byId.get(id ?? '');
  }

  configure(settings: PoolSettings, now: number): void {
    this.settings = settings;
    this.sites.configure(settings.targets ?? [], settings.rotation.perHostSpacingMs);
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
    this.index.rebuild();
    for (const member of this.byKey.values()) {
      this.index.setEnd(member, member.endsAt);
      this.index.update(member, now);
    }
    this.update(now);
    this.index.membersFreed = true;
  }

  /** The exit of the member with this id, also up to ten minutes after it left. */
  exitOf(id: string, now: number): { readonly exit: string; readonly source: string } | undefined {
    const member = this.byId.get(id);
    if (member !== undefined) return { exit: member.exit, source: member.source.name };
    const departed = this.#departedExits.get(id);
    return departed === undefined || departed.at < now - REPORTED_LATE_MS ? undefined : departed;
  }

  /** Called before every pick, because timers may be late. Cheap if nothing is due. */
  update(now: number): void {
    for (let due = this.index.due(now); due !== undefined; due = this.index.due(now)) {
      if (due.usableUntil.key <= now) this.remove(due, { reason: 'expired' }, now);
      else this.index.update(due, now);
    }
  }

  recordSuccess(member: Member, latencyMs: number | undefined, now: number): void {
    const { name } = member.phase;
    member.recordSuccess(now, latencyMs);
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

  leaseEnded(member: Member, now: number): void {
    const { phase } = member;
    if (phase.name !== 'draining') this.index.leaseEnded(member, now);
    else if (member.openLeases === 0) {
      member.moveTo({ name: 'left' });
      this.#delete(member, phase.departure);
    }
  }

  /** With open leases, the member drains. No-op for a draining member. */
  remove(member: Member, departure: Departure, now: number): void {
    if (member.phase.name === 'draining') return;
    const { source } = member;
    const key = memberKey(source.name, member);
    this.byKey.delete(key);
    source.expiries.remove(member.usableUntil);
    source.quarantined.delete(member);
    source.suspected.delete(member);
    this.index.remove(member);
    const { health, endsAt, joinedAt } = member;
    const barred = departure.reason !== 'expired' && departure.reason !== 'removed';
    if (barred || health.score > 0) {
      const barredUntilAt = Math.max(endsAt, now + this.settings.health.quarantineMs);
      const untilAt = barred ? barredUntilAt : now + (endsAt - joinedAt);
      this.rememberDeparted(key, { untilAt, barred, health: health.snapshot() }, now);
    }
    this.sites.memberLeft(member.exit);
    this.#departedExits.set(member.id, { exit: member.exit, source: source.name, at: now });
    member.moveTo(member.openLeases > 0 ? { name: 'draining', departure } : { name: 'left' });
    for (const observer of this.observers) observer.memberLeft(member, departure);
    if (member.phase.name === 'left') this.#delete(member, departure);
    else this.#bus.emit('member.drained', { ...eventOf(member), openTunnels: member.openLeases });
  }

  rememberDeparted(key: string, departed: DepartedMember, now: number): void {
    this.departed.set(key, departed);
    this.departed.deleteOldestWhile(({ untilAt }) => untilAt <= now);
  }

  restrict(
    source: PoolSource,
    { blockedReason, leaseLimit }: Pick<PoolSource, 'blockedReason' | 'leaseLimit'>,
    now: number,
  ): void {
    this.index.membersFreed = true;
    source.leaseLimit = leaseLimit;
    source.blockedReason = blockedReason;
    for (const observer of this.observers) observer.sourceRestricted(source);
    for (const member of source.members) this.index.update(member, now);
  }

  join(member: Member, now: number): void {
    const { source } = member;
    this.byId.set(member.id, member);
    this.byKey.set(memberKey(source.name, member), member);
    source.members.add(member);
    source.evidence.memberJoined();
    source.counts[member.phase.name] += 1;
    this.index.setEnd(member, member.endsAt);
    this.index.add(member, now);
    this.sites.memberJoined(member.exit);
    this.#emitJoined(member, false, now);
  }

  renew(member: Member, drawn: DrawnMember, endsAt: number, now: number): void {
    if (drawn.exitIp !== undefined) {
      this.sites.memberLeft(member.exit);
      member.exitIp = drawn.exitIp;
      member.lastSite = undefined;
      this.sites.memberJoined(member.exit);
    }
    member.login = drawn.login ?? member.login;
    member.facts = drawn.facts ?? member.facts;
    const endIsAssumed = drawn.endsAt === undefined;
    if (replacesEnd(member, { endsAt, endIsAssumed })) {
      member.endIsAssumed = endIsAssumed;
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

  admit(member: Member, now: number): void {
    const wasQuarantined = member.source.quarantined.delete(member);
    member.source.suspected.delete(member);
    member.moveTo({ name: 'ready' });
    this.index.update(member, now);
    for (const observer of this.observers) observer.memberReady(member);
    if (wasQuarantined) this.#bus.emit('member.restored', eventOf(member));
  }

  quarantineUntil(
    member: Member,
    {
      untilAt,
      fault,
      replaced = true,
    }: Pick<Quarantine, 'untilAt' | 'fault'> & { replaced?: boolean | undefined },
    now: number,
  ): void {
    const forMs = untilAt - now;
    member.moveTo({ name: 'quarantined', sinceAt: now, untilAt, fault, replaced });
    member.source.quarantined.add(member);
    this.index.update(member, now);
    for (const observer of this.observers) observer.memberQuarantined(member);
    this.#bus.emit('member.quarantined', { ...eventOf(member), forMs, fault, faults: member.health.score });
  }

  #delete(member: Member, departure: Departure): void {
    this.byId.delete(member.id);
    member.source.members.delete(member);
    const { uses, drawnBy } = member;
    this.#bus.emit('member.left', {
      ...{ ...eventOf(member), ...departure, uses },
      ...(drawnBy !== undefined && { drawnBy }),
    });
  }

  #emitJoined(member: Member, renewed: boolean, now: number): void {
    for (const observer of this.observers) observer.memberJoined(member);
    const remainingMs = member.endIsAssumed ? undefined : member.endsAt - now;
    this.#bus.emit('member.joined', { ...eventOf(member), remainingMs, renewed });
  }

  addDraw(source: PoolSource, drawn: readonly DrawnMember[], now: number): AddedMembers {
    const added = { joined: 0, renewed: 0, rejected: 0 };
    for (const proxy of shuffled(this.#random, drawn)) added[this.#add(source, proxy, now)] += 1;
    if (added.joined === 0) return added;
    // The new members may serve the clients that wait in other replicas, so these count only when a replica reports them again.
    const { demandElsewhere } = source;
    for (const [by, demand] of demandElsewhere)
      demandElsewhere.set(by, { ...demand, waiting: 0, stranded: 0 });
    return added;
  }

  #add(source: PoolSource, drawn: DrawnMember, now: number): 'joined' | 'renewed' | 'rejected' {
    const endsAt = drawn.endsAt ?? now + source.options.unknownLifetimeMs;
    if (this.#isTooLate(endsAt, now)) return 'rejected';
    const known = this.byKey.get(memberKey(source.name, drawn));
    if (known !== undefined) {
      source.learn(drawn, endsAt - now);
      this.renew(known, drawn, endsAt, now);
      return 'renewed';
    }
    const life = { id: this.#newId(), joinedAt: now, endsAt };
    return this.#joinUnlessBarred(source, drawn, life, now) ? 'joined' : 'rejected';
  }

  /** @param stored - as a snapshot contains it, but with monotonic moments. */
  restore(source: PoolSource, stored: PoolSnapshot['members'][number], now: number): void {
    const { id, endsAt, assumed, rest } = stored;
    if (this.#isTooLate(endsAt, now)) return;
    if (this.byKey.has(memberKey(source.name, stored)) || this.find(id) !== undefined) return;
    const member = this.#make(source, { ...stored, endsAt: assumed ? undefined : endsAt }, stored, now);
    member.uses = stored.uses;
    member.latencyMs = stored.latencyMs;
    member.health.inherit(stored.health);
    this.join(member, now);
    if (rest === undefined || member.phase.name !== 'ready') return;
    member.moveTo({ name: 'quarantined', ...rest, sinceAt: now });
    source.quarantined.add(member);
    this.index.update(member, now);
  }

  addShared(
    source: PoolSource,
    shared: Omit<DrawnMember, 'endsAt'> & Pick<Member, 'id' | 'joinedAt' | 'endsAt' | 'endIsAssumed'>,
    now: number,
  ): void {
    const { id, endsAt, endIsAssumed } = shared;
    const drawn = { ...shared, endsAt: endIsAssumed ? undefined : endsAt };
    const known = this.byKey.get(memberKey(source.name, drawn)) ?? this.find(id);
    if (known === undefined) {
      if (!this.#isTooLate(endsAt, now)) this.#joinUnlessBarred(source, drawn, shared, now);
    } else if (replacesEnd(known, shared) && known.phase.name !== 'draining') {
      this.renew(known, drawn, endsAt, now);
    }
  }

  #isTooLate(endsAt: number, now: number): boolean {
    return endsAt - this.settings.safetyMarginMs <= now;
  }

  /** @returns whether the member joined: a barred one must not (see `departed`). */
  #joinUnlessBarred(source: PoolSource, drawn: DrawnMember, life: Life, now: number): boolean {
    const departed = this.departed.get(memberKey(source.name, drawn));
    const isKnown = departed !== undefined && departed.untilAt > now;
    if (isKnown && departed.barred) return false;
    const member = this.#make(source, drawn, life, now);
    if (isKnown) member.health.inherit(departed.health);
    this.join(member, now);
    return true;
  }

  #make(source: PoolSource, drawn: DrawnMember, { id, joinedAt, endsAt }: Life, now: number): Member {
    source.learn(drawn, endsAt - now);
    const location = this.locations.of(drawn.location);
    return new Member(drawn, { id, source, location, joinedAt, endsAt });
  }

  #newId(): string {
    let number = randomBelow(this.#random, ID_COUNT);
    for (;;) {
      const id = number.toString(ID_RADIX).padStart(ID_LENGTH, '0');
      if (this.find(id) === undefined) return id;
      number = (number + 1) % ID_COUNT;
    }
  }

  recordFault(member: Member, fault: FaultCode, leasedAt: number, now: number): void {
    if (!this.#mayBlame(member, leasedAt)) return;
    const verdict = member.health.fault(this.settings.health);
    // One fault evicts an unproven member: it has never worked, so it is probably dead.
    if (verdict === 'evict' || member.phase.name === 'joining') {
      this.remove(member, { reason: 'failed', fault }, now);
    } else this.#quarantine(member, fault, true, now);
  }

  recordSuspicion(
    member: Member,
    {
      fault,
      leasedAt,
      ...failure
    }: SuspectFailure & { readonly fault: FaultCode; readonly leasedAt: number },
    now: number,
  ): void {
    const { evidence } = member.source;
    const totals = failure.cut ? evidence.answers : evidence.accepts;
    totals.failures += 1;
    if (!this.#mayBlame(member, leasedAt)) return;
    const verdict = member.health.suspect(failure, evidence, this.settings.health.maxFailures, now);
    switch (verdict) {
      case 'none':
        return;
      case 'evict':
        this.remove(member, { reason: 'failed', fault }, now);
        return;
      case 'probe':
        if (now - member.undecidedAt < WORKED_MS) return;
        member.undecidedAt = now;
        this.#probe(member);
        return;
      case 'exclude-and-probe':
        this.#probe(member);
        break;
      case 'exclude':
      case 'quarantine':
    }
    this.#quarantine(member, fault, verdict === 'quarantine' || member.onTrial, now);
  }

  /** The probe could not decide whether the member is at fault. If none of its source works, the member goes on trial. */
  recordUndecidedProbe(member: Member, fault: FaultCode, leasedAt: number, now: number): void {
    const { evidence, options } = member.source;
    const worked = fault === 'member-cut' ? evidence.answers : evidence.accepts;
    if (member.onTrial || member.phase.name === 'joining' || !this.#mayBlame(member, leasedAt)) return;
    if (now - worked.succeededAt <= WORKED_MS || !evidence.spendTrial(options.size)) return;
    member.onTrial = true;
    this.#quarantine(member, fault, true, now);
  }

  /** While noria's own network is down, faults do not count. Afterwards, clients may try quarantined members at once. */
  freezeEvictions(on: boolean, now: number): void {
    this.#faultsIgnored = on;
    for (const observer of this.observers) observer.evictionsFrozen(on);
    if (on) return;
    for (const source of this.sources.values()) {
      for (const member of source.quarantined) {
        const { phase } = member;
        if (phase.name === 'quarantined') member.phase = { ...phase, untilAt: now };
        this.index.update(member, now);
      }
    }
  }

  #probe(member: Member): void {
    member.source.suspected.add(member);
    for (const observer of this.observers) observer.memberSuspected(member);
  }

  /** The fault of a lease that began before the current quarantine probably has the same cause, so it does not count again. */
  #mayBlame({ phase }: Member, leasedAt: number): boolean {
    if (this.#faultsIgnored || phase.name === 'draining') return false;
    return phase.name !== 'quarantined' || leasedAt >= phase.sinceAt;
  }

  #quarantine(member: Member, fault: FaultCode, replaced: boolean, now: number): void {
    const forMs = Math.min(member.health.nextQuarantineMs(this.settings.health), member.endsAt - now);
    this.quarantineUntil(member, { untilAt: now + forMs, fault, replaced }, now);
  }
}

/**
 * The key by which the pool recognizes a proxy that it already knows. The key includes the user name, because a gateway may have
 * one address for several user names, each with its own exit.
 */
export function memberKey(
  source: string,
  { protocol, host, port, login }: Pick<DrawnMember, 'protocol' | 'host' | 'port' | 'login'>,
): string {
  const address = `${source} ${protocol} ${host} ${port}`;
  return login === undefined ? address : `${address} ${hash('sha256', login.username).slice(0, 16)}`;
}

function eventOf(member: Member) {
  return { source: member.source.name, member: member.id, protocol: member.protocol };
}
