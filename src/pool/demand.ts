/** What the pool reports to refill about a source: the number of its usable members, and the demand of the clients. */
import type { Candidates } from './candidates.ts';
import type { Demand } from './drawn-member.ts';
import { couldDraw } from './filter.ts';
import type { LeaseRequest } from './lease.ts';
import type { PoolSource } from './member.ts';
import type { MemberPhase } from './member-phase.ts';
import type { Members } from './members.ts';
import type { Sessions } from './sessions.ts';

/**
 * Number of members that clients can use at `moment` without another draw, minus the clients that wait for a new
 * member. Includes unproven members and the members of a blocked source. Subtracts no more clients than `size`, the
 * number of usable members that the source should have.
 */
export function usableAt(members: Members, source: PoolSource, moment: number): number {
  const usable = heldAt(source, moment) - quarantinedAt(source, moment, () => true);
  return withoutWaiting(members, source, usable);
}

/** Like `usableAt`, but also counts each quarantined member that no draw will replace. */
export function countedAt(members: Members, source: PoolSource, moment: number): number {
  const counted = heldAt(source, moment) - quarantinedAt(source, moment, ({ replaced }) => replaced);
  return withoutWaiting(members, source, counted);
}

type Quarantine = Extract<MemberPhase, { name: 'quarantined' }>;

function quarantinedAt(
  source: PoolSource,
  moment: number,
  isCounted: (phase: Quarantine) => boolean,
): number {
  let count = 0;
  for (const { phase, usableUntil } of source.quarantined) {
    if (phase.name !== 'quarantined' || phase.untilAt <= moment || usableUntil.key <= moment) continue;
    if (isCounted(phase)) count += 1;
  }
  return count;
}

function withoutWaiting(members: Members, source: PoolSource, count: number): number {
  return Math.max(0, count - Math.min(waitingFor(members, source), source.options.size));
}

/** Number of members that have not expired at `moment`, including quarantined members. */
export function heldAt({ expiries }: PoolSource, moment: number): number {
  return expiries.size - expiries.countUpTo(moment);
}

/**
 * The demand of all replicas for the source.
 * @param except - the `OtherReplicas` object of a group of replicas. The result omits the demand of this group.
 */
export function demandFor(
  members: Members,
  source: PoolSource,
  { now, except }: { readonly now: number; readonly except?: object },
): Demand {
  let sum = demandHere(members, source, now);
  for (const [by, demand] of source.demandElsewhere) if (by !== except) sum = addDemand(sum, demand);
  return sum;
}

/**
 * Call it when a draw has added members, which may serve the clients that wait in other replicas. Until those replicas
 * report again, the demand counts none of these clients.
 */
export function forgetWaitingElsewhere({ demandElsewhere }: PoolSource): void {
  for (const [by, demand] of demandElsewhere) demandElsewhere.set(by, { ...demand, waiting: 0 });
}

export function addDemand(one: Demand, other: Demand): Demand {
  return {
    waiting: one.waiting + other.waiting,
    lastWantedAt: Math.max(one.lastWantedAt, other.lastWantedAt),
    usedUpPerSecond: one.usedUpPerSecond + other.usedUpPerSecond,
  };
}

/** The demand of this replica. A request that a source of higher priority can serve is no demand for this source. */
function demandHere(members: Members, source: PoolSource, now: number): Demand {
  let { lastWantedAt } = source;
  for (const candidates of members.index.lists()) {
    if (!couldDraw(source, candidates.filter)) continue;
    lastWantedAt = Math.max(lastWantedAt, lastWantedIn(candidates, source));
  }
  return {
    waiting: waitingHere(members, source),
    lastWantedAt,
    usedUpPerSecond: source.usedUp.perSecond(now),
  };
}

/** Names of the sources that the pick at `now` searched. */
export function searchedSources({ tiers }: Candidates, now: number): string[] {
  const searched = tiers.filter(({ lastWantedAt }) => lastWantedAt === now);
  return searched.flatMap(({ sources }) => sources.map(({ name }) => name));
}

/**
 * Whether a newly drawn member could serve the request. False if the request waits for the member of its session, or if no source
 * draws members that fit it.
 */
export function needsDraw(
  { routing, avoid }: LeaseRequest,
  { tiers, filter }: Candidates,
  { members, sessions }: { members: Members; sessions: Sessions },
): boolean {
  const own = routing.session === undefined ? undefined : sessions.find(routing.session)?.member;
  if (own !== undefined && !avoid.includes(own) && members.find(own)?.phase.name === 'ready') return false;
  return tiers.some(({ sources }) => sources.some((source) => couldDraw(source, filter, routing.minLifeMs)));
}

/** Number of waiting clients in all replicas that a newly drawn member of the source could serve. */
function waitingFor(members: Members, source: PoolSource): number {
  let waiting = waitingHere(members, source);
  for (const demand of source.demandElsewhere.values()) waiting += demand.waiting;
  return waiting;
}

function waitingHere(members: Members, source: PoolSource): number {
  if (source.blockedReason !== undefined) return 0;
  let waiting = 0;
  for (const { filter, waitingForDrawCount } of members.index.lists()) {
    if (waitingForDrawCount > 0 && couldDraw(source, filter)) waiting += waitingForDrawCount;
  }
  return waiting;
}

function lastWantedIn({ tiers }: Candidates, source: PoolSource): number {
  for (const tier of tiers) {
    if (tier.sources.includes(source)) return tier.lastWantedAt;
    if (tier.canServe) break;
  }
  return Number.NEGATIVE_INFINITY;
}
