/** What the pool reports to refill about a source: the number of its usable members, and the demand of the clients. */
import type { Candidates } from './candidates.ts';
import { type Demand, NO_DEMAND } from './drawn-member.ts';
import { couldDraw, mayServe } from './filter.ts';
import type { LeaseRequest } from './lease.ts';
import type { PoolSource } from './member.ts';
import type { Members } from './members.ts';
import { freeAt, type Site, type Sites } from './sites.ts';
import type { WaitingClient } from './waiting-queue.ts';

/** A client that can be served within this share of its waiting time needs no draw. */
export const SOON_SHARE = 1 / 3;

/** Of all replicas, without the group whose `PoolSharing` object is `except`. */
export function demandOf(source: PoolSource, here: Demand, except?: object): Demand {
  let sum = here;
  for (const [by, demand] of source.demandElsewhere) {
    if (by !== except) sum = addDemand(sum, boundedDemand(source, demand));
  }
  return sum;
}

export function addDemand(one: Demand, other: Demand): Demand {
  return {
    waiting: one.waiting + other.waiting,
    stranded: one.stranded + other.stranded,
    lastWantedAt: Math.max(one.lastWantedAt, other.lastWantedAt),
    usedUpPerSecond: one.usedUpPerSecond + other.usedUpPerSecond,
    perSecond: one.perSecond + other.perSecond,
    held: one.held + other.held,
  };
}

/** At most twice `size` members within one lifetime: whoever can write to the store of a fleet could otherwise use up its IPs. */
function boundedDemand({ options, expiries }: PoolSource, demand: Demand): Demand {
  const most = Math.max(0, 2 * options.size - expiries.size);
  if (most === 0) return { ...NO_DEMAND, lastWantedAt: demand.lastWantedAt };
  return {
    ...demand,
    waiting: Math.min(demand.waiting, most),
    stranded: Math.min(demand.stranded, most),
    held: Math.min(demand.held, 2 * options.size),
  };
}

/** A request that a source of higher priority can serve is no demand for this source. */
export function demandHere(
  members: Members,
  source: PoolSource,
  waiting: Iterable<WaitingClient>,
  { now, held }: { readonly now: number; readonly held: number },
): Demand {
  let { lastWantedAt } = source;
  let waitingHere = 0;
  for (const candidates of members.index.lists.values()) {
    if (!couldDraw(source, candidates.filter)) continue;
    lastWantedAt = Math.max(lastWantedAt, lastWantedIn(candidates, source));
    if (source.blockedReason === undefined) waitingHere += candidates.waitingForDrawCount;
  }
  const perSecond = source.requests.perSecond(now);
  const { maxUsesPerMember } = members.settings.rotation;
  return {
    waiting: waitingHere,
    stranded: waitingHere === 0 ? 0 : strandedIn(source, waiting, members, now),
    lastWantedAt,
    usedUpPerSecond: maxUsesPerMember === 0 ? 0 : perSecond / maxUsesPerMember,
    perSecond,
    held,
  };
}

/**
 * Waiting clients that a draw could serve and no held member soon: for example, each member is banned for their site. At most `size`, and
 * for each site as many as its `drawsForBans` allows.
 */
function strandedIn(
  source: PoolSource,
  waiting: Iterable<WaitingClient>,
  members: Members,
  now: number,
): number {
  const { sites, index } = members;
  const known = new Map<string, boolean>();
  const bySite = new Map<Site, number>();
  let count = 0;
  for (const { request, candidates, needsDraw, site } of waiting) {
    const { routing } = request;
    if (!needsDraw || !couldDraw(source, candidates.filter, routing.minLifeMs)) continue;
    const ofSite = bySite.get(site) ?? 0;
    if (ofSite >= site.drawsLeft(source.name, index.part, now)) continue;
    const { source: only, location, protocol } = candidates.filter;
    const key = `${site.name} ${routing.minLifeMs} ${request.waitMs} ${routing.user} ${only} ${location} ${protocol}`;
    let isStranded = known.get(key);
    if (isStranded === undefined) {
      isStranded = servedAt(request, candidates, sites, now) > now + request.waitMs * SOON_SHARE;
      known.set(key, isStranded);
    }
    if (!isStranded) continue;
    bySite.set(site, ofSite + 1);
    count += 1;
    if (count === source.options.size) break;
  }
  return count;
}

/**
 * The monotonic moment at which a held member may serve the request, if `ahead` other clients of its site are served first. At most
 * `now`: as soon as one is free. Infinity: never.
 */
export function servedAt(
  { routing, targetHost }: LeaseRequest,
  { tiers, filter }: Candidates,
  sites: Sites,
  now: number,
  ahead = 0,
): number {
  const minEndsAt = now + (routing.minLifeMs ?? 0);
  const site = sites.of(targetHost);
  const spacingMs = sites.spacingOf(site, now);
  const slots: number[] = [];
  for (const { sources } of tiers) {
    for (const { members } of sources) {
      for (const member of members) {
        if (member.endsAt < minEndsAt || !mayServe(member, filter, false)) continue;
        const at = freeAt(site, member, spacingMs, routing.user);
        if (at <= now && (spacingMs === 0 || ahead === 0)) return at;
        if (at < member.endsAt) slots.push(Math.max(at, now));
      }
    }
  }
  slots.sort((one, other) => one - other);
  const slot = slots[ahead % slots.length] ?? Number.POSITIVE_INFINITY;
  return slot + Math.floor(ahead / Math.max(1, slots.length)) * spacingMs;
}

function lastWantedIn({ tiers }: Candidates, source: PoolSource): number {
  for (const tier of tiers) {
    if (tier.sources.includes(source)) return tier.lastWantedAt;
    if (tier.canServe) break;
  }
  return Number.NEGATIVE_INFINITY;
}
