/**
 * Connects a pool with a group of replicas of the same pool. It describes the changes and the activity of this pool as
 * data, and applies the changes and the activity of the other replicas. It never reports back a change that it
 * received. Every change is idempotent.
 *
 * A pool can have two sharings: one with the workers of its machine, and one with other machines. Each sharing also
 * reports what the other sharing has applied. So changes and activity pass through the pool from one group to the
 * other.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { isSame } from '../core/is-same.ts';
import { applyChange } from './apply-change.ts';
import { QUIET_MS } from './candidates.ts';
import { demandFor } from './demand.ts';
import { memberKey } from './departed-members.ts';
import type { Demand } from './drawn-member.ts';
import type { Member, PoolSource } from './member.ts';
import type { MemberFaults } from './member-faults.ts';
import type { MemberIntake } from './member-intake.ts';
import type { Departure } from './member-phase.ts';
import type { Members } from './members.ts';
import type { ProcessPart } from './options.ts';
import type { PoolObserver } from './pool-observer.ts';
import type { Requests } from './requests.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';
import {
  describeMember,
  describeSession,
  type MemberActivity,
  type MemberQuarantine,
  type PoolActivity,
  type PoolChange,
  quarantineOf,
  restrictionOf,
  type SessionActivity,
  type SharedMember,
  type SharedSession,
} from './shared-member.ts';
import { UnsharedActivity } from './unshared-activity.ts';

export interface SharingParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly members: Members;
  readonly intake: MemberIntake;
  readonly faults: MemberFaults;
  readonly sessions: Sessions;
  readonly requests: Requests;
  /** All sharings of the pool, including this sharing. Each sharing observes the pool's members and sessions. */
  readonly sharings: PoolSharing[];
}

export interface SharingOptions {
  /** Called for each change of this pool, synchronously. */
  readonly onChange: (change: PoolChange) => void;
  /**
   * Called when a member or session was used, so that `takeActivity` has something to report. Called for every request, so it
   * must be cheap.
   */
  readonly onUse: () => void;
  /** Called when the number of waiting clients in the group of another sharing falls to 0. */
  readonly onServed: () => void;
  /**
   * Whether the other replicas run on this machine. If so, their evidence counts like that of this process. If not, their
   * evidence does not quarantine a member that worked in this process within WORKED_MS.
   */
  readonly sameMachine: boolean;
}

/** A member as this replica knows it, in the format of a `PoolChange`. */
export interface MemberChanges {
  readonly member: SharedMember;
  readonly quarantine: MemberQuarantine | undefined;
  readonly bans: readonly string[];
}

export class PoolSharing implements PoolObserver {
  readonly #parts: SharingParts;
  readonly #options: SharingOptions;
  readonly #unshared = new UnsharedActivity();
  /** Names of the sessions whose member the other replicas do not know yet. */
  readonly #unconfirmed = new Set<string>();
  /** Number of clients that wait in the other replicas of this group. */
  #waitingElsewhere = 0;
  #applying = false;

  constructor(parts: SharingParts, options: SharingOptions) {
    this.#parts = parts;
    this.#options = options;
    parts.sharings.push(this);
  }

  memberJoined(member: Member): void {
    this.#report({ kind: 'member.joined', member: describeMember(member) });
  }

  memberQuarantined(member: Member): void {
    const quarantine = quarantineOf(member);
    if (quarantine !== undefined) {
      this.#report({ kind: 'member.quarantined', member: member.id, quarantine });
    }
  }

  memberReady({ id }: Member): void {
    const elsewhere = this.#others.some((other) => other.#applying && !other.#options.sameMachine);
    this.#report({ kind: 'member.restored', member: id, ...(elsewhere && { elsewhere }) });
  }

  memberSuspected({ id }: Member): void {
    this.#report({ kind: 'member.suspected', member: id });
  }

  memberLeft({ id, uses }: Member, { reason, fault }: Departure): void {
    if (reason === 'expired' || reason === 'removed') return;
    this.#report({ kind: 'member.left', member: id, reason, fault, uses });
  }

  memberBanned({ id }: Member, host: string, lifted: boolean): void {
    this.#report({ kind: 'member.banned', member: id, host, lifted });
  }

  memberUsed(member: Member, uses: number): void {
    this.#unshared.memberUsed(member, uses);
    this.#options.onUse();
  }

  memberAnswered(member: Member, client: string): void {
    this.#unshared.memberAnswered(member, client);
    this.#options.onUse();
  }

