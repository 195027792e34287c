/** Filters: the routing options that a member either always or never satisfies: source, protocol and location. */
import type { MemberProtocol } from '../core/protocol.ts';
import { couldDrawLocation } from './drawable-locations.ts';
import type { RoutingOptions } from './lease.ts';
import { foldLocation } from './locations.ts';
import type { Member, PoolSource } from './member.ts';

/** An absent field allows every member. */
export interface MemberFilter {
  readonly source?: string;
  readonly protocol?: MemberProtocol;
  /** Keyword in lower case. The member's location must contain it. */
  readonly location?: string;
}

/** Passes every member. `filterOf` returns this object when the routing options filter nothing. */
export const ANY_MEMBER: MemberFilter = {};

export function filterOf({ source, protocol, location }: RoutingOptions): MemberFilter {
  const anyLocation = location === undefined || location === '';
  if (source === undefined && protocol === undefined && anyLocation) return ANY_MEMBER;
  return {
    ...(source === undefined ? {} : { source }),
    ...(protocol === undefined ? {} : { protocol }),
    ...(anyLocation ? {} : { location: foldLocation(location) }),
  };
}

export function passesFilter(member: Member, { source, protocol, location }: MemberFilter): boolean {
  return (
    (source === undefined || source === member.source.name) &&
    (protocol === undefined || protocol === member.protocol) &&
    (location === undefined || member.location.folded.includes(location))
  );
}

/** Whether the source could draw a member that passes the filter and lives for `minLifeMs`. Also true if the pool does not know. */
export function couldDraw(source: PoolSource, filter: MemberFilter, minLifeMs = 0): boolean {
  const { options, protocols, longestLifeMs } = source;
  if (filter.source !== undefined && filter.source !== source.name) return false;
  if (filter.protocol !== undefined && protocols.size > 0 && !protocols.has(filter.protocol)) return false;
  const { locationParams = {} } = options;
  if (filter.location !== undefined && couldDrawLocation(locationParams, filter.location) === false)
    return false;
  return longestLifeMs === 0 || minLifeMs <= longestLifeMs;
}
