/**
 * The eight extraction operations as the specification lists them: paths, parameters, selectors, rate limits, fields, codes.
 *
 * Written from the specification alone. noria's own table is separate, so that one misreading cannot hide in both.
 * Source: service-spec, Endpoints 1 to 8, Limits, Errors.
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

/** A product family, by its name in noria's configuration. */
export type SandboxProduct = (typeof SANDBOX_PRODUCTS)[number];

/** A name for every operation: extractions have their product's, operations 9 and 10 that of what they list. */
export const OPERATION_NAMES = [...SANDBOX_PRODUCTS, 'areas', 'instances'] as const;

export type SandboxOperationName = (typeof OPERATION_NAMES)[number];

export type AnswerFormat = 'text' | 'xml' | 'json';

/** The protocol of a proxy. The free product labels each entry with one of these or with `https`. */
export type ProxyProtocol = 'http' | 'socks4' | 'socks5';

/** At most `calls` calls may start within any period of `withinMs`. */
export interface RateLimit {
  readonly calls: number;
  readonly withinMs: number;
}

export interface Parameter {
  readonly name: string;
  readonly required: boolean;
  readonly isValid: (value: string) => boolean;
}

/** `timespan` selects remaining lives from its value up to `topMinutes`, both in minutes. */
export interface Timespan {
  readonly topMinutes: number;
}

export interface Operation {
  readonly number: number;
  readonly product: SandboxProduct;
  readonly path: string;
  /** The parameter that names the instance. */
  readonly idName: 'api' | 'inst_id' | 'app_id';
  /** The parameter that selects the format, and the meaning of its values. */
  readonly formatName: 'type' | 'return_type';
  readonly formats: Readonly<Record<string, AnswerFormat>>;
  /** All except the instance, the key, `count` and the format. */
  readonly parameters: readonly Parameter[];
  readonly countRequired: boolean;
  readonly rateLimit: RateLimit;
  /** `pro`: the parameter of that name selects it; `mixed`: each entry contains it. */
  readonly protocol: ProxyProtocol | 'pro' | 'mixed';
  readonly timespan?: Timespan;
  /** The longest life of a proxy of this product. */
  readonly longestMinutes: number;
  /** Fields of an entry, in order; also the brace tags of a custom Text layout. */
  readonly fields: readonly string[];
  /** The counters of distinct exits in its answers. Draws of a product that has them count towards a limit. */
  readonly counters?: 'residential' | 'pure';
  readonly refusals: RefusalCodes;
}

const required = (name: string, isValid: Parameter['isValid']): Parameter => ({
  name,
  required: true,
  isValid,
});
const optional = (name: string, isValid: Parameter['isValid']): Parameter => ({
  name,
  required: false,
  isValid,
});
const integer = (min: number, max: number) => (value: string) =>
  /^\d{1,9}$/.test(value) && Number(value) >= min && Number(value) <= max;
const anyText = () => true;

const PAID_FORMATS = { '1': 'text', '2': 'xml', '3': 'json' } as const;
const PURE_FORMATS = { '1': 'text', '2': 'json', '3': 'xml' } as const;

const EVERY_SECOND: RateLimit = { calls: 1, withinMs: 1000 };
const EVERY_TEN_SECONDS: RateLimit = { calls: 1, withinMs: 10_000 };
const TEN_A_SECOND: RateLimit = { calls: 10, withinMs: 1000 };

const BASIC_FIELDS = ['ip', 'port', 'adr', 'timeout', 'cometime'] as const;
const RESIDENTIAL_FIELDS = ['ip', 'port', 'adr', 'outip', 'timeout', 'cometime'] as const;

const RESIDENTIAL_PARAMETERS = [
  optional('adr', anyText),
  required('fitter', integer(1, 2)),
  required('timespan', integer(6, 29)),
  required('tunnel', integer(1, 3)),
];
const SHORT_PARAMETERS = [optional('adr', anyText), required('timespan', integer(0, 5))];

const PAID = { idName: 'api', formatName: 'type', formats: PAID_FORMATS } as const;

