/**
 * Decodes the parameters of an extraction call into a query for proxies. Source: the service's specification, Endpoints
 * 1 to 8.
 */
import { MINUTE_MS } from '../core/duration.ts';
import type { ExitLedger } from './limits.ts';
import { LOCATIONS, type SandboxLocation } from './locations.ts';
import type { Operation, ProxyProtocol } from './operations.ts';
import type { Condition } from './settings.ts';

/** A protocol, and its name in the answers of the free product. */
interface ProxyKind {
  readonly protocol: ProxyProtocol;
  readonly label: string;
}

/** The proxies that a call asks for. A proxy must have one value of each list, for example one of the `kinds`. */
export interface ExtractionQuery {
  readonly count: number;
  /** The maximum number of new proxies in the answer. A new proxy has an exit that was never handed out. */
  readonly newAllowed: number;
  /** Whether an existing proxy with this exit may be handed out again. */
  readonly mayRepeat: (exit: string) => boolean;
  readonly kinds: readonly ProxyKind[];
  readonly locations: readonly SandboxLocation[];
  /** The kind of proxies. True: only reverse proxies; false: no reverse proxies; `either`: both. */
  readonly reverse: boolean | 'either';
  /** The minimum remaining life of an existing proxy that is handed out again. It does not apply to reverse proxies. */
  readonly minRemainingMs: number;
  /** The range of the lifetimes of new proxies. */
  readonly lifeMs: readonly [min: number, max: number];
  readonly order: 'longest' | 'random';
  readonly levels: readonly number[];
  readonly checkedMinutes: readonly number[];
  readonly responseSeconds: readonly number[];
  readonly minAliveHours: number;
}

/** The minimum life of new proxies if the call sets none. Proxies with a shorter life would be useless. */
const MIN_LIFE_MS = 60_000;

const FREE_KINDS: Readonly<Record<string, ProxyKind>> = {
  '1': { protocol: 'http', label: 'http' },
  '2': { protocol: 'socks4', label: 'socks4' },
  '3': { protocol: 'socks5', label: 'socks5' },
  '4': { protocol: 'http', label: 'https' },
};
const CHECKED_MINUTES = [1, 10, 30, 60, 90] as const;
const RESPONSE_SECONDS = [1, 3, 5, 10, 15] as const;
const ALIVE_HOURS = [1 / 6, 1 / 2, 1, 3, 10, 24, 48] as const;

/** The facts about an instance that decide, with the call's parameters, which proxies the call gets. */
interface QueryContext {
  readonly ledger: ExitLedger;
  readonly condition: Condition;
  /** The range of lifetimes in the settings of the instance. It overrides the parameter `timespan`. */
  readonly lifetimeMs: number | readonly [min: number, max: number] | undefined;
}

export function readExtractionQuery(
  { operation, params }: { readonly operation: Operation; readonly params: URLSearchParams },
  { ledger, condition, lifetimeMs }: QueryContext,
  count: number,
): ExtractionQuery {
  const onlyNew = params.get('fitter') === '1' || params.get('dedup') === '1';
  return {
    count,
    newAllowed: operation.counters === undefined ? count : ledger.distinctLeft(condition),
    mayRepeat: (exit) => !onlyNew || !ledger.wasDrawnToday(exit),
    kinds: kindsOf(operation, params),
    locations: locationsOf(params),
    reverse: reverseOf(params.get('tunnel')),
    ...livesOf(operation, params, lifetimeMs),
    order: params.get('order') === '1' ? 'longest' : 'random',
    levels: select([1, 2, 3, 4, 5], params.get('level_type'), (level, selected) => level === selected),
    checkedMinutes: upTo(CHECKED_MINUTES, params.get('lastcheck_type')),
    responseSeconds: upTo(RESPONSE_SECONDS, params.get('sleep_type')),
    minAliveHours: ALIVE_HOURS[Number(params.get('alive_type') ?? 0) - 1] ?? 0,
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

/**
 * Returns the locations that the parameters select. Each parameter is a list of keywords, separated by commas. A
 * location must contain a keyword of `adr` and a keyword of `isp` (the carrier), if these are present, and no keyword
 * of `nadr`.
 */
function locationsOf(params: URLSearchParams): readonly SandboxLocation[] {
  const region = params.get('dalu') === '0' ? 'overseas' : 'mainland'; // only the free product has the parameter `dalu`
  const words = (name: string) => (params.get(name) ?? '').split(',').filter((word) => word !== '');
  const [included, carriers, excluded] = [words('adr'), words('isp'), words('nadr')];
  const contains = ({ adr }: SandboxLocation, keywords: readonly string[]) =>
    keywords.some((word) => adr.includes(word));
  return LOCATIONS.filter(
    (location) =>
      location.region === region &&
      (included.length === 0 || contains(location, included)) &&
      (carriers.length === 0 || contains(location, carriers)) &&
      !contains(location, excluded),
  );
}

function reverseOf(tunnel: string | null): ExtractionQuery['reverse'] {
  if (tunnel === '1') return 'either';
  return tunnel === '3';
}

/** Returns the lifetimes in the instance's settings or, without these, those that `timespan` selects. */
function livesOf(
  { parameters, longestMinutes }: Operation,
  params: URLSearchParams,
  own: QueryContext['lifetimeMs'],
): Pick<ExtractionQuery, 'minRemainingMs' | 'lifeMs'> {
  if (own !== undefined) return { minRemainingMs: 0, lifeMs: typeof own === 'number' ? [own, own] : own };
  const hasTimespan = parameters.some(({ name }) => name === 'timespan');
  const minMs = hasTimespan ? Number(params.get('timespan') ?? 0) * MINUTE_MS : 0;
  return { minRemainingMs: minMs, lifeMs: [Math.max(minMs, MIN_LIFE_MS), longestMinutes * MINUTE_MS] };
}

/** Returns the first N of `values`, where N is the number in `selector`. Without a selector, returns all of them. */
function upTo(values: readonly number[], selector: string | null): readonly number[] {
  return select(values, selector, (value, selected) => values.indexOf(value) < selected);
}

function select(
  values: readonly number[],
  selector: string | null,
  keeps: (value: number, selected: number) => boolean,
): readonly number[] {
  return selector === null || selector === ''
    ? values
    : values.filter((value) => keeps(value, Number(selector)));
}
