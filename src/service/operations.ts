/**
 * The ten operations of the extraction service and the links of other vendors, as a table. Source: the specification,
 * "Endpoints" and "Limits"; where it names no lifetime or interval, the table contains an assumption (docs/service.md
 * lists them).
 */
import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { WireField } from './fields.ts';

const ADR: OperationParam = {
  kind: 'keywords',
  about: 'the location: keywords for province, city or carrier',
};
const FITTER: OperationParam = {
  kind: 'choice',
  values: { 1: 'exclude exit IPs already drawn today', 2: 'no filter' },
  default: 2,
  about: 'which exit IPs a draw may return',
};
const TUNNEL: OperationParam = {
  kind: 'choice',
  values: { 1: 'both public and reverse-proxy IPs', 2: 'public IPs only', 3: 'reverse-proxy IPs only' },
  default: 1,
  about: 'the kind of IP: public, reverse-proxy (with an unknown lifetime), or both',
};
const PRO: OperationParam = {
  kind: 'choice',
  values: { 1: 'HTTP(S)', 2: 'SOCKS5' },
  default: 1,
  about: 'the protocol of the members',
};
const ORDER: OperationParam = {
  kind: 'choice',
  values: { 1: 'longest remaining lifetime first', 2: 'random' },
  default: 2,
  about: 'the order of the proxies',
};

/** The parameter for the minimum lifetime in minutes. Its default is the smallest allowed value. */
function timespan(from: number, to: number, maxLifetime: string): OperationParam {
  return {
    kind: 'whole',
    from,
    to,
    default: from,
    about: `the minimum remaining lifetime of drawn IPs in minutes; no drawn IP lives longer than ${maxLifetime} minutes`,
  };
}

const BY_TYPE = { name: 'type', text: 1, xml: 2, json: 3 } as const;
const BY_API = { name: 'api', key: 'akey' } as const;
const LIMIT_BY_INSTANCE = { defaultMax: 5 } as const;
const NO_LIFETIME = { byTimespan: false, atLeastMs: MINUTE_MS } as const;

/** What most operations have in common. */
const DRAW = {
  server: 'base',
  identity: BY_API,
  selector: BY_TYPE,
  count: LIMIT_BY_INSTANCE,
  minIntervalMs: SECOND_MS,
  defaultIntervalMs: 10 * SECOND_MS,
  defaultLifetime: { byTimespan: true, atLeastMs: MINUTE_MS },
} as const satisfies Partial<DrawOperation>;

const RESIDENTIAL = {
  ...DRAW,
  params: { adr: ADR, fitter: FITTER, timespan: timespan(6, 29, '30'), tunnel: TUNNEL },
  defaultLifetime: { byTimespan: true, atLeastMs: 0 },
  maxLifetimeMinutes: 30,
  fields: ['ip', 'port', 'adr', 'outip', 'timeout', 'cometime'],
} as const satisfies Partial<DrawOperation>;

const SHORT_LIVED = {
  ...DRAW,
  params: { adr: ADR, timespan: timespan(0, 5, '6') },
  minIntervalMs: 10 * SECOND_MS,
  maxLifetimeMinutes: 6,
  fields: ['ip', 'port', 'adr', 'timeout', 'cometime'],
} as const satisfies Partial<DrawOperation>;

const OTHER = {
  number: 'link',
  server: 'url',
  params: {},
  count: LIMIT_BY_INSTANCE,
  minIntervalMs: 100,
  defaultLifetime: NO_LIFETIME,
  protocol: 'by-entry',
  fields: ['ip', 'port', 'protocol', 'adr', 'outip', 'timeout'],
} as const satisfies DrawRow & { server: 'url' };

export const OPERATIONS: Readonly<
  Record<Product, DrawOperation> & {
    readonly [Name in OtherProduct]: DrawRow & { readonly number: 'link'; readonly server: 'url' };
  } & Record<ListName, ListOperation>
