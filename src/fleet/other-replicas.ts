/**
 * Tracks the demand and the open leases of the other replicas of a pool. Learns both from their beats (see
 * shared-pool.ts).
 */
import { addDemand } from '../pool/demand.ts';
import type { Demand } from '../pool/drawn-member.ts';
import type { PoolSharing } from '../pool/sharing.ts';
import type { Beat, FleetActivity } from './shared-pool.ts';

interface OtherReplica {
  waiting: number;
  demand: Readonly<Record<string, Demand>>;
  /** The number of open leases of this replica, by member id. */
  readonly memberLeases: Map<string, CountedLeases>;
  /** The number of open leases of this replica, by session name. */
  readonly sessionLeases: Map<string, CountedLeases>;
}

/**
 * The open leases of another replica on `subject`, a member or a session of this pool. If the pool replaces the subject
 * by a new object of the same name, the count does not apply to the new object.
 */
interface CountedLeases {
  readonly subject: object;
  readonly count: number;
}

export class OtherReplicas {
  readonly #sharing: PoolSharing;
  readonly #countsLeases: boolean;
  readonly #byName = new Map<string, OtherReplica>();

  /** @param countsLeases - whether the pool adds the open leases of the other replicas to its own. */
  constructor(sharing: PoolSharing, { countsLeases }: { readonly countsLeases: boolean }) {
    this.#sharing = sharing;
    this.#countsLeases = countsLeases;
  }

  recordBeats(beats: FleetActivity['beats']): void {
    for (const { by, beat } of beats) this.#recordBeat(by, beat);
  }

  /** Removes all replicas that are not in `replicas`, with their open leases. */
  retain(replicas: readonly string[]): void {
    for (const name of this.#byName.keys()) if (!replicas.includes(name)) this.#forget(name);
  }

  reportDemand(): void {
    const sums = new Map<string, Demand>();
    let waiting = 0;
    for (const other of this.#byName.values()) {
      waiting += other.waiting;
      for (const [source, demand] of Object.entries(other.demand)) {
        const sum = sums.get(source);
        sums.set(source, sum === undefined ? demand : addDemand(sum, demand));
      }
    }
    this.#sharing.setDemandElsewhere(waiting, sums);
  }

  #recordBeat(by: string, { waiting, demand, members, sessions }: Beat): void {
    let other = this.#byName.get(by);
    if (other === undefined) {
      other = { waiting, demand, memberLeases: new Map(), sessionLeases: new Map() };
      this.#byName.set(by, other);
    }
    other.waiting = waiting;
    other.demand = demand;
    for (const activity of members) {
      if (activity.endsAt !== undefined) this.#sharing.renew(activity.member, activity.endsAt);
      this.#sharing.recordAnswer(activity);
      if (!this.#countsLeases) continue;
      const member = this.#sharing.findMember(activity.member);
      const change = changeCount(other.memberLeases, activity.member, member, activity.openLeases);
      this.#sharing.countForMember(activity, change);
    }
    for (const activity of sessions) {
      this.#sharing.recordSessionUse(activity);
      if (!this.#countsLeases) continue;
      const session = this.#sharing.findSession(activity.session);
      const change = changeCount(other.sessionLeases, activity.session, session, activity.openLeases);
      this.#sharing.countForSession(activity.session, change);
    }
  }

  #forget(name: string): void {
    const other = this.#byName.get(name);
    this.#byName.delete(name);
    for (const [member, { subject, count }] of other?.memberLeases ?? []) {
      if (this.#sharing.findMember(member) === subject)
        this.#sharing.countForMember({ member, uses: 0 }, -count);
    }
    for (const [session, { subject, count }] of other?.sessionLeases ?? []) {
      if (this.#sharing.findSession(session) === subject) this.#sharing.countForSession(session, -count);
    }
  }
}

/**
 * Sets the number of open leases of a replica on a member or a session.
 * @param subject - the member or the session; undefined if the pool does not have it. Leases are then not counted.
 * @returns the new count minus the previous count of this subject.
 */
function changeCount(
  counts: Map<string, CountedLeases>,
  name: string,
  subject: object | undefined,
  count: number,
): number {
  const known = counts.get(name);
  const before = known !== undefined && known.subject === subject ? known.count : 0;
  if (subject === undefined || count === 0) counts.delete(name);
  else counts.set(name, { subject, count });
  return count - before;
}
