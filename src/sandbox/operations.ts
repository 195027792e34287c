/**
 * The eight extraction operations according to the specification: paths, parameters, rate limits, fields and codes.
 *
 * This table is written from the specification alone, and not from noria's own table, so that tests find an error in
 * either of them. Source: the service's specification, Endpoints 1 to 8, Limits, Errors.
 */
import { EXTRACTION_REFUSALS, type RefusalCodes } from './codes.ts';

export const SANDBOX_PRODUCTS = [
  'long-residential',
  'shared',
  'short-socks5',
  'short-classic',
  'residential-socks5',
  'short-pure',
  'free',
  'exclusive',
] as const;

/** A product, by its name in noria's configuration. */
export type SandboxProduct = (typeof SANDBOX_PRODUCTS)[number];

/**
 * The names of all operations. An extraction operation has the name of its product. Operations 9 and 10 are `areas` and
 * `instances`.
 */
export const OPERATION_NAMES = [...SANDBOX_PRODUCTS, 'areas', 'instances'] as const;

export type SandboxOperationName = (typeof OPERATION_NAMES)[number];

export type AnswerFormat = 'text' | 'xml' | 'json';

/**
 * The protocol between a client and the proxy. The free product reports `https` for an HTTP proxy that supports
 * CONNECT.
 */
export type ProxyProtocol = 'http' | 'socks4' | 'socks5';

/** At most `calls` calls are allowed in any period of `withinMs`. */
export interface RateLimit {
  readonly calls: number;
  readonly withinMs: number;
}

export interface Parameter {
  readonly name: string;
  readonly required: boolean;
  readonly isValid: (value: string) => boolean;
}

export interface Operation {
  readonly product: SandboxProduct;
  readonly path: string;
  /** The parameter with the instance id. */
  readonly idName: 'api' | 'inst_id' | 'app_id';
  /** The parameter that selects the format, and the meanings of its values. */
  readonly formatName: 'type' | 'return_type';
  readonly formats: Readonly<Record<string, AnswerFormat>>;
  /** All parameters except the instance id, the key, `count` and the format. */
  readonly parameters: readonly Parameter[];
  readonly countRequired: boolean;
  readonly rateLimit: RateLimit;
  /** The protocol of the proxies. `pro`: the parameter `pro` selects it; `mixed`: each entry of the answer names it. */
  readonly protocol: ProxyProtocol | 'pro' | 'mixed';
  /** The maximum lifetime of a proxy of this product. */
  readonly longestMinutes: number;
  /** The fields of an entry in their order. They are also the `{tag}`s of a custom Text format. */
  readonly fields: readonly string[];
  /** Which counters of distinct exit IPs an answer has. A product with counters also limits distinct exit IPs. */
  readonly counters?: 'residential' | 'pure';
  readonly refusals: RefusalCodes;
}

type Check = Parameter['isValid'];
const required = (name: string, isValid: Check): Parameter => ({ name, required: true, isValid });
const optional = (name: string, isValid: Check): Parameter => ({ name, required: false, isValid });
const integer = (min: number, max: number) => (value: string) =>
  /^\d{1,9}$/.test(value) && Number(value) >= min && Number(value) <= max;
const anyText = () => true;

const EVERY_SECOND: RateLimit = { calls: 1, withinMs: 1000 };
const EVERY_TEN_SECONDS: RateLimit = { calls: 1, withinMs: 10_000 };
const TEN_A_SECOND: RateLimit = { calls: 10, withinMs: 1000 };

const BASIC_FIELDS = ['ip', 'port', 'adr', 'timeout', 'cometime'] as const;

