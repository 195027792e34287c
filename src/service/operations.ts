/**
 * The ten operations of the extraction service, and the extraction links of other vendors, as a table. The client, the
 * checks of `params`, the pace of refill and docs/service.md use it. To add an operation, add a row.
 *
 * Source: the service's specification, sections "Endpoints" and "Limits". Where it names no lifetime or pace, noria
 * chose one (docs/service.md lists them).
 */
import type { MemberProtocol } from '../core/protocol.ts';
import type { WireField } from './fields.ts';

/** The products, as the key `product` of a source names them. Each has one extraction operation. */
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

/** Everything that a source can draw from. `link` is an extraction link of any vendor. */
export const SOURCE_PRODUCTS = [...PRODUCTS, 'link'] as const;

export type SourceProduct = (typeof SOURCE_PRODUCTS)[number];
export type OperationNumber = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10;
/** The scope of a code: its meaning may differ between operations. */
export type CodeScope = OperationNumber | 'link';

export const FORMATS = ['json', 'xml', 'text'] as const;
export type Format = (typeof FORMATS)[number];

export const METHODS = ['GET', 'POST'] as const;
export type Method = (typeof METHODS)[number];

/** The values of `noria instances --status`, and the numbers that operation 10 uses for them. */
export const INSTANCE_STATUSES = { 'near-expiry': 1, active: 2, expired: 3 } as const;
export type InstanceStatus = keyof typeof INSTANCE_STATUSES;

/** One parameter of an operation. `about` completes the sentence "NAME is …". */
export type OperationParam = {
  /** The value that noria sends when a source does not set the parameter. Every required parameter has a default. */
  readonly default?: number;
  readonly about: string;
} & (
  | { readonly kind: 'whole'; readonly from: number; readonly to: number }
  /** One of a few numbers; each has a meaning. */
  | { readonly kind: 'choice'; readonly values: Readonly<Record<number, string>> }
  /** Keywords: a list, or a text with half-width commas. */
  | { readonly kind: 'keywords' }
  /** A label in the service's spelling. */
  | { readonly kind: 'label' }
);

/** What refill and the configuration need to know of everything that noria can draw from. */
export interface DrawRow {
  readonly number: CodeScope;
  /** All parameters other than the instance, its key, `count` and the format selector. */
  readonly params: Readonly<Record<string, OperationParam>>;
  readonly count: {
    /** The maximum number of proxies per call. Absent: each instance has its own maximum. */
    readonly max?: number;
    /** The maximum number of proxies that noria requests per call when the source sets none. */
    readonly defaultMax: number;
  };
  /** The minimum time from the start of one call to the start of the next. */
  readonly minIntervalMs: number;
  /** The recommended interval between calls; absent: the source must set it. */
  readonly defaultIntervalMs?: number;
  /** The lifetime of an entry that names none: `timespan` minutes (with `byTimespan`), but at least `atLeastMs`. */
  readonly defaultLifetime: { readonly byTimespan: boolean; readonly atLeastMs: number };
  /** The longest lifetime of a drawn IP, in minutes; absent: unknown. */
  readonly longestLifeMinutes?: number;
  /** The protocol of the members: fixed, selected by the parameter `pro`, or named by each entry. */
  readonly protocol: MemberProtocol | 'by-pro' | 'by-entry';
  /** The fields of an entry, which a custom Text layout may use. */
  readonly fields: readonly WireField[];
}

interface OperationRow {
  readonly number: OperationNumber;
  /** Relative to the base address. The trailing slash is required. */
  readonly path: string;
  /** The names of the parameters for the instance (or account) and its key. */
  readonly identity: { readonly name: string; readonly key: string };
  /** All parameters other than `identity`, `count` and the format selector. */
  readonly params: Readonly<Record<string, OperationParam>>;
}

