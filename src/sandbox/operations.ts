/**
 * The eight extraction operations as the specification lists them: paths, parameters, selectors, pace, fields, codes.
 *
 * Written from the specification alone and shared with nobody: noria's own table must not be able to repeat a
 * misreading that stands here. Source: service-spec, Endpoints 1 to 8, Limits, Errors.
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

/** A product family, by the name noria's configuration has for it. */
export type SandboxProduct = (typeof SANDBOX_PRODUCTS)[number];

/** Every operation by a name: those that extract by their product, operations 9 and 10 by what they list. */
export const OPERATION_NAMES = [...SANDBOX_PRODUCTS, 'areas', 'instances'] as const;

export type SandboxOperationName = (typeof OPERATION_NAMES)[number];

export type AnswerFormat = 'text' | 'xml' | 'json';

/** What a proxy speaks; the free product labels each entry with one of these or `https`. */
export type ProxyProtocol = 'http' | 'socks4' | 'socks5';

/** At most `calls` calls may start within any `withinMs`. */
export interface RateLimit {
  readonly calls: number;
  readonly withinMs: number;
}

export interface Parameter {
  readonly name: string;
  readonly required: boolean;
  readonly fits: (value: string) => boolean;
}

/** How an operation's `timespan` selects: from that many minutes up to `topMinutes`. */
export interface Timespan {
  readonly topMinutes: number;
}

export interface Operation {
  readonly number: number;
  readonly product: SandboxProduct;
  readonly path: string;
  /** The parameter that carries the instance. */
  readonly idName: 'api' | 'inst_id' | 'app_id';
  /** The parameter that selects the format, and what its values mean. */
  readonly formatName: 'type' | 'return_type';
  readonly formats: Readonly<Record<string, AnswerFormat>>;
  /** All but the instance, the key, `count` and the selector. */
  readonly parameters: readonly Parameter[];
  readonly countRequired: boolean;
  readonly rateLimit: RateLimit;
  /** `pro`: the caller chooses by that parameter; `mixed`: each entry says it. */
  readonly protocol: ProxyProtocol | 'pro' | 'mixed';
  readonly timespan?: Timespan;
  /** The longest life of a proxy of this product, minutes. */
  readonly longestMinutes: number;
  /** Fields of an entry, in order; also the brace tags of the custom Text layout. */
  readonly fields: readonly string[];
  /** The counters of distinct exits that its answers carry; such a product's draws count against a total. */
  readonly counters?: 'residential' | 'pure';
  readonly refusals: RefusalCodes;
}

const must = (name: string, fits: Parameter['fits']): Parameter => ({ name, required: true, fits });
const may = (name: string, fits: Parameter['fits']): Parameter => ({ name, required: false, fits });
const whole = (least: number, most: number) => (value: string) =>
  /^\d{1,9}$/.test(value) && Number(value) >= least && Number(value) <= most;
const anything = () => true;

const PAID_FORMATS = { '1': 'text', '2': 'xml', '3': 'json' } as const;
const PURE_FORMATS = { '1': 'text', '2': 'json', '3': 'xml' } as const;

const EVERY_SECOND: RateLimit = { calls: 1, withinMs: 1000 };
const EVERY_TEN_SECONDS: RateLimit = { calls: 1, withinMs: 10_000 };
const TEN_A_SECOND: RateLimit = { calls: 10, withinMs: 1000 };

const BASIC_FIELDS = ['ip', 'port', 'adr', 'timeout', 'cometime'] as const;
const RESIDENTIAL_FIELDS = ['ip', 'port', 'adr', 'outip', 'timeout', 'cometime'] as const;

const RESIDENTIAL_PARAMETERS = [
  may('adr', anything),
  must('fitter', whole(1, 2)),
  must('timespan', whole(6, 29)),
  must('tunnel', whole(1, 3)),
];
const SHORT_PARAMETERS = [may('adr', anything), must('timespan', whole(0, 5))];

const PAID = { idName: 'api', formatName: 'type', formats: PAID_FORMATS } as const;

/** Spec 1 gives no number for its pace ("reasonable"); the stand-in enforces what it says for its sister, operation 5. */
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
      may('adr', anything),
      may('nadr', anything),
      must('pro', whole(1, 2)),
      may('timespan', whole(0, 10)),
      must('order', whole(1, 2)),
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
    parameters: [may('adr', anything), must('dedup', whole(0, 1)), must('timespan', whole(1, 5))],
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
      may('adr', anything),
      must('dalu', whole(0, 1)),
      may('protocol_type', whole(1, 4)),
      may('level_type', whole(1, 5)),
      may('isp', anything),
      may('lastcheck_type', whole(1, 5)),
      may('sleep_type', whole(1, 5)),
      may('alive_type', whole(1, 7)),
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
    parameters: [may('adr', anything), must('pro', whole(1, 2)), must('order', whole(1, 2))],
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