/** The settings that most products share. */
const USUAL = {
  idName: 'api',
  formatName: 'type',
  formats: { '1': 'text', '2': 'xml', '3': 'json' },
  countRequired: false,
  rateLimit: EVERY_SECOND,
  fields: BASIC_FIELDS,
} as const;
const PAID_REFUSALS = { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', quota: '12008' } as const;

/**
 * The specification calls the rate limit of operation 1 only "reasonable". So the sandbox uses the rate limit of
 * the similar operation 5.
 */
const RESIDENTIAL = {
  ...USUAL,
  parameters: [
    optional('adr', anyText),
    required('fitter', integer(1, 2)),
    required('timespan', integer(6, 29)),
    required('tunnel', integer(1, 3)),
  ],
  longestMinutes: 30,
  fields: ['ip', 'port', 'adr', 'outip', 'timeout', 'cometime'],
  counters: 'residential',
  refusals: { ...PAID_REFUSALS, distinct: '12010' },
} as const;

const SHORT = {
  ...USUAL,
  parameters: [optional('adr', anyText), required('timespan', integer(0, 5))],
  rateLimit: EVERY_TEN_SECONDS,
  longestMinutes: 6,
} as const;

export const SANDBOX_OPERATIONS: readonly Operation[] = [
  {
    ...RESIDENTIAL,
    product: 'long-residential',
    path: '/PrivateProxy/GetIP/',
    countRequired: true,
    protocol: 'http',
  },
  {
    ...USUAL,
    product: 'shared',
    path: '/CotenancyProxy/GetIP/',
    parameters: [
      optional('adr', anyText),
      optional('nadr', anyText),
      required('pro', integer(1, 2)),
      optional('timespan', integer(0, 10)),
      required('order', integer(1, 2)),
    ],
    protocol: 'pro',
    longestMinutes: 10,
    refusals: { ...PAID_REFUSALS, device: '12010' },
  },
  {
    ...SHORT,
    product: 'short-socks5',
    path: '/ShortS5Proxy/GetIP/',
    protocol: 'socks5',
    refusals: { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', device: '12010' },
  },
  {
    ...SHORT,
    product: 'short-classic',
    path: '/ShortProxy/GetIP/',
    protocol: 'http',
    refusals: { ...PAID_REFUSALS, device: '12010' },
  },
  {
    ...RESIDENTIAL,
    product: 'residential-socks5',
    path: '/PrivateS5Proxy/GetIP/',
    protocol: 'socks5',
  },
  {
    product: 'short-pure',
    path: '/GetIP/',
    idName: 'inst_id',
    formatName: 'type',
    formats: { '1': 'text', '2': 'json', '3': 'xml' },
    parameters: [
      optional('adr', anyText),
      required('dedup', integer(0, 1)),
      required('timespan', integer(1, 5)),
    ],
    countRequired: true,
    rateLimit: TEN_A_SECOND,
    protocol: 'http',
    longestMinutes: 6,
    fields: ['ip', 'port', 'adr', 'out_ip', 'expired_seconds', 'is_new_dedup'],
    counters: 'pure',
    refusals: { ...PAID_REFUSALS, device: '12019' },
  },
  {
    ...USUAL,
    product: 'free',
    path: '/FreeProxy/Get/',
    idName: 'app_id',
    formatName: 'return_type',
    parameters: [
      optional('adr', anyText),
      required('dalu', integer(0, 1)),
      optional('protocol_type', integer(1, 4)),
      optional('level_type', integer(1, 5)),
      optional('isp', anyText),
      optional('lastcheck_type', integer(1, 5)),
      optional('sleep_type', integer(1, 5)),
      optional('alive_type', integer(1, 7)),
    ],
    protocol: 'mixed',
    longestMinutes: 20,
    fields: ['ip', 'port', 'adr', 'protocol', 'level'],
    refusals: { ...EXTRACTION_REFUSALS, 'other-client': '12012' },
  },
  {
    ...USUAL,
    product: 'exclusive',
    path: '/ExclusiveProxy/GetIP/',
    parameters: [optional('adr', anyText), required('pro', integer(1, 2)), required('order', integer(1, 2))],
    protocol: 'pro',
    longestMinutes: 10,
    fields: [...BASIC_FIELDS, 'area', 'id', 'lastscore', 'yestodayscore'],
    refusals: { ...PAID_REFUSALS, device: '17008' },
  },
];

export function operationOf(product: SandboxProduct): Operation {
  const operation = SANDBOX_OPERATIONS.find((candidate) => candidate.product === product);
  if (operation === undefined) throw new TypeError(`no operation for the product ${product}`);
  return operation;
}