> = {
  'long-residential': { number: 1, path: '/PrivateProxy/GetIP/', ...RESIDENTIAL, protocol: 'http' },
  shared: {
    ...DRAW,
    number: 2,
    path: '/CotenancyProxy/GetIP/',
    params: {
      adr: ADR,
      nadr: { kind: 'keywords', about: 'locations to exclude: keywords for province, city or carrier' },
      pro: PRO,
      // Instead of a range, the specification says only "timespan-10 minutes". Its sample request omits `timespan`, so
      // noria sends it only if the source sets it.
      timespan: {
        kind: 'whole',
        from: 0,
        to: 10,
        about:
          'the minimum remaining lifetime of drawn IPs in minutes; no drawn IP lives longer than 10 minutes',
      },
      order: ORDER,
    },
    maxLifetimeMinutes: 10,
    protocol: 'by-pro',
    fields: ['ip', 'port', 'adr', 'timeout', 'cometime'],
  },
  'short-socks5': { number: 3, path: '/ShortS5Proxy/GetIP/', ...SHORT_LIVED, protocol: 'socks5' },
  'short-classic': { number: 4, path: '/ShortProxy/GetIP/', ...SHORT_LIVED, protocol: 'http' },
  'residential-socks5': { number: 5, path: '/PrivateS5Proxy/GetIP/', ...RESIDENTIAL, protocol: 'socks5' },
  'short-pure': {
    ...DRAW,
    number: 6,
    path: '/GetIP/',
    server: 'extract-host',
    identity: { name: 'inst_id', key: 'akey' },
    params: {
      adr: ADR,
      dedup: {
        kind: 'choice',
        values: { 0: 'no filter', 1: 'exclude IPs already drawn today' },
        default: 0,
        about: 'which IPs a draw may return',
      },
      timespan: timespan(1, 5, '6'),
    },
    selector: { name: 'type', text: 1, json: 2, xml: 3 }, // In this operation, 2 is json and 3 is xml. In all other operations, 2 is xml and 3 is json.
    minIntervalMs: 100, // The service allows at most ten calls per second.
    maxLifetimeMinutes: 6,
    protocol: 'http',
    fields: ['ip', 'port', 'adr', 'out_ip', 'expired_seconds', 'is_new_dedup'],
  },
  free: {
    ...DRAW,
    number: 7,
    path: '/FreeProxy/Get/',
    identity: { name: 'app_id', key: 'akey' },
    params: {
      adr: ADR,
      dalu: {
        kind: 'choice',
        values: { 0: 'overseas', 1: 'mainland' },
        default: 1,
        about: 'the region of the proxies',
      },
      protocol_type: {
        kind: 'choice',
        values: { 1: 'http', 2: 'socks4', 3: 'socks5', 4: 'https' },
        about: 'the protocol of the proxies',
      },
      level_type: {
        kind: 'choice',
        values: {
          1: 'high anonymity',
          2: 'ordinary anonymity',
          3: 'anonymous',
          4: 'transparent',
          5: 'unknown',
        },
        about: 'the anonymity level',
      },
      isp: { kind: 'label', about: 'the carrier, as the service labels it' },
      lastcheck_type: {
        kind: 'choice',
        values: { 1: '1 minute', 2: '10 minutes', 3: '30 minutes', 4: '1 hour', 5: '1.5 hours' },
        about: 'the maximum time since the service verified the proxy',
      },
      sleep_type: {
        kind: 'choice',
        values: { 1: '1 s', 2: '3 s', 3: '5 s', 4: '10 s', 5: '15 s' },
        about: 'the maximum response time of the proxy',
      },
      alive_type: {
        kind: 'choice',
        values: {
          1: '10 minutes',
          2: '30 minutes',
          3: '1 hour',
          4: '3 hours',
          5: '10 hours',
          6: '24 hours',
          7: '48 hours',
        },
        about: 'the minimum time for which the proxy has been alive',
      },
    },
    selector: { name: 'return_type', text: 1, xml: 2, json: 3 },
    count: { max: 100, defaultMax: 20 },
    defaultLifetime: NO_LIFETIME,
    protocol: 'by-entry',
    fields: ['ip', 'port', 'adr', 'protocol', 'level'],
  },
  exclusive: {
    ...DRAW,
    number: 8,
    path: '/ExclusiveProxy/GetIP/',
    params: { adr: ADR, pro: PRO, order: ORDER },
    defaultLifetime: NO_LIFETIME,
    protocol: 'by-pro',
    fields: ['ip', 'port', 'adr', 'timeout', 'cometime', 'area', 'id', 'lastscore', 'yestodayscore'],
  },
  link: OTHER,
  gateway: { ...OTHER, count: { defaultMax: 100 }, minIntervalMs: 0 },
  list: { ...OTHER, minIntervalMs: SECOND_MS },
  areas: {
    number: 9,
    path: '/ExclusiveProxy/GetAddibleServerList/',
    server: 'base',
    identity: BY_API,
    params: {
      areaKeyword: { kind: 'keywords', about: 'keywords that select the area lines to list' },
    },
    listField: 'serverList',
    fields: { area: 'string', count: 'integer', score: 'integer' },
  },
  instances: {
    number: 10,
    path: '/ExclusiveProxy/GetInstanceList/',
    server: 'base',
    identity: { name: 'username', key: 'password' },
    params: {
      status: {
        kind: 'choice',
        values: { 1: 'near expiry', 2: 'not expired', 3: 'expired' },
        about: 'which instances the answer contains',
      },
    },
    listField: 'instance_list',
    fields: {
      instanceId: 'string',
      status: 'string',
      createTime: 'string',
      expirationTime: 'string',
      serverMaxCount: 'integer',
      serverCount: 'integer',
      resetPeriod: 'integer',
      authorizationMode: 'integer',
    },
  },
};

export const PRODUCTS = [
  'long-residential',
  'shared',
  'short-socks5',
  'short-classic',
  'residential-socks5',
  'short-pure',
  'free',
  'exclusive',
] as const;

