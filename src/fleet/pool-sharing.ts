/**
 * Connects a pool with a group of replicas of the same pool. It describes the changes and the activity of this pool as
 * facts and beats, and applies those of the other replicas. It never reports back a change that it received. Every change
 * is idempotent.
 *
 * A pool can have two `PoolSharing` objects: one for the workers of its machine, and one for other machines. Each of
 * them also reports to its group what the pool received from the other group. So a change reaches both groups.
 */

import { isSame } from '../core/secret.ts';
import { QUIET_MS } from '../pool/candidates.ts';
import { addDemand } from '../pool/demand.ts';
import type { Demand } from '../pool/drawn-member.ts';
import { type Departure, type Member, type PoolSource, replacesEnd, WORKED_MS } from '../pool/member.ts';
import { type MemberObserver, memberKey } from '../pool/members.ts';
import { type ProcessPart, partOf } from '../pool/options.ts';
import type { Pool } from '../pool/pool.ts';
import type { Session, SessionObserver } from '../pool/sessions.ts';
import type { SiteBan } from '../pool/sites.ts';
import type {
  Beat,
  Fact,
  FactOf,
  MemberActivity,
  MemberQuarantine,
  SessionActivity,
  SharedMember,
  SharedSession,
} from './schemas.ts';

interface SharingOptions {
  readonly onChange: (change: Fact) => void;
  /** Called for every request when a member or session was used, so it must be cheap. */
  readonly onUse: () => void;
  /** Called when the clients of the pool's other group of replicas no longer wait for members. */
  readonly onServed: () => void;
  /**
   * Whether the other replicas run on this machine. If so, their evidence counts like that of this process. If not, their
   * evidence does not quarantine a member that worked in this process within WORKED_MS.
   */
  readonly sameMachine: boolean;
  readonly countsLeases: boolean;
}

interface OtherReplica {
  waiting: number;
  demand: Readonly<Record<string, Demand>>;
  readonly memberLeases: Map<string, CountedLeases<Member>>;
  readonly sessionLeases: Map<string, CountedLeases<Session>>;
}

/**
 * The number of open leases of another replica on `subject`, a member or a session of this pool. If a new member or
 * session with the same name replaces the subject, the number does not apply to the new one.
 */
interface CountedLeases<Subject> {
  readonly subject: Subject;
  readonly count: number;
}

export interface MemberChanges {
  readonly member: SharedMember;
  readonly quarantine: MemberQuarantine | undefined;
}

/**
 * Why a session moved without a request that waits for the agreement of the replicas. All other moves are proposed to
 * them first (`isUnconfirmed`).
 */
const MOVED_ALREADY = ['rotated', 'failed-over'];

export class PoolSharing implements MemberObserver, SessionObserver {
  readonly #parts: Pool['parts'];
  readonly #options: SharingOptions;
  /** Uses since the last beat, and the client that last got an answer. */
  readonly #usedMembers = new Map<Member, { uses: number; answeredTo: string | undefined }>();
  readonly #usedSessions = new Map<Session, number>();
  /** The sessions whose member the other replicas do not know yet, and the member on which they last agreed. */
  readonly #unconfirmed = new Map<string, string | undefined>();
  readonly #others = new Map<string, OtherReplica>();
  /** Number of clients that wait in the other replicas of this group. `applyDemand` updates it. */
  #waitingElsewhere = 0;
  #applying = false;

  constructor(parts: Pool['parts'], options: SharingOptions) {
    this.#parts = parts;
    this.#options = options;
    parts.observers.push(this);
  }

  memberJoined(member: Member): void {
    this.#report({ kind: 'member.joined', member: describeMember(member) });
  }

  memberQuarantined(member: Member): void {
    const quarantine = quarantineOf(member);
    if (quarantine !== undefined) this.#report({ kind: 'member.quarantined', ...about(member), quarantine });
  }

  memberReady(member: Member): void {
    const elsewhere = this.#otherGroups.some((other) => other.#applying && !other.#options.sameMachine);
    this.#report({ kind: 'member.restored', ...about(member), ...(elsewhere && { elsewhere }) });
  }

  memberSuspected(member: Member): void {
    this.#report({ kind: 'member.suspected', ...about(member) });
  }

  /** Members that expire, or whose source was removed from the configuration, cause no fact. */
  memberLeft(member: Member, { reason, fault }: Departure): void {
    if (reason === 'expired' || reason === 'removed') return;
    this.#report({ kind: 'member.left', ...about(member), reason, fault, uses: member.uses });
  }

