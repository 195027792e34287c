/** Tracks the demand and the activity of the other replicas of a pool, from their beats (see shared-pool.ts). */
import { addDemand } from '../pool/demand.ts';
import type { Demand } from '../pool/drawn-member.ts';
import type { PoolSharing } from '../pool/sharing.ts';
import type { Beat, FleetView } from './shared-pool.ts';

interface OtherReplica {
  waiting: number;
  demand: Readonly<Record<string, Demand>>;
  /** Number of open leases, by member id. */
  readonly memberLeases: Map<string, number>;
  /** Number of open leases, by session name. */
  readonly sessionLeases: Map<string, number>;
}

export class OtherReplicas {
  readonly #sharing: PoolSharing;
  readonly #countsLeases: boolean;
  readonly #byName = new Map<string, OtherReplica>();

  /** @param countsLeases - whether the pool counts the open leases of the other replicas as its own leases. */
  constructor(sharing: PoolSharing, { countsLeases }: { readonly countsLeases: boolean }) {
    this.#sharing = sharing;
    this.#countsLeases = countsLeases;
  }

  hear(beats: FleetView['beats']): void {
    for (const { by, beat } of beats) this.#hear(by, beat);
  }

  /** Forgets all replicas except `replicas`, and ends the leases of the forgotten replicas. */
  keep(replicas: readonly string[]): void {
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

  #hear(by: string, { waiting, demand, members, sessions }: Beat): void {
    let other = this.#byName.get(by);
    if (other === undefined) {
      other = { waiting, demand, memberLeases: new Map(), sessionLeases: new Map() };
      this.#byName.set(by, other);
    }
    other.waiting = waiting;
    other.demand = demand;
    for (const activity of members) {
      if (activity.endsAt !== undefined) this.#sharing.renew(activity.member, activity.endsAt);
      this.#sharing.hearAnswer(activity);
      if (!this.#countsLeases) continue;
      this.#sharing.count(activity, changeCount(other.memberLeases, activity.member, activity.openLeases));
    }
    for (const activity of sessions) {
      this.#sharing.useSession(activity);
      if (!this.#countsLeases) continue;
      const change = changeCount(other.sessionLeases, activity.session, activity.openLeases);
      this.#sharing.countForSession(activity.session, change);
    }
  }

  #forget(name: string): void {
    const other = this.#byName.get(name);
    this.#byName.delete(name);
    for (const [member, openLeases] of other?.memberLeases ?? [])
      this.#sharing.count({ member, uses: 0 }, -openLeases);
    for (const [session, openLeases] of other?.sessionLeases ?? []) {
      this.#sharing.countForSession(session, -openLeases);
    }
  }
}

/**
 * Sets the count of a key.
 * @returns the change since the previous count.
 */
function changeCount(counts: Map<string, number>, key: string, count: number): number {
  const before = counts.get(key) ?? 0;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
  return count - before;
}
