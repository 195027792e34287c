/**
 * Connects a pool with a group of replicas of the same pool. It describes the changes and the activity of this pool as
 * data, and applies the changes of the other replicas; other-replicas.ts applies their activity. It never reports back a
 * change that it received. Every change is idempotent.
 *
 * A pool can have two `PoolSharing` objects: one for the workers of its machine, and one for other machines. Each of
 * them also reports to its group what the pool received from the other group. So a change reaches both groups.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { applyChange } from './apply-change.ts';
import type { Demand } from './drawn-member.ts';
import type { Departure, Member, PoolSource } from './member.ts';
import { type Members, memberKey } from './members.ts';
import type { ProcessPart } from './options.ts';
import { OtherReplicas } from './other-replicas.ts';
import type { PoolObserver } from './pool-observer.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';
import {
  describeMember,
  describeSession,
  type MemberQuarantine,
  type PoolActivity,
  type PoolChange,
  quarantineOf,
  restrictionOf,
  type SharedMember,
  type SharedSession,
} from './shared-member.ts';
import type { SiteBan } from './sites.ts';
import { UnsharedActivity } from './unshared-activity.ts';

export interface SharingParts {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly members: Members;
  readonly sessions: Sessions;
  readonly pool: {
    readonly waitingHere: number;
    waitingElsewhere: number;
    serveWaiting(now: number): void;
    refuseHopeless(): void;
    demandFor(source: PoolSource, except: object): Demand;
  };
  /** All `PoolSharing` objects of the pool, including this one. Each observes the pool's members and sessions. */
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
  /** Called when the clients of the pool's other group of replicas no longer wait for members. */
  readonly onServed: () => void;
  /**
   * Whether the other replicas run on this machine. If so, their evidence counts like that of this process. If not, their
   * evidence does not quarantine a member that worked in this process within WORKED_MS.
   */
  readonly sameMachine: boolean;
  /** Whether the pool adds the open leases of the other replicas to its own. */
  readonly countsLeases: boolean;
}

/** A member as this replica knows it, in the format of a `PoolChange`. */
export interface MemberChanges {
  readonly member: SharedMember;
  readonly quarantine: MemberQuarantine | undefined;
  readonly bans: readonly string[];
}

export class PoolSharing implements PoolObserver {
  /** The replicas with which this object connects the pool. */
  readonly otherReplicas: OtherReplicas;
  readonly #parts: SharingParts;
  readonly #options: SharingOptions;
  readonly #unshared = new UnsharedActivity();
  /** Names of the sessions whose member the other replicas do not know yet. */
  readonly #unconfirmed = new Set<string>();
  #applying = false;

  constructor(parts: SharingParts, options: SharingOptions) {
    this.#parts = parts;
    this.#options = options;
    const { sameMachine, countsLeases } = options;
    this.otherReplicas = new OtherReplicas(parts, {
      sameMachine,
      countsLeases,
      observers: () => this.#otherSharings,
    });
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
    const elsewhere = this.#otherSharings.some((other) => other.#applying && !other.#options.sameMachine);
    this.#report({ kind: 'member.restored', member: id, ...(elsewhere && { elsewhere }) });
  }

  memberSuspected({ id }: Member): void {
    this.#report({ kind: 'member.suspected', member: id });
  }

  memberLeft({ id, uses }: Member, { reason, fault }: Departure): void {
    if (reason === 'expired' || reason === 'removed') return;
    this.#report({ kind: 'member.left', member: id, reason, fault, uses });
  }

  siteBanned({ site: host, exit, untilAt }: SiteBan): void {
    const { clock, members } = this.#parts;
    const lifted = untilAt <= clock.monotonic();
    for (const { id: member, exit: other } of members.all())
      if (other === exit) this.#report({ kind: 'member.banned', member, host, lifted });
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
    if (reason === 'rotated' || this.#otherSharings.some((other) => other.#applying)) {
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
      bans: [...this.#parts.members.sites.bans()]
        .filter(({ exit }) => exit === member.exit)
        .map(({ site }) => site),
    }));
  }

  sessions(): SharedSession[] {
    return [...this.#parts.sessions.all()].map((session) => this.#describe(session));
  }

  session(name: string): SharedSession | undefined {
    const session = this.#parts.sessions.find(name);
    return session === undefined ? undefined : this.#describe(session);
  }

  demandChanged(): void {
    this.#options.onUse();
  }

  allServed(): void {
    this.#options.onServed();
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

  /** Reports all uses of the member again, because the other replicas have lost their record of these uses. */
  reportUsesAgain(id: string): void {
    const member = this.#parts.members.find(id);
    if (member === undefined || member.uses === 0) return;
    this.#unshared.memberLost(member);
    this.#options.onUse();
  }

  /** Number of clients that wait in this process and in the pool's other groups of replicas. */
  get waiting(): number {
    const others = this.#otherSharings.reduce((sum, other) => sum + other.otherReplicas.waiting, 0);
    return this.#parts.pool.waitingHere + others;
  }

  /**
   * Returns the current demand, and the activity since the last call. Both include this process and the pool's other
   * groups of replicas.
   */
  takeActivity(): PoolActivity {
    const { clock, members, pool } = this.#parts;
    const now = clock.monotonic();
    const demand: Record<string, Demand> = {};
    for (const source of members.sources.values()) {
      const here = pool.demandFor(source, this.otherReplicas);
      if (here.lastWantedAt !== Number.NEGATIVE_INFINITY || here.waiting > 0) demand[source.name] = here;
    }
    return { waiting: this.waiting, demand, ...this.#unshared.take(now) };
  }

  /** Applies changes of other replicas, then serves the clients that can now get a member. */
  apply(changes: readonly PoolChange[]): void {
    const { clock, members, pool } = this.#parts;
    const { sameMachine } = this.#options;
    const now = clock.monotonic();
    members.update(now);
    this.#applying = true;
    for (const change of changes) applyChange(this.#parts, change, { now, sameMachine });
    this.#applying = false;
    pool.serveWaiting(now);
    if (changes.some(({ kind }) => kind === 'source.restricted')) pool.refuseHopeless();
  }

  /** Remembers a member that other replicas have removed, so that no draw brings it back. */
  rememberRemoved(removed: SharedMember): void {
    const { departed } = this.#parts.members;
    const history = { bans: [], health: { inRow: 0, rests: 0 } };
    const key = memberKey(removed.source, removed);
    departed.add(key, { untilAt: removed.endsAt, barred: true, ...history }, this.#parts.clock.monotonic());
  }

  setPart(part: ProcessPart): void {
    const { clock, members, pool } = this.#parts;
    const now = clock.monotonic();
    members.setPart(part);
    for (const member of members.all()) members.index.update(member, now);
    pool.serveWaiting(now);
  }

  get #otherSharings(): readonly PoolSharing[] {
    return this.#parts.sharings.filter((sharing) => sharing !== this);
  }

  #describe(session: Session): SharedSession {
    return describeSession(session, this.#unshared.usesOf(session));
  }

  #report(change: PoolChange): void {
    if (!this.#applying) this.#options.onChange(change);
  }
}
