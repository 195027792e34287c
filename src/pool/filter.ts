/** What a wish comes to: its kind, whether anybody could ever meet it, and whether a draw of a source might. */
import type { MemberFilter } from './candidates.ts';
import type { RoutingOptions } from './lease.ts';
import { foldLocation, looksLikeCode } from './locations.ts';
import type { Roster } from './members.ts';
import type { PoolSource } from './source.ts';

const ANY: MemberFilter = {};

/** The part of a wish that chooses a ladder. */
export function filterOf({ source, protocol, location }: RoutingOptions): MemberFilter {
  const anywhere = location === undefined || location === '';
  if (source === undefined && protocol === undefined && anywhere) return ANY;
  return {
    ...(source === undefined ? {} : { source }),
    ...(protocol === undefined ? {} : { protocol }),
    ...(anywhere ? {} : { location: foldLocation(location) }),
  };
}

/** Whether it is the kind of a wish that asks for nothing in particular. */
export function isAny(kind: MemberFilter): boolean {
  return kind === ANY;
}

/**
 * Why no member could ever meet the wish, in words for the client; undefined when one might.
 *
 * Locations of the service are words, so what looks like the code of a country or state and is found in none is
 * refused at once, unless a source says that it could have it.
 */
export function whyImpossible({ source, location }: RoutingOptions, roster: Roster): string | undefined {
  if (source !== undefined && !roster.sources.has(source)) {
    return 'No source of that name is configured; noria status lists the names.';
  }
  if (location === undefined || !looksLikeCode(location)) return undefined;
  if (roster.places.anyHas(foldLocation(location))) return undefined;
  for (const { options } of roster.sources.values()) {
    if (source !== undefined && source !== options.name) continue;
    if (options.couldHaveLocation?.(location) === true) return undefined;
  }
  return (
    'No source of this configuration has members in such a place: locations are words of the service (province, ' +
    'city, carrier), not country codes. Leave the location out, or name one that the list of members shows.'
  );
}

/** Whether a member that the source draws could be of this kind and live so long, as far as it is known. */
export function mightDraw(source: PoolSource, kind: MemberFilter, minLifeMs = 0): boolean {
  if (kind.source !== undefined && kind.source !== source.name) return false;
  if (kind.protocol !== undefined && source.protocols.size > 0 && !source.protocols.has(kind.protocol)) {
    return false;
  }
  if (kind.location !== undefined && source.options.couldHaveLocation?.(kind.location) === false)
    return false;
  return source.longestLifeMs === 0 || minLifeMs <= source.longestLifeMs;
}