  sessionBound(session: Session, reason: string): void {
    if (reason === 'rotated' || this.#others.some((other) => other.#applying)) {
      this.sessionMoved(session, reason);
    } else if (!this.#applying) this.#unconfirmed.add(session.name);
  }

  sessionMoved(session: Session, reason: string): void {
    this.#report({ kind: 'session.moved', session: this.#describe(session), reason });
  }

  sessionUsed(session: Session, uses: number): void {
    this.#unshared.sessionUsed(session, uses);
    this.#options.onUse();
  }

  sessionEnded({ name }: Session, reason: string): void {
    this.#unconfirmed.delete(name);
    if (reason !== 'idle') this.#report({ kind: 'session.ended', name });
  }

  members(): MemberChanges[] {
    const all = [...this.#parts.members.all()].filter(({ phase }) => phase.name !== 'draining');
    return all.map((member) => ({
      member: describeMember(member),
      quarantine: quarantineOf(member),
      bans: [...(member.bans?.keys() ?? [])],
    }));
  }

  sessions(): SharedSession[] {
    return [...this.#parts.sessions.all()].map((session) => this.#describe(session));
  }

  session(name: string): SharedSession | undefined {
    const session = this.#parts.sessions.find(name);
    return session === undefined ? undefined : this.#describe(session);
  }

  sourceRestricted(source: PoolSource): void {
    this.#report(restrictionOf(source));
  }

  evictionsFrozen(on: boolean): void {
    this.#report({ kind: 'evictions.frozen', on });
  }

  /** Whether the other replicas do not know the session's member yet. */
  isUnconfirmed(session: string): boolean {
    return this.#unconfirmed.has(session);
  }

  /** Assigns the session to the member on which all replicas have agreed. */
  confirm(session: SharedSession): void {
    this.#unconfirmed.delete(session.name);
    this.apply([{ kind: 'session.moved', session, reason: 'bound' }]);
  }

  /** Reports all uses of the member again, because the other replicas have lost them. */
  reportUsesAgain(id: string): void {
    const member = this.#parts.members.find(id);
    if (member === undefined || member.uses === 0) return;
    this.#unshared.memberLost(member);
    this.#options.onUse();
  }

  /** Number of clients that wait in this process and in the groups of the other sharings. */
  get waiting(): number {
    const others = this.#others.reduce((sum, other) => sum + other.#waitingElsewhere, 0);
    return this.#parts.requests.waitingHere + others;
  }

  /**
   * Returns the current demand, and the activity since the last call. Both include this process and the groups of the
   * other sharings.
   */
  takeActivity(): PoolActivity {
    const { clock, members } = this.#parts;
    const now = clock.monotonic();
    const demand: Record<string, Demand> = {};
    for (const source of members.sources.values()) {
      const here = demandFor(members, source, { now, except: this });
      if (here.lastWantedAt !== Number.NEGATIVE_INFINITY || here.waiting > 0) demand[source.name] = here;
    }
    return { waiting: this.waiting, demand, ...this.#unshared.take(now) };
  }

  /** Applies changes of other replicas, then serves the clients that can now get a member. */
  apply(changes: readonly PoolChange[]): void {
    const { clock, members, requests } = this.#parts;
    const { sameMachine } = this.#options;
    const now = clock.monotonic();
    members.update(now);
    this.#applying = true;
    for (const change of changes) applyChange(this.#parts, change, { now, sameMachine });
    this.#applying = false;
    requests.serveWaiting(now);
    if (changes.some(({ kind }) => kind === 'source.restricted')) requests.refuseHopeless();
  }

  /** Remembers a member that other replicas have removed, so that no draw brings it back. */
  rememberRemoved(removed: SharedMember): void {
    const { departed } = this.#parts.members;
    const history = { bans: [], health: { inRow: 0, rests: 0 } };
    const key = memberKey(removed.source, removed);
    departed.add(key, { untilAt: removed.endsAt, barred: true, ...history }, this.#parts.clock.monotonic());
  }

  setPart(part: ProcessPart): void {
    const { clock, members, requests } = this.#parts;
    const now = clock.monotonic();
    members.setPart(part);
    for (const member of members.all()) members.index.update(member, now);
    requests.serveWaiting(now);
  }

  /** Replaces the demand that the other replicas of this group reported. `demand` is by source name. */
  setDemandElsewhere(waiting: number, demand: ReadonlyMap<string, Demand>): void {
    const { members, requests, bus } = this.#parts;
    const areServed = waiting === 0 && this.#waitingElsewhere > 0;
    requests.waitingElsewhere += waiting - this.#waitingElsewhere;
    this.#waitingElsewhere = waiting;
    const risen: string[] = [];
    for (const source of members.sources.values()) {
      const before = source.demandElsewhere.get(this);
      const next = demand.get(source.name);
      if (!isSame(before, next)) for (const other of this.#others) other.#options.onUse();
      if (next === undefined) source.demandElsewhere.delete(this);
      else source.demandElsewhere.set(this, next);
      if (next === undefined) continue;
      const wasQuiet = next.lastWantedAt - (before?.lastWantedAt ?? Number.NEGATIVE_INFINITY) > QUIET_MS;
      if (wasQuiet || next.waiting > (before?.waiting ?? 0)) risen.push(source.name);
    }
    if (areServed) for (const other of this.#others) other.#options.onServed();
    if (risen.length > 0) bus.emit('demand.rose', { sources: risen });
  }

  /**
   * Sets the uses of a member.
   * @param uses - number of accepted leases in all replicas.
   */
  setUses(id: string, uses: number): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined || uses <= member.uses) return;
    const now = clock.monotonic();
    for (const other of this.#others) other.memberUsed(member, uses - member.uses);
    member.uses = uses;
    if (this.#options.sameMachine) member.lastSuccessAt = now;
    const { maxUsesPerMember } = members.settings.rotation;
    if (maxUsesPerMember > 0 && uses >= maxUsesPerMember) members.remove(member, { reason: 'used-up' }, now);
    else members.index.update(member, now);
  }

  /**
   * Applies the later end of life that a member has after a success in another replica. No-op if the service reported
   * the member's end of life.
   */
  renew(id: string, endsAt: number): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member?.endIsAssumed !== true || endsAt <= member.endsAt || member.phase.name === 'draining') return;
    members.index.setEnd(member, endsAt);
    members.index.update(member, clock.monotonic());
    for (const other of this.#others) other.memberUsed(member, 0);
  }

  /**
   * Records that a target answered a client of another replica. This is evidence that members of the source serve other clients.
   */
  recordAnswer({ member: id, answeredTo }: MemberActivity): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined || answeredTo === undefined) return;
    members.recordAnswer(member, answeredTo, clock.monotonic());
    for (const other of this.#others) other.memberAnswered(member, answeredTo);
  }

  /**
   * Returns the object of the member that has this id now, also for a draining member. The caller uses the object only to compare
   * identities.
   */
  findMember(id: string): object | undefined {
    return this.#parts.members.find(id);
  }

  /** Returns the object of the session that has this name now. The caller uses the object only to compare identities. */
  findSession(name: string): object | undefined {
    return this.#parts.sessions.find(name);
  }

  /**
   * Records the use of a member by another replica: open leases, latency and successes. They count like those of this
   * process.
   */
  countForMember(
    { member: id, latencyMs, uses }: Omit<MemberActivity, 'openLeases'>,
    openLeasesChange: number,
  ): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined) return;
    const now = clock.monotonic();
    member.latencyMs = latencyMs ?? member.latencyMs;
    if (uses > 0) member.source.evidence.recordAccept(now);
    if (uses > 0 && member.phase.name === 'ready') member.recordSuccess(now, undefined);
    if (openLeasesChange === 0) return;
    member.openLeases += openLeasesChange;
    member.source.openLeases += openLeasesChange;
    members.leaseEnded(member, now);
  }

  recordSessionUse(activity: SessionActivity): void {
    const { clock, sessions } = this.#parts;
    const session = sessions.find(activity.session);
    if (session === undefined) return;
    session.uses += activity.uses;
    sessions.usedElsewhere(session, activity, clock.monotonic());
    for (const other of this.#others) other.sessionUsed(session, activity.uses);
  }

  /** Counts the other replica's open leases of a session like those of this process. */
  countForSession(name: string, openLeasesChange: number): void {
    const session = this.#parts.sessions.find(name);
    if (session !== undefined) session.openLeases += openLeasesChange;
  }

  get #others(): readonly PoolSharing[] {
    return this.#parts.sharings.filter((sharing) => sharing !== this);
  }

  #describe(session: Session): SharedSession {
    return describeSession(session, this.#unshared.usesOf(session));
  }

  #report(change: PoolChange): void {
    if (!this.#applying) this.#options.onChange(change);
  }
}