/** An operation that draws proxies: 1 to 8. */
export interface DrawOperation extends OperationRow, DrawRow {
  readonly number: OperationNumber;
  readonly params: Readonly<Record<string, OperationParam>>;
  /** `base`: {base_url}. `extract-host`: the instance's own extraction server. */
  readonly server: 'base' | 'extract-host';
  /** The parameter that selects the format, and its values. */
  readonly selector: { readonly name: string } & Readonly<Record<Format, number>>;
  readonly defaultIntervalMs: number;
}

/** An extraction link. Its URL replaces the path and the parameters of an operation. */
export interface LinkOperation extends DrawRow {
  readonly number: 'link';
  readonly server: 'url';
}

/** An operation that returns a list in JSON: 9 and 10. */
export interface ListOperation extends OperationRow {
  readonly server: 'base';
  /** The field of the answer that contains the list. */
  readonly listField: string;
  /** The fields of a record and their types. The first one is required. */
  readonly fields: Readonly<Record<string, 'string' | 'integer'>>;
}

export type ListName = 'areas' | 'instances';

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;

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
  values: { 1: 'public and reverse-proxy IPs', 2: 'public IPs only', 3: 'reverse-proxy IPs only' },
  default: 1,
  about: 'the kind of IP',
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
  about: 'the order',
};

/** The parameter for the minimum lifetime in minutes. Its smallest value is the default. */
function timespan(from: number, to: number, maxLifetime: string): OperationParam {
  return {
    kind: 'whole',
    from,
    to,
    default: from,
    about: `the minimum remaining lifetime in minutes; drawn IPs have from this to ${maxLifetime} minutes left`,
  };
}

const BY_TYPE = { name: 'type', text: 1, xml: 2, json: 3 } as const;
const BY_API = { name: 'api', key: 'akey' } as const;
const LIMIT_BY_INSTANCE = { defaultMax: 5 } as const;

const RESIDENTIAL = {
  server: 'base',
  identity: BY_API,
  params: { adr: ADR, fitter: FITTER, timespan: timespan(6, 29, '30'), tunnel: TUNNEL },
  selector: BY_TYPE,
  minIntervalMs: SECOND_MS,
  defaultIntervalMs: 10 * SECOND_MS,
  defaultLifetime: { byTimespan: true, atLeastMs: 0 },
  longestLifeMinutes: 30,
  fields: ['ip', 'port', 'adr', 'outip', 'timeout', 'cometime'],
} as const satisfies Partial<DrawOperation>;

const SHORT_LIVED = {
  server: 'base',
  identity: BY_API,
  params: { adr: ADR, timespan: timespan(0, 5, '6') },
  selector: BY_TYPE,
  count: LIMIT_BY_INSTANCE,
  minIntervalMs: 10 * SECOND_MS,
  defaultIntervalMs: 10 * SECOND_MS,
  defaultLifetime: { byTimespan: true, atLeastMs: MINUTE_MS },
  longestLifeMinutes: 6,
  fields: ['ip', 'port', 'adr', 'timeout', 'cometime'],
} as const satisfies Partial<DrawOperation>;

export const OPERATIONS: Readonly<
  Record<Product, DrawOperation> & Record<'link', LinkOperation> & Record<ListName, ListOperation>