export type Product = (typeof PRODUCTS)[number];

/** Sources that are not the service: an extraction link, a vendor's gateway, a list that somebody keeps. */
const OTHER_PRODUCTS = ['link', 'gateway', 'list'] as const;
type OtherProduct = (typeof OTHER_PRODUCTS)[number];

export const SOURCE_PRODUCTS = [...PRODUCTS, ...OTHER_PRODUCTS] as const;

export type SourceProduct = (typeof SOURCE_PRODUCTS)[number];
export type OperationNumber = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10;
/** The operation in which the service uses a code. The same code may have another meaning in another operation. */
export type CodeScope = OperationNumber | 'link';

export const FORMATS = ['json', 'xml', 'text'] as const;
export type Format = (typeof FORMATS)[number];

export const METHODS = ['GET', 'POST'] as const;
export type Method = (typeof METHODS)[number];

export const INSTANCE_STATUSES = { 'near-expiry': 1, active: 2, expired: 3 } as const;
export type InstanceStatus = keyof typeof INSTANCE_STATUSES;

/** `about` is the end of a sentence: "timespan is the minimum lifetime". */
export type OperationParam = {
  /** The value that noria sends if a source does not set the parameter. Every required parameter has a default. */
  readonly default?: number;
  readonly about: string;
} & (
  | { readonly kind: 'whole'; readonly from: number; readonly to: number }
  /** A number that selects one of several meanings. `values` lists all numbers and their meanings. */
  | { readonly kind: 'choice'; readonly values: Readonly<Record<number, string>> }
  | { readonly kind: 'keywords' }
  | { readonly kind: 'label' }
);

export interface DrawRow {
  readonly number: CodeScope;
  readonly params: Readonly<Record<string, OperationParam>>;
  readonly count: { readonly max?: number; readonly defaultMax: number };
  /** The minimum time in ms from the start of one call to the start of the next. */
  readonly minIntervalMs: number;
  /** The interval between calls, in ms, that the service recommends. If absent, the source must set an interval. */
  readonly defaultIntervalMs?: number;
  /** If the answer contains none: `atLeastMs`, or with `byTimespan` the parameter `timespan`, if that is longer. */
  readonly defaultLifetime: { readonly byTimespan: boolean; readonly atLeastMs: number };
  readonly maxLifetimeMinutes?: number;
  /** `by-pro`: the parameter `pro` selects it. `by-entry`: each entry names its own. */
  readonly protocol: MemberProtocol | 'by-pro' | 'by-entry';
  readonly fields: readonly WireField[];
}

interface OperationRow {
  readonly number: OperationNumber;
  readonly path: string;
  /** The parameters for the id of the instance or account, and for the key. */
  readonly identity: { readonly name: string; readonly key: string };
  readonly params: Readonly<Record<string, OperationParam>>;
}

export interface DrawOperation extends OperationRow, DrawRow {
  readonly number: OperationNumber;
  /** `base`: {base_url} of the specification. `extract-host`: the instance's own extraction server. */
  readonly server: 'base' | 'extract-host';
  readonly selector: { readonly name: string } & Readonly<Record<Format, number>>;
  readonly defaultIntervalMs: number;
}

export interface ListOperation extends OperationRow {
  readonly server: 'base';
  readonly listField: string;
  readonly fields: Readonly<Record<string, 'string' | 'integer'>>;
}

export type ListName = 'areas' | 'instances';

/** From when noria sent the request. @param params - the result of `checkParams`, as below. */
export function defaultLifetimeMs(product: SourceProduct, params: Readonly<Record<string, unknown>>): number {
  const { byTimespan, atLeastMs } = OPERATIONS[product].defaultLifetime;
  const minutes = byTimespan ? params['timespan'] : undefined;
  return Math.max(atLeastMs, typeof minutes === 'number' ? minutes * MINUTE_MS : 0);
}

export function maxLifetimeMs(
  product: SourceProduct,
  params: Readonly<Record<string, unknown>>,
): number | undefined {
  const { maxLifetimeMinutes, params: known }: DrawRow = OPERATIONS[product];
  if (maxLifetimeMinutes === undefined) return undefined;
  const hasReverseProxies = Object.hasOwn(known, 'tunnel') && params['tunnel'] !== 2;
  return hasReverseProxies ? undefined : maxLifetimeMinutes * MINUTE_MS;
}

export function memberProtocol(
  product: SourceProduct,
  params: Readonly<Record<string, unknown>>,
): MemberProtocol {
  const { protocol: speaks } = OPERATIONS[product];
  if (speaks === 'by-pro') return params['pro'] === 2 ? 'socks5' : 'http';
  if (speaks !== 'by-entry') return speaks;
  const chosen = params['protocol_type'];
  return chosen === 2 ? 'socks4' : chosen === 3 ? 'socks5' : 'http';
}