  siteBanned(ban: SiteBan): void {
    this.#report(this.#factOf(ban));
  }

  memberUsed(member: Member, uses: number): void {
    const news = this.#usedMembers.get(member);
    if (news === undefined) this.#usedMembers.set(member, { uses, answeredTo: undefined });
    else news.uses += uses;
    this.#options.onUse();
  }

  memberAnswered(member: Member, client: string): void {
    this.memberUsed(member, 0);
    const news = this.#usedMembers.get(member);
    if (news !== undefined) news.answeredTo = client;
  }

  sessionBound(session: Session, reason: string): void {
    this.sessionMoved(session, reason, undefined);
  }

  sessionMoved(session: Session, reason: string, from: string | undefined): void {
    if (this.#applying) return;
    if (MOVED_ALREADY.includes(reason) || this.#otherGroups.some((other) => other.#applying)) {
      this.#unconfirmed.delete(session.name);
      this.#report({ kind: 'session.moved', session: this.#describe(session), from, reason });
    } else if (!this.#unconfirmed.has(session.name)) this.#unconfirmed.set(session.name, from);
  }

  sessionUsed(session: Session, uses: number): void {
    this.#usedSessions.set(session, (this.#usedSessions.get(session) ?? 0) + uses);
    this.#options.onUse();
  }

  /** A session that ends because it was idle causes no fact. */
  sessionEnded({ name }: Session, reason: string): void {
    this.#unconfirmed.delete(name);
    if (reason !== 'idle') this.#report({ kind: 'session.ended', name });
  }

  members(): MemberChanges[] {
    const all = [...this.#parts.members.byId.values()].filter(({ phase }) => phase.name !== 'draining');
    return all.map((member) => ({
      member: describeMember(member),
      quarantine: quarantineOf(member),
    }));
  }

  bans(): FactOf<'site.banned'>[] {
    return [...this.#parts.members.sites.bans()].map((ban) => this.#factOf(ban));
  }

  sessions(): SharedSession[] {
    return [...this.#parts.sessions.byName.values()].map((session) => this.#describe(session));
  }

  session(name: string): SharedSession | undefined {
    const session = this.#parts.sessions.byName.get(name);
    return session === undefined ? undefined : this.#describe(session);
  }

  sourceRestricted({ name, blockedReason, leaseLimit }: PoolSource): void {
    this.#report({ kind: 'source.restricted', source: name, blockedReason, leaseLimit });
  }

  evictionsFrozen(on: boolean): void {
    this.#report({ kind: 'evictions.frozen', on });
  }

  isUnconfirmed(session: string): boolean {
    return this.#unconfirmed.has(session);
  }

  /** Returns the member on which the replicas last agreed. The session counts as confirmed from now on. */
  propose(name: string): { readonly session: SharedSession; readonly from: string | undefined } | undefined {
    const session = this.session(name);
    const from = this.#unconfirmed.get(name);
    this.#unconfirmed.delete(name);
    return session && { session, from };
  }

  /**
   * Moves the session to the member of a lease if its own member has failed, so that the other replicas agree before
   * the lease is used.
   */
  failOver(name: string, member: string): void {
    const { clock, sessions } = this.#parts;
    const session = sessions.byName.get(name);
    if (session === undefined || !session.memberFailed || session.member === member) return;
    if (session.member === undefined) return;
    sessions.bind(session, { member, reason: 'left' }, clock.monotonic());
  }

  confirm(session: SharedSession): void {
    this.#unconfirmed.delete(session.name);
    this.apply([{ kind: 'session.moved', session, reason: 'bound' }]);
  }

  /** Reports all uses of the member again, because the other replicas have lost their record of these uses. */
  reportUsesAgain(id: string): void {
    const member = this.#parts.members.find(id);
    if (member === undefined || member.uses === 0) return;
    const { answeredTo } = this.#usedMembers.get(member) ?? {};
    this.#usedMembers.set(member, { uses: member.uses, answeredTo });
    this.#options.onUse();
  }

  get waiting(): number {
    return this.#parts.pool.waitingCount - this.#waitingElsewhere;
  }

  takeActivity(): Beat {
    const { clock, members, pool } = this.#parts;
    const now = clock.monotonic();
    const demand: Record<string, Demand> = {};
    for (const source of members.sources.values()) {
      const here = pool.demandFor(source, this);
      if (here.lastWantedAt !== Number.NEGATIVE_INFINITY || here.waiting > 0) demand[source.name] = here;
    }
    const beat = {
      waiting: this.waiting,
      demand,
      members: [...this.#usedMembers].map(([{ id, openLeases, latencyMs, endIsAssumed, endsAt }, used]) => ({
        member: id,
        uses: used.uses,
        openLeases,
        ...(used.answeredTo !== undefined && { answeredTo: used.answeredTo }),
        ...(latencyMs !== undefined && { latencyMs }),
        ...(endIsAssumed && { endsAt }),
      })),
      sessions: [...this.#usedSessions].map(([{ name, openLeases, usedAt, ttlMs }, uses]) => ({
        session: name,
        uses,
        openLeases,
        usedAt: openLeases > 0 ? now : usedAt,
        ttlMs,
      })),
    };
    this.#usedMembers.clear();
    this.#usedSessions.clear();
    return beat;
  }

  apply(facts: readonly Fact[]): void {
    const { clock, members, pool } = this.#parts;
    const now = clock.monotonic();
    members.update(now);
    this.#applying = true;
    for (const fact of facts) this.#applyFact(fact, now);
    this.#applying = false;
    pool.serveWaiting(now);
    if (facts.some(({ kind }) => kind === 'source.restricted')) pool.refuseHopeless();
  }

  rememberRemoved(removed: SharedMember): void {
    const { members, clock } = this.#parts;
    const history = { bans: [], health: { inRow: 0, rests: 0 } };
    const key = memberKey(removed.source, removed);
    members.rememberDeparted(key, { untilAt: removed.endsAt, barred: true, ...history }, clock.monotonic());
  }

  setPart(part: ProcessPart): void {
    const { clock, members, pool } = this.#parts;
    const now = clock.monotonic();
    members.index.part = part;
    for (const member of members.byId.values()) members.index.update(member, now);
    pool.serveWaiting(now);
  }

  /** Records what a replica reports. Its demand has an effect with the next `applyDemand`. */
  record(name: string, { waiting, demand, members, sessions }: Beat): void {
    let other = this.#others.get(name);
    if (other === undefined) {
      other = { waiting, demand, memberLeases: new Map(), sessionLeases: new Map() };
      this.#others.set(name, other);
    }
    other.waiting = waiting;
    other.demand = demand;
    for (const activity of members) this.#recordMember(activity, other.memberLeases);
    for (const activity of sessions) this.#recordSession(activity, other.sessionLeases);
  }

  retain(names: readonly string[]): void {
    for (const [name, other] of this.#others) {
      if (names.includes(name)) continue;
      this.#others.delete(name);
      this.#removeLeases(other);
    }
  }

  /** Adds the demand in the replicas' last reports to this pool's own demand. Replaces what the previous call added. */
  applyDemand(): void {
    const { members, pool, bus } = this.#parts;
    const { waiting, demand } = this.#sumOfDemand();
    const areServed = waiting === 0 && this.#waitingElsewhere > 0;
    pool.waitingElsewhere += waiting - this.#waitingElsewhere;
    this.#waitingElsewhere = waiting;
    const risen: string[] = [];
    for (const source of members.sources.values()) {
      const before = source.demandElsewhere.get(this);
      const next = demand.get(source.name);
      if (!isSame(before, next)) for (const other of this.#otherGroups) other.#options.onUse();
      if (next === undefined) source.demandElsewhere.delete(this);
      else source.demandElsewhere.set(this, next);
      if (next === undefined) continue;
      const wasQuiet = next.lastWantedAt - (before?.lastWantedAt ?? Number.NEGATIVE_INFINITY) > QUIET_MS;
      if (wasQuiet || next.waiting > (before?.waiting ?? 0)) risen.push(source.name);
    }
    if (areServed) for (const other of this.#otherGroups) other.#options.onServed();
    if (risen.length > 0) bus.emit('demand.rose', { sources: risen });
  }

  setUses(id: string, uses: number): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined || uses <= member.uses) return;
    const now = clock.monotonic();
    for (const other of this.#otherGroups) other.memberUsed(member, uses - member.uses);
    member.uses = uses;
    if (this.#options.sameMachine) member.lastSuccessAt = now;
    const { maxUsesPerMember } = members.settings.rotation;
    if (maxUsesPerMember > 0 && uses >= maxUsesPerMember) members.remove(member, { reason: 'used-up' }, now);
    else members.index.update(member, now);
  }

  renew(id: string, endsAt: number): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined || !replacesEnd(member, { endsAt, endIsAssumed: true })) return;
    if (member.phase.name === 'draining') return;
    members.index.setEnd(member, endsAt);
    members.index.update(member, clock.monotonic());
    for (const other of this.#otherGroups) other.memberUsed(member, 0);
  }

  get #otherGroups(): readonly PoolSharing[] {
    return this.#parts.observers.filter(
      (each) => each instanceof PoolSharing && each !== this,
    ) as PoolSharing[];
  }

