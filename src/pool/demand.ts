/** What the pool tells whoever draws: how much of a source will be there, and how much is wanted of it. */
import type { Candidates } from './candidates.ts';
import type { Demand } from './drawn-member.ts';
import { mightDraw } from './filter.ts';
import type { Roster } from './members.ts';
import type { PoolSource } from './source.ts';

/**
 * Members of the source that a client could have at that moment if nothing more is drawn. Unproven ones count until
 * a probe has failed, and those of a blocked source, since more of them would not help. A client that waits now
 * could have none of those that are there (they are full, or do not fit): one is taken off for each, up to the
 * source's size.
 */
export function usableAt(roster: Roster, sourceName: string, atMs: number): number {
  const source = roster.sources.get(sourceName);
  if (source === undefined) return 0;
  let usable = source.ends.size - source.ends.countUpTo(atMs);
  for (const { phase, end } of source.quarantined) {
    if (phase.name === 'quarantined' && phase.untilAt > atMs && end.key > atMs) usable -= 1;
  }
  return Math.max(0, usable - Math.min(waitingFor(roster, source), source.options.size));
}

/** Members of the source that are alive at that moment, those that rest included: what drawing adds to. */
export function heldAt(roster: Roster, sourceName: string, atMs: number): number {
  const source = roster.sources.get(sourceName);
  return source === undefined ? 0 : source.ends.size - source.ends.countUpTo(atMs);
}

/** The first end of a usable life after that moment; undefined when there is none. */
export function nextLossAt(roster: Roster, sourceName: string, afterMs: number): number | undefined {
  const at = roster.sources.get(sourceName)?.ends.nextAfter(afterMs);
  return at === undefined || at === Number.POSITIVE_INFINITY ? undefined : at;
}

/** A source of a later priority is wanted only for clients that no earlier one can serve. */
export function demandOf(roster: Roster, sourceName: string, now: number): Demand {
  const source = roster.sources.get(sourceName);
  if (source === undefined) return { waiting: 0, lastWantedAt: Number.NEGATIVE_INFINITY, usedUpPerSecond: 0 };
  let lastWantedAt = source.wantedAt;
  for (const ladder of roster.seating.lanes.all()) {
    if (mightDraw(source, ladder.kind)) lastWantedAt = Math.max(lastWantedAt, wantedIn(ladder, source));
  }
  return { waiting: waitingFor(roster, source), lastWantedAt, usedUpPerSecond: source.usedUp.perSecond(now) };
}

/** Clients that wait and that a member drawn from the source could serve: none while the source is blocked. */
function waitingFor(roster: Roster, source: PoolSource): number {
  if (source.blocked !== undefined) return 0;
  let waiting = 0;
  for (const ladder of roster.seating.lanes.all()) {
    if (ladder.wantingCount > 0 && mightDraw(source, ladder.kind)) waiting += ladder.wantingCount;
  }
  return waiting;
}

function wantedIn(ladder: Candidates, source: PoolSource): number {
  for (const lane of ladder.lanes) {
    if (lane.sources.includes(source)) return lane.wantedAt;
    if (lane.servingCount > 0) break;
  }
  return Number.NEGATIVE_INFINITY;
}
