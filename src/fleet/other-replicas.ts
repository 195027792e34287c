/**
 * The activity of the other replicas in a group: their demand, uses and open leases. Each replica reports its own
 * activity from time to time, and the pool adds the reported activity to its own. If the pool is also shared with a
 * second group, it passes the activity on to that group.
 */
import { isSame } from '../core/secret.ts';
import { QUIET_MS } from '../pool/candidates.ts';
import { addDemand } from '../pool/demand.ts';
import type { Demand } from '../pool/drawn-member.ts';
import { type Member, replacesEnd } from '../pool/member.ts';
import type { Pool } from '../pool/pool.ts';
import type { PoolObserver } from '../pool/pool-observer.ts';
import type { Session } from '../pool/session.ts';
import type { Beat, MemberActivity, SessionActivity } from './schemas.ts';

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

export class OtherReplicas {
  readonly #parts: Pool['parts'];
  readonly #options: { readonly sameMachine: boolean; readonly countsLeases: boolean };
  readonly #observers: () => readonly PoolObserver[];
  readonly #byName = new Map<string, OtherReplica>();
  #waiting = 0;

  /** @param observers - returns the pool's other groups of replicas. */
  constructor(
    parts: Pool['parts'],
    options: { readonly sameMachine: boolean; readonly countsLeases: boolean },
    observers: () => readonly PoolObserver[],
  ) {
    this.#parts = parts;
    this.#options = options;
    this.#observers = observers;
  }

  /** Number of clients that wait in the other replicas of this group. `applyDemand` updates it. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Records what a replica reports. Its demand has an effect with the next `applyDemand`. */
  record(name: string, { waiting, demand, members, sessions }: Beat): void {
    let other = this.#byName.get(name);
    if (other === undefined) {
      other = { waiting, demand, memberLeases: new Map(), sessionLeases: new Map() };
      this.#byName.set(name, other);
    }
    other.waiting = waiting;
    other.demand = demand;
    for (const activity of members) this.#recordMember(activity, other.memberLeases);
    for (const activity of sessions) this.#recordSession(activity, other.sessionLeases);
  }

  retain(names: readonly string[]): void {
    for (const [name, other] of this.#byName) {
      if (names.includes(name)) continue;
      this.#byName.delete(name);
      this.#removeLeases(other);
    }
  }

  /** Adds the demand in the replicas' last reports to this pool's own demand. Replaces what the previous call added. */
  applyDemand(): void {
    const { members, pool, bus } = this.#parts;
    const { waiting, demand } = this.#sumOfDemand();
    const areServed = waiting === 0 && this.#waiting > 0;
    pool.waitingElsewhere += waiting - this.#waiting;
    this.#waiting = waiting;
    const risen: string[] = [];
    for (const source of members.sources.values()) {
      const before = source.demandElsewhere.get(this);
      const next = demand.get(source.name);
      if (!isSame(before, next)) for (const observer of this.#observers()) observer.demandChanged();
      if (next === undefined) source.demandElsewhere.delete(this);
      else source.demandElsewhere.set(this, next);
      if (next === undefined) continue;
      const wasQuiet = next.lastWantedAt - (before?.lastWantedAt ?? Number.NEGATIVE_INFINITY) > QUIET_MS;
      if (wasQuiet || next.waiting > (before?.waiting ?? 0)) risen.push(source.name);
    }
    if (areServed) for (const observer of this.#observers()) observer.allServed();
    if (risen.length > 0) bus.emit('demand.rose', { sources: risen });
  }

  /**
   * Sets the uses of a member.
   * @param uses - the uses in all replicas. See `Member.uses`.
   */
  setUses(id: string, uses: number): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined || uses <= member.uses) return;
    const now = clock.monotonic();
    for (const observer of this.#observers()) observer.memberUsed(member, uses - member.uses);
    member.uses = uses;
    if (this.#options.sameMachine) member.lastSuccessAt = now;
    const { maxUsesPerMember } = members.settings.rotation;
    if (maxUsesPerMember > 0 && uses >= maxUsesPerMember) members.remove(member, { reason: 'used-up' }, now);
    else members.index.update(member, now);
  }

  /**
   * Renews an assumed end of life after a success in another replica: sets it to `endsAt`, if that is later. No-op if
   * the service reported the end of life.
   */
  renew(id: string, endsAt: number): void {
    const { clock, members } = this.#parts;
    const member = members.find(id);
    if (member === undefined || !replacesEnd(member, { endsAt, endIsAssumed: true })) return;
    if (member.phase.name === 'draining') return;
    members.index.setEnd(member, endsAt);
    members.index.update(member, clock.monotonic());
    for (const observer of this.#observers()) observer.memberUsed(member, 0);
  }

  #sumOfDemand(): { readonly waiting: number; readonly demand: ReadonlyMap<string, Demand> } {
    const sums = new Map<string, Demand>();
    let waiting = 0;
    for (const other of this.#byName.values()) {
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
      for (const observer of this.#observers()) observer.memberAnswered(member, answeredTo);
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
    const session = sessions.find(name);
    if (session !== undefined) {
      session.uses += uses;
      sessions.usedElsewhere(session, activity, clock.monotonic());
      for (const observer of this.#observers()) observer.sessionUsed(session, uses);
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
      if (sessions.find(name) === subject) subject.openLeases -= count;
    }
  }
}

/**
 * Sets the number of open leases of a replica on a member or a session. Leases do not count if the pool does not have
 * the member or session (`subject` is undefined).
 * @returns the new count minus the previous count of this subject.
 */
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