  /** A ban whose source is not known gets that of a member with this exit. */
  #factOf({ source, ...ban }: SiteBan): FactOf<'site.banned'> {
    const known = () =>
      [...this.#parts.members.byId.values()].find(({ exit }) => exit === ban.exit)?.source.name ?? '';
    return { kind: 'site.banned', source: source === '' ? known() : source, ...ban };
  }

  /** Uses that this replica has not reported yet are left out. */
  #describe(session: Session): SharedSession {
    const { name, owner, member, ttlMs, usedAt, uses } = session;
    const shared = uses - (this.#usedSessions.get(session) ?? 0);
    const promised = session.isExclusive ? { exclusive: true } : {};
    return { name, owner, ...(member !== undefined && { member }), ttlMs, usedAt, uses: shared, ...promised };
  }

  #reserveExit(name: string): void {
    const { members, sessions } = this.#parts;
    const session = sessions.byName.get(name);
    const member = members.find(session?.member);
    if (session === undefined || member === undefined) return;
    session.isExclusive = true;
    sessions.reserve(session, member);
  }

  #report(change: Fact): void {
    if (!this.#applying) this.#options.onChange(change);
  }

  /** A fact may arrive twice, or after its member has left, so a fact about an unknown member has no effect. */
  #applyFact(fact: Fact, now: number): void {
    const { members, sessions } = this.#parts;
    switch (fact.kind) {
      case 'member.joined': {
        const source = members.sources.get(fact.member.source);
        if (source !== undefined) members.addShared(source, fact.member, now);
        break;
      }
      case 'session.moved':
        sessions.adopt(fact.session, fact.reason, now);
        if (fact.session.exclusive === true) this.#reserveExit(fact.session.name);
        break;
      case 'session.ended':
        sessions.forget(fact.name);
        break;
      case 'site.banned':
        members.sites.adopt(fact);
        if (fact.untilAt <= now) members.index.membersFreed = true;
        break;
      case 'source.restricted':
        this.#restrict(fact, now);
        break;
      case 'evictions.frozen':
        members.freezeEvictions(fact.on, now);
        break;
      case 'source.commanded':
      case 'source.reported':
        break; // not about the pool
      default: {
        const member = members.find(fact.member);
        if (member?.source.name === fact.source) this.#applyTo(member, fact, now);
      }
    }
  }

  #applyTo(
    member: Member,
    fact: FactOf<'member.quarantined' | 'member.restored' | 'member.left' | 'member.suspected'>,
    now: number,
  ): void {
    const { members } = this.#parts;
    const { health, phase, source } = member;
    if (fact.kind === 'member.quarantined') this.#quarantine(member, fact.quarantine, now);
    else if (fact.kind === 'member.restored') {
      if (phase.name !== 'joining' && phase.name !== 'quarantined') return;
      if (this.#options.sameMachine && fact.elsewhere !== true) health.accepted(now);
      members.admit(member, now);
    } else if (fact.kind === 'member.left') {
      const { reason, fault, uses = 0 } = fact;
      member.uses = Math.max(member.uses, uses);
      members.remove(member, { reason, ...(fault !== undefined && { fault }) }, now);
    } else source.suspected.add(member);
  }

  #quarantine(member: Member, { untilAt, fault, replaced, health }: MemberQuarantine, now: number): void {
    const { phase } = member;
    if (phase.name !== 'ready' && phase.name !== 'quarantined') return;
    if (phase.name === 'quarantined' && phase.untilAt === untilAt) return;
    if (this.#options.sameMachine) member.health.inherit(health);
    else if ((member.lastSuccessAt ?? Number.NEGATIVE_INFINITY) > now - WORKED_MS) return;
    this.#parts.members.quarantineUntil(member, { untilAt, fault, replaced }, now);
  }

  #restrict({ source: name, blockedReason, leaseLimit }: FactOf<'source.restricted'>, now: number): void {
    const { members } = this.#parts;
    const source = members.sources.get(name);
    if (source === undefined) return;
    const part = partOf(leaseLimit, members.index.part);
    members.restrict(source, { blockedReason, leaseLimit: part }, now);
  }

  #sumOfDemand(): { readonly waiting: number; readonly demand: ReadonlyMap<string, Demand> } {
    const sums = new Map<string, Demand>();
    let waiting = 0;
    for (const other of this.#others.values()) {
      waiting += other.waiting;
      for (const [source, demand] of Object.entries(other.demand)) {
        const sum = sums.get(source);
        sums.set(source, sum === undefined ? demand : addDemand(sum, demand));
      }
    }
    return { waiting, demand: sums };
  }

  #recordMember(activity: MemberActivity, leases: OtherReplica['memberLeases']): void {
    const { clock, members } = this.#parts;
    const { member: id, endsAt, answeredTo, openLeases } = activity;
    const member = members.find(id);
    const now = clock.monotonic();
    if (endsAt !== undefined) this.renew(id, endsAt);
    if (member !== undefined && answeredTo !== undefined) {
      // An answer of a target in another replica counts like an answer here: it shows that targets answer other clients.
      members.recordAnswer(member, answeredTo, now);
      for (const other of this.#otherGroups) other.memberAnswered(member, answeredTo);
    }
    if (!this.#options.countsLeases) return;
    const change = changeCount(leases, id, { subject: member, count: openLeases });
    if (member === undefined) return;
    const { latencyMs, uses } = activity;
    member.latencyMs = latencyMs ?? member.latencyMs;
    if (uses > 0) member.source.evidence.recordAccept(now);
    if (uses > 0 && member.phase.name === 'ready') member.recordSuccess(now, undefined);
    this.#addLeases(member, change, now);
  }

  #addLeases(member: Member, change: number, now: number): void {
    if (change === 0) return;
    member.openLeases += change;
    member.source.openLeases += change;
    this.#parts.members.leaseEnded(member, now);
  }

  #recordSession(activity: SessionActivity, leases: OtherReplica['sessionLeases']): void {
    const { clock, sessions } = this.#parts;
    const { session: name, uses, openLeases } = activity;
    const session = sessions.byName.get(name);
    if (session !== undefined) {
      session.uses += uses;
      sessions.usedElsewhere(session, activity, clock.monotonic());
      for (const other of this.#otherGroups) other.sessionUsed(session, uses);
    }
    if (!this.#options.countsLeases) return;
    const change = changeCount(leases, name, { subject: session, count: openLeases });
    if (session !== undefined) session.openLeases += change;
  }

  #removeLeases({ memberLeases, sessionLeases }: OtherReplica): void {
    const { clock, members, sessions } = this.#parts;
    for (const [id, { subject, count }] of memberLeases) {
      if (members.find(id) === subject) this.#addLeases(subject, -count, clock.monotonic());
    }
    for (const [name, { subject, count }] of sessionLeases) {
      if (sessions.byName.get(name) === subject) subject.openLeases -= count;
    }
  }
}

