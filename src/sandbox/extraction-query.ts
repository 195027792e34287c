/**
 * Decodes the parameters of an operation to a query for proxies. Source: service-spec, Endpoints 1 to 8.
 */
import type { ExitLedger } from './limits.ts';
import { LOCATIONS, type SandboxLocation } from './locations.ts';
import type { Operation, ProxyProtocol } from './operations.ts';
import type { Condition } from './settings.ts';

/** The protocol of a proxy, and the free product's label for it. */
export interface ProxyKind {
  readonly protocol: ProxyProtocol;
  readonly label: string;
}

/** The proxies that a call requests. A list contains the values that a matching proxy may have. */
export interface ExtractionQuery {
  readonly count: number;
  /** How many of the proxies may have a new exit. */
  readonly newAllowed: number;
  /** Whether a proxy that was handed out before may be handed out again. Its exit identifies it. */
  readonly mayRepeat: (exit: string) => boolean;
  readonly kinds: readonly ProxyKind[];
  readonly locations: readonly SandboxLocation[];
  /** True: only reverse proxies; false: none; `either`: both kinds. */
  readonly reverse: boolean | 'either';
  /** The minimum remaining life of an existing proxy. It does not apply to reverse proxies. */
  readonly minRemainingMs: number;
  /** The range of lifetimes of new proxies. */
  readonly lifeMs: readonly [min: number, max: number];
  readonly order: 'longest' | 'random';
  readonly levels: readonly number[];
  readonly checkedMinutes: readonly number[];
  readonly responseSeconds: readonly number[];
  readonly minAliveHours: number;
}

const MINUTE_MS = 60_000;
/** The minimum life of a new proxy with `timespan` 0, which allows any life: shorter ones would be useless. */
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

/** The properties of an instance that limit which proxies a call gets. */
export interface QueryContext {
  readonly ledger: ExitLedger;
  readonly condition: Condition;
  /** The instance's own range of lives. It overrides `timespan`. */
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
 * Returns the locations that contain a keyword of `adr`, a keyword of `isp` (the carrier), and no keyword of `nadr`.
 * Keywords are separated by half-width commas.
 */
function locationsOf(params: URLSearchParams): readonly SandboxLocation[] {
  const region = params.get('dalu') === '0' ? 'overseas' : 'mainland'; // only free proxies are abroad
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

/** The range of lives by `timespan`, unless the instance has its own range. */
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

/** The values up to the one that a selector (counted from 1) names; all values if there is no selector. */
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
