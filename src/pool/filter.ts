/**
 * Which members satisfy the routing options of a client. A filter has the options that a member either always or never satisfies: source,
 * protocol and location. Anything that noria does not know counts as possible, so that no client is refused by mistake.
 */
import { formatDuration } from '../core/duration.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { RoutingOptions } from './lease.ts';
import {
  couldDrawLocation,
  foldLocation,
  hasLatinLetter,
  type Locations,
  looksLikeCode,
} from './locations.ts';
import type { Member, PoolSource } from './member.ts';

export interface MemberFilter {
  readonly source?: string | undefined;
  readonly protocol?: MemberProtocol | undefined;
  readonly location?: string | undefined;
}

/** `filterOf` returns this object when the routing options filter nothing. */
export const ANY_MEMBER: MemberFilter = {};

export function filterOf(routing: RoutingOptions, source = routing.source): MemberFilter {
  const { protocol, location = '' } = routing;
  if (source === undefined && protocol === undefined && location === '') return ANY_MEMBER;
  return { source, protocol, location: foldLocation(location) };
}

export function passesFilter(member: Member, { source, protocol, location }: MemberFilter): boolean {
  return (
    (source === undefined || source === member.source.name) &&
    (protocol === undefined || protocol === member.protocol) &&
    (location === undefined || member.location.folded.includes(location))
  );
}

/**
 * Undefined if the member is usable, although it may be full. By it, a session leaves its member, and a waiting client needs a draw.
 */
export function whyUnusable(member: Member, filter: MemberFilter, isBanned: boolean): string | undefined {
  const { phase, source } = member;
  if (phase.name === 'draining') return phase.departure.reason;
  if (isBanned) return 'banned';
  if (!passesFilter(member, filter)) return 'routing-options';
  if (phase.name !== 'ready') return phase.name;
  return source.blockedReason === undefined ? undefined : 'source-blocked';
}

/** Reasons of `whyUnusable` that may end during the member's life. */
export const PASSING_REASONS: ReadonlySet<string | undefined> = new Set([
  undefined,
  'joining',
  'quarantined',
  'source-blocked',
]);

export function mayServe(member: Member, filter: MemberFilter, isBanned: boolean): boolean {
  return PASSING_REASONS.has(whyUnusable(member, filter, isBanned));
}

export function couldDraw(source: PoolSource, filter: MemberFilter, minLifeMs = 0): boolean {
  const { options, protocols, longestLifeMs } = source;
  if (filter.source !== undefined && filter.source !== source.name) return false;
  if (filter.protocol !== undefined && protocols.size > 0 && !protocols.has(filter.protocol)) return false;
  const { locationParams = {} } = options;
  if (filter.location !== undefined && couldDrawLocation(locationParams, filter.location) === false)
    return false;
  return longestLifeMs === 0 || minLifeMs <= longestLifeMs;
}

export function couldServe(source: PoolSource, routing: RoutingOptions): boolean {
  return (
    (routing.source === undefined || routing.source === source.name) &&
    couldSpeak(source, routing) &&
    couldLive(source, routing) &&
    couldBeIn(source, routing)
  );
}

/** A text for the client, without any text of the client; undefined if a member may satisfy the options. */
export function whyImpossible(
  routing: RoutingOptions,
  sources: ReadonlyMap<string, PoolSource>,
  locations: Locations,
): string | undefined {
  const { source, protocol, minLifeMs, location = '' } = routing;
  if (source !== undefined && !sources.has(source)) {
    return 'No source with this name is configured. Run noria status to list the sources.';
  }
  if (protocol === undefined && minLifeMs === undefined && location === '') return undefined;
  if (!looksLikeCode(location)) {
    for (const one of sources.values()) if (couldServe(one, routing)) return undefined;
  }
  const named = [...sources.values()].filter(({ name }) => source === undefined || source === name);
  const speaking = named.filter((one) => couldSpeak(one, routing));
  if (speaking.length === 0) {
    return `protocol is ${protocol}, but ${each(named, ({ protocol }) => `members of source %s speak ${protocol}`)}.`;
  }
  const living = speaking.filter((one) => couldLive(one, routing));
  if (living.length === 0) {
    const longest = ({ maxLifetimeMs = 0 }: PoolSource['options']) => formatDuration(maxLifetimeMs);
    const lives = each(speaking, (options) => `members of source %s live for at most ${longest(options)}`);
    return `life is ${formatDuration(minLifeMs ?? 0)}, but ${lives}.`;
  }
  const keyword = foldLocation(location);
  if (locations.values().some(({ folded }) => folded.includes(keyword))) return undefined;
  return whyNowhere(living, routing);
}

function whyNowhere(sources: readonly PoolSource[], routing: RoutingOptions): string | undefined {
  const { location = '' } = routing;
  const advice = 'Omit adr, or use a word of a location; run noria members to list the locations.';
  if (looksLikeCode(location)) {
    if (sources.some(({ options }) => couldDrawLocation(options.locationParams ?? {}, location) === true))
      return undefined;
    return `adr looks like a country code, but locations are words of the service (province, city, carrier). ${advice}`;
  }
  const why = (source: PoolSource) =>
    isForeignScript(source, location)
      ? `source ${source.name} has no location in Latin letters`
      : `source ${source.name} excludes this location by its params (adr or nadr)`;
  const reasons = sources.map(why).join(', ');
  return `adr matches no member that noria could draw: ${reasons}. ${advice}`;
}

function couldSpeak({ options, protocols }: PoolSource, { protocol }: RoutingOptions): boolean {
  if (protocol === undefined || options.protocol === undefined) return true;
  return protocol === options.protocol || protocols.has(protocol);
}

function couldLive({ options, longestLifeMs }: PoolSource, { minLifeMs = 0 }: RoutingOptions): boolean {
  return options.maxLifetimeMs === undefined || minLifeMs <= Math.max(options.maxLifetimeMs, longestLifeMs);
}

function couldBeIn(source: PoolSource, { location }: RoutingOptions): boolean {
  if (location === undefined) return true;
  const known = couldDrawLocation(source.options.locationParams ?? {}, location);
  return known ?? !isForeignScript(source, location);
}

/**
 * The keyword has Latin letters and no location of the source has. Known only after `size` members with a location, and never with
 * locations in several languages.
 */
function isForeignScript({ options, locatedCount, hasLatinLocation }: PoolSource, keyword: string): boolean {
  if (options.mixedLocations === true || hasLatinLocation || locatedCount < options.size) return false;
  return hasLatinLetter(keyword);
}

function each(sources: readonly PoolSource[], clause: (options: PoolSource['options']) => string): string {
  return sources.map(({ name, options }) => clause(options).replace('%s', name)).join(', ');
}