function about({ id, source }: Member): { readonly source: string; readonly member: string } {
  return { source: source.name, member: id };
}

function describeMember(member: Member): SharedMember {
  const { id, source, protocol, host, port, location, joinedAt, endsAt, endIsAssumed } = member;
  const { exitIp, login, facts, drawnBy } = member;
  return {
    id,
    source: source.name,
    protocol,
    host,
    port,
    joinedAt,
    endsAt,
    endIsAssumed,
    unproven: member.phase.name === 'joining',
    ...(location.text !== '' && { location: location.text }),
    ...(exitIp !== undefined && { exitIp }),
    ...(login !== undefined && { login }),
    ...(facts !== undefined && { facts }),
    ...(drawnBy !== undefined && { drawnBy }),
  };
}

function quarantineOf({ phase, health }: Member): MemberQuarantine | undefined {
  if (phase.name !== 'quarantined') return undefined;
  const { untilAt, fault, replaced } = phase;
  return { untilAt, fault, replaced, health: health.snapshot() };
}

/** @returns the new count minus the previous count of this subject. */
function changeCount<Subject>(
  counts: Map<string, CountedLeases<Subject>>,
  name: string,
  { subject, count }: { readonly subject: Subject | undefined; readonly count: number },
): number {
  const known = counts.get(name);
  const before = known !== undefined && known.subject === subject ? known.count : 0;
  if (subject === undefined || count === 0) counts.delete(name);
  else counts.set(name, { subject, count });
  return count - before;
}
