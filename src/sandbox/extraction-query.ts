/**
 * Which proxies a call asks for: the parameters of an operation in the sandbox's own words.
 * Source: service-spec, Endpoints 1 to 8.
 */
import type { ExitLedger } from './limits.ts';
import { LOCATIONS, type SandboxLocation } from './locations.ts';
import type { Operation, ProxyProtocol } from './operations.ts';
import type { Condition } from './settings.ts';

/** What a proxy speaks, and what the free product calls it. */
export interface ProxyKind {
  readonly protocol: ProxyProtocol;
  readonly label: string;
}

/** Which proxies a call asks for; a list names what is allowed. */
export interface ExtractionQuery {
  readonly count: number;
  /** How many of them may be new ones. */
  readonly newAllowed: number;
  /** Whether one that was handed out before, known by its exit, may be handed out again. */
  readonly mayRepeat: (exit: string) => boolean;
  readonly kinds: readonly ProxyKind[];
  readonly locations: readonly SandboxLocation[];
  /** Reverse proxies: only, never, or as it comes. */
  readonly reverse: boolean | 'either';
  /** The least life left of those that exist; reverse ones are not bound by it. */
  readonly leastRemainingMs: number;
  /** How long new ones live. */
  readonly lifeMs: readonly [least: number, most: number];
  readonly order: 'longest' | 'random';
  readonly levels: readonly number[];
  readonly checkedMinutes: readonly number[];
  readonly responseSeconds: readonly number[];
  readonly leastAliveHours: number;
}

const MINUTE_MS = 60_000;
/** No proxy is made with less than this, so that one of `timespan` 0 is of use to somebody. */
const SHORTEST_LIFE_MS = 60_000;

const FREE_KINDS: Readonly<Record<string, ProxyKind>> = {
  '1': { protocol: 'http', label: 'http' },
  '2': { protocol: 'socks4', label: 'socks4' },
  '3': { protocol: 'socks5', label: 'socks5' },
  '4': { protocol: 'http', label: 'https' },
};
const CHECKED_MINUTES = [1, 10, 30, 60, 90] as const;
const RESPONSE_SECONDS = [1, 3, 5, 10, 15] as const;
const ALIVE_HOURS = [1 / 6, 1 / 2, 1, 3, 10, 24, 48] as const;

/** What of an instance bears on which proxies it may have. */
export interface QueryContext {
  readonly ledger: ExitLedger;
  readonly condition: Condition;
  /** Its own lives, which win over `timespan`. */
  readonly lifetimeMs: number | readonly [least: number, most: number] | undefined;
}

/** The parameters in the sandbox's own words. */
export function readExtractionQuery(
  { operation, params }: { readonly operation: Operation; readonly params: URLSearchParams },
  { ledger, condition, lifetimeMs }: QueryContext,
  count: number,
): ExtractionQuery {
  const onlyNew = params.get('fitter') === '1' || params.get('dedup') === '1';
  return {
    count,
    newAllowed: operation.counters === undefined ? count : ledger.distinctLeft(condition),
    mayRepeat: (exit) => !onlyNew || !ledger.drawnToday(exit),
    kinds: kindsOf(operation, params),
    locations: placesOf(params),
    reverse: reverseOf(params.get('tunnel')),
    ...livesOf(operation, params, lifetimeMs),
    order: params.get('order') === '1' ? 'longest' : 'random',
    levels: chosen([1, 2, 3, 4, 5], params.get('level_type'), (level, wanted) => level === wanted),
    checkedMinutes: upTo(CHECKED_MINUTES, params.get('lastcheck_type')),
    responseSeconds: upTo(RESPONSE_SECONDS, params.get('sleep_type')),
    leastAliveHours: ALIVE_HOURS[Number(params.get('alive_type') ?? 0) - 1] ?? 0,
  };
}

function kindsOf({ protocol }: Operation, params: URLSearchParams): readonly ProxyKind[] {
  if (protocol === 'pro') {
    return params.get('pro') === '2'
      ? [{ protocol: 'socks5', label: 'socks5' }]
      : [{ protocol: 'http', label: 'http' }];
  }
  if (protocol !== 'mixed') return [{ protocol, label: protocol }];
  const kind = FREE_KINDS[params.get('protocol_type') ?? ''];
  return kind === undefined ? Object.values(FREE_KINDS) : [kind];
}

/** Keywords are half-width comma separated; a place fits when it holds one of `adr`, the carrier, and none of `nadr`. */
function placesOf(params: URLSearchParams): readonly SandboxLocation[] {
  const region = params.get('dalu') === '0' ? 'overseas' : 'mainland'; // only free proxies are elsewhere
  const words = (name: string) => (params.get(name) ?? '').split(',').filter((word) => word !== '');
  const [wanted, carriers, unwanted] = [words('adr'), words('isp'), words('nadr')];
  const holds = (place: SandboxLocation, keywords: readonly string[]) =>
    keywords.some((word) => place.adr.includes(word));
  return LOCATIONS.filter(
    (place) =>
      place.region === region &&
      (wanted.length === 0 || holds(place, wanted)) &&
      (carriers.length === 0 || holds(place, carriers)) &&
      !holds(place, unwanted),
  );
}

function reverseOf(tunnel: string | null): ExtractionQuery['reverse'] {
  if (tunnel === '1') return 'either';
  return tunnel === '3';
}

/** Lives of new proxies, and what must be left of old ones: by `timespan`, unless the instance sets its own. */
function livesOf(
  { timespan, longestMinutes }: Operation,
  params: URLSearchParams,
  own: number | readonly [number, number] | undefined,
): Pick<ExtractionQuery, 'leastRemainingMs' | 'lifeMs'> {
  if (own !== undefined) {
    return { leastRemainingMs: 0, lifeMs: typeof own === 'number' ? [own, own] : own };
  }
  const leastMs = timespan === undefined ? 0 : Number(params.get('timespan') ?? 0) * MINUTE_MS;
  const mostMs = (timespan?.topMinutes ?? longestMinutes) * MINUTE_MS;
  return { leastRemainingMs: leastMs, lifeMs: [Math.max(leastMs, SHORTEST_LIFE_MS), mostMs] };
}

/** The values up to the one that a selector from 1 names; all where it is left out. */
function upTo(values: readonly number[], selector: string | null): readonly number[] {
  return chosen(values, selector, (value, wanted) => values.indexOf(value) < wanted);
}

function chosen(
  values: readonly number[],
  selector: string | null,
  keeps: (value: number, wanted: number) => boolean,
): readonly number[] {
  return selector === null || selector === ''
    ? values
    : values.filter((value) => keeps(value, Number(selector)));
}
