/** Filters: the part of a client's routing options that a member passes or fails for its whole life. */
import type { MemberProtocol } from '../core/protocol.ts';
import { couldDrawLocation } from './drawable-locations.ts';
import type { RoutingOptions } from './lease.ts';
import { foldLocation } from './locations.ts';
import type { Member, PoolSource } from './member.ts';

/** An absent field allows everything. */
export interface MemberFilter {
  readonly source?: string;
  readonly protocol?: MemberProtocol;
  /** Keyword in lower case that the member's location contains. */
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

/** Whether a member that the source draws could pass the filter and live for `minLifeMs`, as far as the pool knows. */
export function couldDraw(source: PoolSource, filter: MemberFilter, minLifeMs = 0): boolean {
  const { options, protocols, longestLifeMs } = source;
  if (filter.source !== undefined && filter.source !== source.name) return false;
  if (filter.protocol !== undefined && protocols.size > 0 && !protocols.has(filter.protocol)) return false;
  const { locationParams = {} } = options;
  if (filter.location !== undefined && couldDrawLocation(locationParams, filter.location) === false)
    return false;
  return longestLifeMs === 0 || minLifeMs <= longestLifeMs;
}
