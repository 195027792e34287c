/**
 * The ten operations of the extraction service, as data: the client, the checks of `params`, refill's pace and
 * docs/service.md all read this table. Adding an operation is adding a row.
 *
 * Source: the service's interface specification, sections "Endpoints" and "Limits"; lifetimes and paces where it is silent
 * are noria's own (docs/service.md says which).
 */
import type { MemberProtocol } from '../core/protocol.ts';
import type { WireField } from './fields.ts';

/** The product families, as `product:` of a source names them. Each has one extraction operation. */
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
export type OperationNumber = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10;

export const FORMATS = ['json', 'xml', 'text'] as const;
export type Format = (typeof FORMATS)[number];

export const METHODS = ['GET', 'POST'] as const;
export type Method = (typeof METHODS)[number];

/** What `noria instances --status` takes, and what operation 10 calls it. */
export const INSTANCE_STATUSES = { 'near-expiry': 1, active: 2, expired: 3 } as const;
export type InstanceStatus = keyof typeof INSTANCE_STATUSES;

/** One parameter of an operation. `about` completes the sentence "NAME is …". */
export type OperationParam = {
  /** Sent when a source does not give it. Whatever the service requires has one, so nothing must be given. */
  readonly default?: number;
  readonly about: string;
} & (
  | { readonly kind: 'whole'; readonly from: number; readonly to: number }
  /** One of a few numbers; what each stands for. */
  | { readonly kind: 'choice'; readonly values: Readonly<Record<number, string>> }
  /** One or several keywords: a list, or a text with half-width commas. */
  | { readonly kind: 'keywords' }
  /** A label as the service spells it. */
  | { readonly kind: 'label' }
);

interface OperationRow {
  readonly number: OperationNumber;
  /** Below the base address; the trailing slash belongs to it. */
  readonly path: string;
  /** The parameters that say who asks: the instance (or account), and its key. */
  readonly identity: { readonly name: string; readonly key: string };
  /** Everything else a call can carry, `count` and the type selector aside. */
  readonly params: Readonly<Record<string, OperationParam>>;
}

/** An operation that draws proxies: 1 to 8. */
export interface DrawOperation extends OperationRow {
  /** `base`: below {base_url}. `extract-host`: on the instance's own extraction server. */
  readonly server: 'base' | 'extract-host';
  /** The parameter that chooses the format, and its values. */
  readonly selector: { readonly name: string } & Readonly<Record<Format, number>>;
  readonly count: {
    /** Whether the service wants it; noria sends it always. */
    readonly required: boolean;
    /** The most the service takes, where it says a number; else the instance's single-pull limit. */
    readonly max?: number;
    /** The most noria asks for where a source does not say. */
    readonly defaultMax: number;
  };
  /** Least time from the start of one call to the start of the next. */
  readonly minIntervalMs: number;
  /** The recommended one. */
  readonly defaultIntervalMs: number;
  /** How long an entry lives whose lifetime the answer leaves out. */
  readonly defaultLifetime: { readonly byTimespan: boolean; readonly atLeastMs: number };
  /** What the members speak: always the same, by the parameter `pro`, or as each entry says. */
  readonly protocol: MemberProtocol | 'by-pro' | 'by-entry';
  /** Fields of an entry, which are the tags of its custom Text layout too. */
  readonly fields: readonly WireField[];
}

/** An operation that lists something: 9 and 10. JSON only. */
export interface ListOperation extends OperationRow {
  readonly server: 'base';
  /** The member of the answer that holds the list. */
  readonly listField: string;
  /** Fields of a record and their types; the first one is what a record cannot be without. */
  readonly fields: Readonly<Record<string, 'string' | 'integer'>>;
}

export type ListName = 'areas' | 'instances';
export type OperationName = Product | ListName;

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;

const ADR: OperationParam = {
  kind: 'keywords',
  about: 'where: keywords of province, city or carrier',
};
const FITTER: OperationParam = {
  kind: 'choice',
  values: { 1: 'leave out exit IPs drawn already today', 2: 'no filter' },
  default: 2,
  about: 'the filter of exit IPs',
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
  about: 'what the members speak',
};
const ORDER: OperationParam = {
  kind: 'choice',
  values: { 1: 'longest remaining lifetime first', 2: 'random' },
  default: 2,
  about: 'the order',
};

/** The least lifetime: a whole number of minutes, whose smallest value is the default. */
function timespan(from: number, to: number, until: string): OperationParam {
  return {
    kind: 'whole',
    from,
    to,
    default: from,
    about: `the least remaining lifetime in minutes; IPs with that to ${until} minutes are drawn`,
  };
}

const BY_TYPE = { name: 'type', text: 1, xml: 2, json: 3 } as const;
const BY_API = { name: 'api', key: 'akey' } as const;
const LIMIT_BY_INSTANCE = { required: false, defaultMax: 5 } as const;

