/** What the pool tells whoever draws: how much of a source will be there, and how much is wanted of it. */
import type { Ladder } from './lanes.ts';
import type { Demand } from './offer.ts';
import type { Roster } from './roster.ts';
import type { Source } from './source.ts';

/**
 * Members of the source that are usable at that moment if nothing more is drawn. Members that are full or whose
 * source is blocked count, since drawing more would not help; unproven ones count until a probe has failed.
 */
export function usableAt(roster: Roster, sourceName: string, atMs: number): number {
  const source = roster.sources.get(sourceName);
  if (source === undefined) return 0;
  let usable = source.ends.size - source.ends.countUpTo(atMs);
  for (const { phase, end } of source.quarantined) {
    if (phase.name === 'quarantined' && phase.untilAt > atMs && end.key > atMs) usable -= 1;
  }
  return usable;
}

export function nextLossAt(roster: Roster, sourceName: string, afterMs: number): number | undefined {
  const at = roster.sources.get(sourceName)?.ends.nextAfter(afterMs);
  return at === undefined || at === Number.POSITIVE_INFINITY ? undefined : at;
}

/** A source of a later priority is wanted only for clients that no earlier one can serve. */
export function demandOf(roster: Roster, sourceName: string, now: number): Demand {
  const source = roster.sources.get(sourceName);
  if (source === undefined) return { waiting: 0, lastWantedAt: Number.NEGATIVE_INFINITY, usedUpPerSecond: 0 };
  let waiting = 0;
  let lastWantedAt = source.wantedAt;
  for (const ladder of roster.lanes.all()) {
    if (!couldServe(source, ladder)) continue;
    waiting += ladder.waitingCount;
    lastWantedAt = Math.max(lastWantedAt, wantedIn(ladder, source));
  }
  return { waiting, lastWantedAt, usedUpPerSecond: source.usedUp.perSecond(now) };
}

/** Whether a member that the source draws could be of the ladder's kind. */
function couldServe(source: Source, { kind }: Ladder): boolean {
  if (kind.source !== undefined && kind.source !== source.name) return false;
  return kind.location === undefined || source.options.couldHaveLocation?.(kind.location) !== false;
}

function wantedIn(ladder: Ladder, source: Source): number {
  for (const lane of ladder.lanes) {
    if (lane.sources.includes(source)) return lane.wantedAt;
    if (lane.servingCount > 0) break;
  }
  return Number.NEGATIVE_INFINITY;
}
