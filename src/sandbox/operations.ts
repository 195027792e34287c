/**
 * The eight extraction operations according to the specification: paths, parameters, rate limits, fields, codes, and the
 * locations of the proxies.
 *
 * Written from the specification alone, and not from noria's own table, so that tests find an error in either of them.
 * The texts are Chinese, like those of the service; clients must not depend on them.
 */

export type RefusalCodes = Readonly<Partial<Record<RefusalReason, string>>>;

export const SUCCESS_CODE = '10001';

const EXTRACTION_REFUSALS = {
  key: '12001',
  pace: '12002',
  parameters: '12003',
  unknown: '12004',
  frozen: '12006',
  none: '12009',
} as const satisfies RefusalCodes;

const TEXTS = {
  key: 'akey错误',
  pace: '调用频率过快，请降低调用频率',
  parameters: '参数不完整或有错误',
  unknown: '该实例不存在或已过期',
  expired: '该实例已过期',
  frozen: '该实例已被冻结或禁用',
  unbound: '当前授权模式为"终端IP授权"，但尚未绑定终端IP',
  quota: '使用额度已经超限',
  none: '该参数条件下当前没有任何代理IP',
  distinct: '去重IP总量已经超限',
  device: '当前设备尚未获得调用此接口的授权',
  'other-client': '上一个客户端IP仍在提取，请等待其停止调用2分钟后再切换',
};

export type RefusalReason = keyof typeof TEXTS;

export function refusal(refusals: RefusalCodes, reason: RefusalReason, detail = '') {
  const code = refusals[reason];
  if (code === undefined) throw new TypeError(`the operation has no code for: ${reason}`);
  return { code, msg: TEXTS[reason] + detail };
}

export function textForCode(refusals: RefusalCodes, code: string): string {
  if (code === SUCCESS_CODE) return '获取成功';
  const reason = (Object.keys(TEXTS) as RefusalReason[]).find((each) => refusals[each] === code);
  return reason === undefined ? '未知错误' : TEXTS[reason];
}

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

export type SandboxProduct = (typeof SANDBOX_PRODUCTS)[number];

export const OPERATION_NAMES = [...SANDBOX_PRODUCTS, 'areas', 'instances'] as const;

export type SandboxOperationName = (typeof OPERATION_NAMES)[number];

export type AnswerFormat = 'text' | 'xml' | 'json';

export type ProxyProtocol = 'http' | 'socks4' | 'socks5';

export interface RateLimit {
  readonly calls: number;
  readonly withinMs: number;
}

export interface Operation {
  readonly product: SandboxProduct;
  readonly path: string;
  readonly idName: 'api' | 'inst_id' | 'app_id';
  readonly formatName: 'type' | 'return_type';
  readonly formats: Readonly<Record<string, AnswerFormat>>;
  readonly parameters: readonly ReturnType<typeof required>[];
  readonly countRequired: boolean;
  readonly rateLimit: RateLimit;
  readonly protocol: ProxyProtocol | 'pro' | 'mixed';
  readonly longestMinutes: number;
  readonly fields: readonly string[];
  /** Which counters of distinct exit IPs an answer has. A product with counters also limits distinct exit IPs. */
  readonly counters?: 'residential' | 'pure';
  readonly refusals: RefusalCodes;
}

type Check = (value: string) => boolean;
const required = (name: string, isValid: Check) => ({ name, required: true, isValid });
const optional = (name: string, isValid: Check) => ({ name, required: false, isValid });
const integer = (min: number, max: number) => (value: string) =>
  /^\d{1,9}$/.test(value) && Number(value) >= min && Number(value) <= max;
const anyText = () => true;

const BASIC_FIELDS = ['ip', 'port', 'adr', 'timeout', 'cometime'] as const;

const USUAL = {
  idName: 'api',
  formatName: 'type',
  formats: { '1': 'text', '2': 'xml', '3': 'json' },
  countRequired: false,
  rateLimit: { calls: 1, withinMs: 1000 },
  fields: BASIC_FIELDS,
} as const;
const PAID_REFUSALS = { ...EXTRACTION_REFUSALS, expired: '12005', unbound: '12007', quota: '12008' } as const;

/** The specification calls the rate limit of operation 1 only "reasonable": the sandbox uses that of operation 5. */
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
  rateLimit: { calls: 1, withinMs: 10_000 },
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
    rateLimit: { calls: 10, withinMs: 1000 },
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

export interface SandboxLocation {
  readonly adr: string;
  readonly area: string;
  readonly region: 'mainland' | 'overseas';
}

const mainland = (province: string, city: string, carrier: string): SandboxLocation => ({
  adr: `${province}${city} ${carrier}`,
  area: `${(city || province).replace(/市$/, '')}${carrier}`,
  region: 'mainland',
});
const overseas = (country: string): SandboxLocation => ({ adr: country, area: country, region: 'overseas' });

export const LOCATIONS: readonly SandboxLocation[] = [
  mainland('广东省', '深圳市', '电信'),
  mainland('广东省', '广州市', '联通'),
  mainland('广东省', '东莞市', '移动'),
  mainland('江苏省', '苏州市', '电信'),
  mainland('江苏省', '南京市', '移动'),
  mainland('浙江省', '杭州市', '电信'),
  mainland('浙江省', '宁波市', '联通'),
  mainland('上海市', '', '电信'),
  mainland('上海市', '', '联通'),
  mainland('北京市', '', '联通'),
  mainland('北京市', '', '教育网'),
  mainland('山东省', '青岛市', '联通'),
  mainland('四川省', '成都市', '电信'),
  mainland('湖北省', '武汉市', '移动'),
  mainland('福建省', '厦门市', '电信'),
  mainland('河南省', '郑州市', '铁通'),
  overseas('日本'),
  overseas('新加坡'),
  overseas('德国'),
  overseas('美国'),
];