/** Operation 1 has no number for its rate limit ("reasonable"); the sandbox applies that of the similar operation 5. */
export const SANDBOX_OPERATIONS: readonly Operation[] = [
  {
    ...PAID,
    number: 1,
    product: 'long-residential',
    path: '/PrivateProxy/GetIP/',
    parameters: RESIDENTIAL_PARAMETERS,
    countRequired: true,
    rateLimit: EVERY_SECOND,
    protocol: 'http',
    timespan: { topMinutes: 30 },
    longestMinutes: 30,
    fields: RESIDENTIAL_FIELDS,
    counters: 'residential',
    refusals: {
      ...EXTRACTION_REFUSALS,
      expired: '12005',
      unbound: '12007',
      quota: '12008',
      distinct: '12010',
    },
  },
  {
    ...PAID,
    number: 2,
    product: 'shared',
    path: '/CotenancyProxy/GetIP/',
    parameters: [
      optional('adr', anyText),
      optional('nadr', anyText),
      required('pro', integer(1, 2)),
      optional('timespan', integer(0, 10)),
      required('order', integer(1, 2)),
    ],
    countRequired: false,
    rateLimit: EVERY_SECOND,
    protocol: 'pro',
    timespan: { topMinutes: 10 },
    longestMinutes: 10,
    fields: BASIC_FIELDS,
    refusals: { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', quota: '12008', device: '12010' },
  },
  {
    ...PAID,
    number: 3,
    product: 'short-socks5',
    path: '/ShortS5Proxy/GetIP/',
    parameters: SHORT_PARAMETERS,
    countRequired: false,
    rateLimit: EVERY_TEN_SECONDS,
    protocol: 'socks5',
    timespan: { topMinutes: 6 },
    longestMinutes: 6,
    fields: BASIC_FIELDS,
    refusals: { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', device: '12010' },
  },
  {
    ...PAID,
    number: 4,
    product: 'short-classic',
    path: '/ShortProxy/GetIP/',
    parameters: SHORT_PARAMETERS,
    countRequired: false,
    rateLimit: EVERY_TEN_SECONDS,
    protocol: 'http',
    timespan: { topMinutes: 6 },
    longestMinutes: 6,
    fields: BASIC_FIELDS,
    refusals: { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', quota: '12008', device: '12010' },
  },
  {
    ...PAID,
    number: 5,
    product: 'residential-socks5',
    path: '/PrivateS5Proxy/GetIP/',
    parameters: RESIDENTIAL_PARAMETERS,
    countRequired: false,
    rateLimit: EVERY_SECOND,
    protocol: 'socks5',
    timespan: { topMinutes: 30 },
    longestMinutes: 30,
    fields: RESIDENTIAL_FIELDS,
    counters: 'residential',
    refusals: {
      ...EXTRACTION_REFUSALS,
      expired: '12005',
      unbound: '12007',
      quota: '12008',
      distinct: '12010',
    },
  },
  {
    number: 6,
    product: 'short-pure',
    path: '/GetIP/',
    idName: 'inst_id',
    formatName: 'type',
    formats: PURE_FORMATS,
    parameters: [
      optional('adr', anyText),
      required('dedup', integer(0, 1)),
      required('timespan', integer(1, 5)),
    ],
    countRequired: true,
    rateLimit: TEN_A_SECOND,
    protocol: 'http',
    timespan: { topMinutes: 6 },
    longestMinutes: 6,
    fields: ['ip', 'port', 'adr', 'out_ip', 'expired_seconds', 'is_new_dedup'],
    counters: 'pure',
    refusals: { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', quota: '12008', device: '12019' },
  },
  {
    number: 7,
    product: 'free',
    path: '/FreeProxy/Get/',
    idName: 'app_id',
    formatName: 'return_type',
    formats: PAID_FORMATS,
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
    countRequired: false,
    rateLimit: EVERY_SECOND,
    protocol: 'mixed',
    longestMinutes: 20,
    fields: ['ip', 'port', 'adr', 'protocol', 'level'],
    refusals: { ...EXTRACTION_REFUSALS, 'other-client': '12012' },
  },
  {
    ...PAID,
    number: 8,
    product: 'exclusive',
    path: '/ExclusiveProxy/GetIP/',
    parameters: [optional('adr', anyText), required('pro', integer(1, 2)), required('order', integer(1, 2))],
    countRequired: false,
    rateLimit: EVERY_SECOND,
    protocol: 'pro',
    longestMinutes: 10,
    fields: ['ip', 'port', 'adr', 'timeout', 'cometime', 'area', 'id', 'lastscore', 'yestodayscore'],
    refusals: { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', quota: '12008', device: '17008' },
  },
];

/** The extraction operation of a product. */
export function operationOf(product: SandboxProduct): Operation {
  const operation = SANDBOX_OPERATIONS.find((candidate) => candidate.product === product);
  if (operation === undefined) throw new TypeError(`no operation for the product ${product}`);
  return operation;
}
