/** What the pool reports to refill about a source: the number of its usable members, and the demand of the clients. */
import type { Candidates } from './candidates.ts';
import type { Demand } from './drawn-member.ts';
import { couldDraw, mayServe } from './filter.ts';
import type { MemberPhase, PoolSource } from './member.ts';
import type { WaitingClient } from './waiting-queue.ts';

type Quarantine = Extract<MemberPhase, { name: 'quarantined' }>;

export function quarantinedAt(
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

/**
 * The demand of all replicas for the source.
 * @param except - the `OtherReplicas` object of a group of replicas. The result omits the demand of this group.
 */
export function demandOf(source: PoolSource, here: Demand, except?: object): Demand {
  let sum = here;
  for (const [by, demand] of source.demandElsewhere) if (by !== except) sum = addDemand(sum, demand);
  return sum;
}

/**
 * Call it when a draw has added members, which may serve the clients that wait in other replicas. Until those replicas
 * report again, the demand counts none of these clients.
 */
export function forgetWaitingElsewhere({ demandElsewhere }: PoolSource): void {
  for (const [by, { stranded: _, ...demand }] of demandElsewhere)
    demandElsewhere.set(by, { ...demand, waiting: 0 });
}

export function addDemand(one: Demand, other: Demand): Demand {
  const stranded = (one.stranded ?? 0) + (other.stranded ?? 0);
  const perSecond = (one.perSecond ?? 0) + (other.perSecond ?? 0);
  const held = (one.held ?? 0) + (other.held ?? 0);
  return {
    waiting: one.waiting + other.waiting,
    ...(stranded > 0 && { stranded }),
    lastWantedAt: Math.max(one.lastWantedAt, other.lastWantedAt),
    usedUpPerSecond: one.usedUpPerSecond + other.usedUpPerSecond,
    ...(perSecond > 0 && { perSecond }),
    ...(held > 0 && { held }),
  };
}

/**
 * The demand of this replica, at monotonic `now`. `held`: see `Demand`. A request that a source of higher priority can serve is no demand for
 * this source.
 */
export function demandHere(
  lists: Iterable<Candidates>,
  source: PoolSource,
  waiting: Iterable<WaitingClient>,
  { now, held }: { readonly now: number; readonly held: number },
): Demand {
  let { lastWantedAt } = source;
  let waitingHere = 0;
  for (const candidates of lists) {
    if (!couldDraw(source, candidates.filter)) continue;
    lastWantedAt = Math.max(lastWantedAt, lastWantedIn(candidates, source));
    if (source.blockedReason === undefined) waitingHere += candidates.waitingForDrawCount;
  }
  const perSecond = source.requests.perSecond(now);
  const stranded = waitingHere === 0 ? 0 : strandedIn(source, waiting, now);
  return {
    waiting: waitingHere,
    ...(stranded > 0 && { stranded }),
    lastWantedAt,
    usedUpPerSecond: source.usedUp.perSecond(now),
    ...(perSecond > 0 && { perSecond }),
    ...(held > 0 && { held }),
  };
}

/**
 * Number of waiting clients that a draw of the source could serve, and that no held member can ever serve: for example, each
 * member is banned for their host. Counts no further than to `size`.
 */
function strandedIn(source: PoolSource, waiting: Iterable<WaitingClient>, now: number): number {
  const known = new Map<Candidates, Map<string, boolean>>();
  let count = 0;
  for (const { request, candidates, needsDraw } of waiting) {
    const { targetHost, routing } = request;
    const { minLifeMs = 0 } = routing;
    if (!needsDraw || !couldDraw(source, candidates.filter, minLifeMs)) continue;
    let ofList = known.get(candidates);
    if (ofList === undefined) {
      ofList = new Map();
      known.set(candidates, ofList);
    }
    const key = `${targetHost} ${minLifeMs}`;
    let isServable = ofList.get(key);
    if (isServable === undefined) {
      isServable = someMayServe(candidates, targetHost, now + minLifeMs);
      ofList.set(key, isServable);
    }
    if (!isServable) count += 1;
    if (count === source.options.size) break;
  }
  return count;
}

function someMayServe({ tiers, filter }: Candidates, host: string, minEndsAt: number): boolean {
  for (const { sources } of tiers) {
    for (const { members } of sources) {
      for (const member of members) {
        if (member.endsAt >= minEndsAt && mayServe(member, filter, host)) return true;
      }
    }
  }
  return false;
}

export function searchedSources({ tiers }: Candidates, now: number): string[] {
  const searched = tiers.filter(({ lastWantedAt }) => lastWantedAt === now);
  return searched.flatMap(({ sources }) => sources.map(({ name }) => name));
}

function lastWantedIn({ tiers }: Candidates, source: PoolSource): number {
  for (const tier of tiers) {
    if (tier.sources.includes(source)) return tier.lastWantedAt;
    if (tier.canServe) break;
  }
  return Number.NEGATIVE_INFINITY;
}