const RESIDENTIAL = {
  server: 'base',
  identity: BY_API,
  params: { adr: ADR, fitter: FITTER, timespan: timespan(6, 29, '30'), tunnel: TUNNEL },
  selector: BY_TYPE,
  minIntervalMs: SECOND_MS,
  defaultIntervalMs: 10 * SECOND_MS,
  defaultLifetime: { byTimespan: true, atLeastMs: 0 },
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
  fields: ['ip', 'port', 'adr', 'timeout', 'cometime'],
} as const satisfies Partial<DrawOperation>;

export const OPERATIONS: Readonly<Record<Product, DrawOperation> & Record<ListName, ListOperation>> = {
  'long-residential': {
    number: 1,
    path: '/PrivateProxy/GetIP/',
    ...RESIDENTIAL,
    count: { required: true, defaultMax: 5 },
    protocol: 'http',
  },
  shared: {
    number: 2,
    path: '/CotenancyProxy/GetIP/',
    server: 'base',
    identity: BY_API,
    params: {
      adr: ADR,
      nadr: { kind: 'keywords', about: 'where not: keywords of locations to leave out' },
      pro: PRO,
      // "timespan-10 minutes", listed without a range, and the sample request leaves it out.
      timespan: {
        kind: 'whole',
        from: 0,
        to: 10,
        about: 'the least remaining lifetime in minutes; IPs with that to 10 minutes are drawn',
      },
      order: ORDER,
    },
    selector: BY_TYPE,
    count: LIMIT_BY_INSTANCE,
    minIntervalMs: SECOND_MS,
    defaultIntervalMs: 10 * SECOND_MS,
    defaultLifetime: { byTimespan: true, atLeastMs: MINUTE_MS },
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
        values: { 0: 'no filter', 1: 'leave out IPs drawn already today' },
        default: 0,
        about: 'the filter of IPs',
      },
      timespan: timespan(1, 5, '6'),
    },
    selector: { name: 'type', text: 1, json: 2, xml: 3 }, // not as everywhere else
    count: { required: true, defaultMax: 5 },
    minIntervalMs: 100, // ten calls within one second
    defaultIntervalMs: 10 * SECOND_MS,
    defaultLifetime: { byTimespan: true, atLeastMs: MINUTE_MS },
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
        about: 'the part of the world',
      },
      protocol_type: {
        kind: 'choice',
        values: { 1: 'http', 2: 'socks4', 3: 'socks5', 4: 'https' },
        about: 'what the proxies speak',
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
        about: 'the anonymity',
      },
      isp: { kind: 'label', about: "the carrier, by the service's label for it" },
      lastcheck_type: {
        kind: 'choice',
        values: { 1: '1 minute', 2: '10 minutes', 3: '30 minutes', 4: '1 hour', 5: '1.5 hours' },
        about: 'how long ago the service verified it, at most',
      },
      sleep_type: {
        kind: 'choice',
        values: { 1: '1 s', 2: '3 s', 3: '5 s', 4: '10 s', 5: '15 s' },
        about: 'the response time, at most',
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
        about: 'how long it has been alive, at least',
      },
    },
    selector: { name: 'return_type', text: 1, xml: 2, json: 3 },
    count: { required: false, max: 100, defaultMax: 20 },
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
  areas: {
    number: 9,
    path: '/ExclusiveProxy/GetAddibleServerList/',
    server: 'base',
    identity: BY_API,
    params: { areaKeyword: { kind: 'keywords', about: 'which area lines: keywords' } },
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
        about: 'which instances',
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

/**
 * Ms an entry lives whose lifetime the answer left out, counted from the sending of the request.
 *
 * @param params - as `checkParams` gives them.
 */
export function defaultLifetimeMs(product: Product, params: Readonly<Record<string, unknown>>): number {
  const { byTimespan, atLeastMs } = OPERATIONS[product].defaultLifetime;
  const minutes = byTimespan ? params['timespan'] : undefined;
  return Math.max(atLeastMs, typeof minutes === 'number' ? minutes * MINUTE_MS : 0);
}

/**
 * What the members of a product speak unless an entry says otherwise.
 *
 * For the free product it is the fallback for entries without a label: by `protocol_type`, else plain HTTP.
 *
 * @param params - as `checkParams` gives them.
 */
export function memberProtocol(product: Product, params: Readonly<Record<string, unknown>>): MemberProtocol {
  const { protocol: speaks } = OPERATIONS[product];
  if (speaks === 'by-pro') return params['pro'] === 2 ? 'socks5' : 'http';
  if (speaks !== 'by-entry') return speaks;
  const chosen = params['protocol_type'];
  return chosen === 2 ? 'socks4' : chosen === 3 ? 'socks5' : 'http';
}
