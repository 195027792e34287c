/** What the pool reports to refill: how many members of a source will be usable, and how many are wanted. */
import type { Candidates } from './candidates.ts';
import type { Demand } from './drawn-member.ts';
import { couldDraw } from './filter.ts';
import type { LeaseRequest } from './lease.ts';
import type { MemberPhase, PoolSource } from './member.ts';
import type { Members } from './members.ts';
import type { Sessions } from './sessions.ts';

/**
 * Members of the source that clients can use at that moment without another draw. Unproven members count until a probe
 * fails, and so do those of a blocked source, because more of them would not help. One member is subtracted for each
 * waiting client, up to the source's size: the client cannot use those that are there, since they are full or do not fit.
 */
export function usableAt(members: Members, source: PoolSource, atMs: number): number {
  return withoutQuarantined(members, source, atMs, () => true);
}

/** The same, and the quarantined members that no draw replaces. */
export function countedAt(members: Members, source: PoolSource, atMs: number): number {
  return withoutQuarantined(members, source, atMs, ({ replaced }) => replaced);
}

function withoutQuarantined(
  members: Members,
  source: PoolSource,
  atMs: number,
  isLeftOut: (phase: Extract<MemberPhase, { name: 'quarantined' }>) => boolean,
): number {
  let count = heldAt(source, atMs);
  for (const { phase, usableUntil } of source.quarantined) {
    if (phase.name !== 'quarantined' || phase.untilAt <= atMs || usableUntil.key <= atMs) continue;
    if (isLeftOut(phase)) count -= 1;
  }
  return Math.max(0, count - Math.min(waitingFor(members, source), source.options.size));
}

/** Members of the source that have not expired at that moment, quarantined ones included. */
export function heldAt({ expiries }: PoolSource, atMs: number): number {
  return expiries.size - expiries.countUpTo(atMs);
}

/** The demand of all replicas. */
export function demandFor(members: Members, source: PoolSource, now: number): Demand {
  const here = demandHere(members, source, now);
  const { demandElsewhere: elsewhere } = source;
  if (elsewhere === undefined) return here;
  return {
    waiting: here.waiting + elsewhere.waiting,
    lastWantedAt: Math.max(here.lastWantedAt, elsewhere.lastWantedAt),
    usedUpPerSecond: here.usedUpPerSecond + elsewhere.usedUpPerSecond,
  };
}

/** The demand of this process. A source of a later priority is wanted only by clients that no earlier one can serve. */
export function demandHere(members: Members, source: PoolSource, now: number): Demand {
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

/** Names of the sources that the last pick, at `now`, searched. */
export function searchedSources({ tiers }: Candidates, now: number): string[] {
  const searched = tiers.filter(({ lastWantedAt }) => lastWantedAt === now);
  return searched.flatMap(({ sources }) => sources.map(({ name }) => name));
}

/** Whether a newly drawn member could serve the request. False when it waits for its session's member, or for a longer life than any member has. */
export function needsDraw(
  { routing, avoid }: LeaseRequest,
  { tiers, filter }: Candidates,
  { members, sessions }: { members: Members; sessions: Sessions },
): boolean {
  const own = routing.session === undefined ? undefined : sessions.find(routing.session)?.member;
  if (own !== undefined && !avoid.includes(own) && members.find(own)?.phase.name === 'ready') return false;
  return tiers.some(({ sources }) => sources.some((source) => couldDraw(source, filter, routing.minLifeMs)));
}

/** Waiting clients that a newly drawn member of the source could serve; none while the source is blocked. */
function waitingFor(members: Members, source: PoolSource): number {
  return waitingHere(members, source) + (source.demandElsewhere?.waiting ?? 0);
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
