/** Decodes the parameters of an extraction call into a query for proxies. Source: service-spec, Endpoints 1 to 8. */
import { MINUTE_MS } from '../core/duration.ts';
import type { ExitLedger } from './limits.ts';
import { LOCATIONS, type SandboxLocation } from './locations.ts';
import type { Operation, ProxyProtocol } from './operations.ts';
import type { Condition } from './settings.ts';

/** A protocol, and the label under which the free product reports it. */
interface ProxyKind {
  readonly protocol: ProxyProtocol;
  readonly label: string;
}

/** Which proxies a call requests. For each list, a matching proxy has one of the listed values. */
export interface ExtractionQuery {
  readonly count: number;
  /** The maximum number of new proxies in the answer. Each new proxy has an exit that was never handed out. */
  readonly newAllowed: number;
  /** Whether an existing proxy with this exit may be handed out again. */
  readonly mayRepeat: (exit: string) => boolean;
  readonly kinds: readonly ProxyKind[];
  readonly locations: readonly SandboxLocation[];
  /** Whether the call wants reverse proxies. True: only reverse proxies; false: no reverse proxies; `either`: both kinds. */
  readonly reverse: boolean | 'either';
  /** The minimum remaining life of an existing proxy. It does not apply to reverse proxies. */
  readonly minRemainingMs: number;
  /** The range from which the lifetimes of new proxies are drawn. */
  readonly lifeMs: readonly [min: number, max: number];
  readonly order: 'longest' | 'random';
  readonly levels: readonly number[];
  readonly checkedMinutes: readonly number[];
  readonly responseSeconds: readonly number[];
  readonly minAliveHours: number;
}

/** The minimum life of new proxies when the call allows any life, because a shorter life would be useless. */
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

/** The state of the instance that decides, together with the parameters of the call, which proxies the call gets. */
interface QueryContext {
  readonly ledger: ExitLedger;
  readonly condition: Condition;
  /** The instance's own range of lifetimes. It overrides the parameter `timespan`. */
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
 * Returns the locations that contain a keyword of `adr`, a keyword of `isp` (the carrier), and no keyword of `nadr`. A
 * comma (`,`) separates keywords.
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

/** The lifetimes that `timespan` selects, unless the instance has its own range. */
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

/** Returns the first N values, where N is the number in `selector`. Without a selector, returns all values. */
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