> = {
  'long-residential': {
    number: 1,
    path: '/PrivateProxy/GetIP/',
    ...RESIDENTIAL,
    count: LIMIT_BY_INSTANCE,
    protocol: 'http',
  },
  shared: {
    number: 2,
    path: '/CotenancyProxy/GetIP/',
    server: 'base',
    identity: BY_API,
    params: {
      adr: ADR,
      nadr: { kind: 'keywords', about: 'excluded locations: keywords' },
      pro: PRO,
      // The specification gives no range, only "timespan-10 minutes", and its sample request does not send it.
      timespan: {
        kind: 'whole',
        from: 0,
        to: 10,
        about: 'the minimum remaining lifetime in minutes; drawn IPs have from this to 10 minutes left',
      },
      order: ORDER,
    },
    selector: BY_TYPE,
    count: LIMIT_BY_INSTANCE,
    minIntervalMs: SECOND_MS,
    defaultIntervalMs: 10 * SECOND_MS,
    defaultLifetime: { byTimespan: true, atLeastMs: MINUTE_MS },
    longestLifeMinutes: 10,
    protocol: 'by-pro',
    fields: ['ip', 'port', 'adr', 'timeout', 'cometime'],
  },
  'short-socks5': { number: 3, path: '/ShortS5Proxy/GetIP/', ...SHORT_LIVED, protocol: 'socks5' },
  'short-classic': { number: 4, path: '/ShortProxy/GetIP/', ...SHORT_LIVED, protocol: 'http' },
  'residential-socks5': {
    number: 5,
    path: '/PrivateS5Proxy/GetIP/',
    ...RESIDENTIAL,
    count: LIMIT_BY_INSTANCE,
    protocol: 'socks5',
  },
  'short-pure': {
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
        about: 'the filter of IPs',
      },
      timespan: timespan(1, 5, '6'),
    },
    selector: { name: 'type', text: 1, json: 2, xml: 3 }, // only this operation has 2 for json and 3 for xml
    count: LIMIT_BY_INSTANCE,
    minIntervalMs: 100, // The service allows at most ten calls per second.
    defaultIntervalMs: 10 * SECOND_MS,
    defaultLifetime: { byTimespan: true, atLeastMs: MINUTE_MS },
    longestLifeMinutes: 6,
    protocol: 'http',
    fields: ['ip', 'port', 'adr', 'out_ip', 'expired_seconds', 'is_new_dedup'],
  },
  free: {
    number: 7,
    path: '/FreeProxy/Get/',
    server: 'base',
    identity: { name: 'app_id', key: 'akey' },
    params: {
      adr: ADR,
      dalu: {
        kind: 'choice',
        values: { 0: 'overseas', 1: 'mainland' },
        default: 1,
        about: 'the region',
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
        about: 'the maximum time since the service verified it',
      },
      sleep_type: {
        kind: 'choice',
        values: { 1: '1 s', 2: '3 s', 3: '5 s', 4: '10 s', 5: '15 s' },
        about: 'the maximum response time',
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
        about: 'the minimum time it has been alive',
      },
    },
    selector: { name: 'return_type', text: 1, xml: 2, json: 3 },
    count: { max: 100, defaultMax: 20 },
    minIntervalMs: SECOND_MS,
    defaultIntervalMs: 10 * SECOND_MS,
    defaultLifetime: { byTimespan: false, atLeastMs: MINUTE_MS },
    protocol: 'by-entry',
    fields: ['ip', 'port', 'adr', 'protocol', 'level'],
  },
  exclusive: {
    number: 8,
    path: '/ExclusiveProxy/GetIP/',
    server: 'base',
    identity: BY_API,
    params: { adr: ADR, pro: PRO, order: ORDER },
    selector: BY_TYPE,
    count: LIMIT_BY_INSTANCE,
    minIntervalMs: SECOND_MS,
    defaultIntervalMs: 10 * SECOND_MS,
    defaultLifetime: { byTimespan: false, atLeastMs: MINUTE_MS },
    protocol: 'by-pro',
    fields: ['ip', 'port', 'adr', 'timeout', 'cometime', 'area', 'id', 'lastscore', 'yestodayscore'],
  },
  link: {
    number: 'link',
    server: 'url',
    params: {},
    count: LIMIT_BY_INSTANCE,
    minIntervalMs: 100,
    defaultLifetime: { byTimespan: false, atLeastMs: MINUTE_MS },
    protocol: 'by-entry',
    fields: ['ip', 'port', 'protocol', 'adr', 'outip', 'timeout'],
  },
  areas: {
    number: 9,
    path: '/ExclusiveProxy/GetAddibleServerList/',
    server: 'base',
    identity: BY_API,
    params: { areaKeyword: { kind: 'keywords', about: 'a filter for area lines: keywords' } },
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
        about: 'a filter for instances',
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
