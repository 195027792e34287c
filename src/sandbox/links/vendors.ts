/**
 * How vendors of short-lived proxies answer their extraction links: parameters, pace, layouts and error codes, as templates.
 *
 * Written from the vendors' public pages and clients, which docs/links.md names, and not from noria's decoder. Codes
 * that no public page documents are guesses; docs/links.md lists them.
 */
import { MINUTE_MS, SECOND_MS } from '../../core/duration.ts';

/**
 * Why a call gets no proxies. `denied`: the key, the method or a header is wrong, or the customer may not get proxies.
 */
export type LinkRefusal = 'denied' | 'too-fast' | 'empty';

export interface LinkVendor {
  readonly name: string;
  readonly paceMs: number;
  readonly keys: Readonly<Record<string, string>>;
  readonly authorization?: string;
  readonly query: string;
  readonly body?: string;
  readonly countName: string;
  readonly lifeMs: readonly [min: number, max: number];
  readonly needsLogin?: true;
  /** One proxy; `proxyOf` (link-server.ts) has the values. */
  readonly entry: string;
  /** With `{entries}` and `{entryCount}`. If undefined, an answer is text: a line for each proxy. */
  readonly answer?: string;
  readonly refusals: Readonly<Record<LinkRefusal, readonly [code: number | string, message: string]>>;
  /** With `{code}` and `{msg}`. */
  readonly refusal: string;
}

const SHORT: LinkVendor['lifeMs'] = [2 * MINUTE_MS, 5 * MINUTE_MS];
const SECONDS_ENTRY = '"{ip}:{port},{secondsLeft}"';
const CODE_AND_MSG = '{"code":{code},"msg":"{msg}"}';
const HTTP_LIKE_REFUSALS = {
  denied: [401, '签名错误'],
  'too-fast': [429, '请求过于频繁'],
  empty: [404, '暂无IP'],
} as const;

export const LINK_VENDORS: readonly LinkVendor[] = [
  {
    name: 'text',
    paceMs: SECOND_MS,
    keys: { key: 'sandbox-text-key' },
    query: 'num={count}',
    countName: 'num',
    lifeMs: SHORT,
    entry: '{ip}:{port}',
    refusals: { denied: ['denied', ''], 'too-fast': ['too-fast', ''], empty: ['empty', ''] },
    refusal: 'ERROR: {code}',
  },
  {
    name: 'kuaidaili',
    paceMs: SECOND_MS,
    keys: { secret_id: 'sandboxsecretid', signature: 'sandboxsignature' },
    query: 'num={count}&pt=1&format=json&sep=1&f_et=1',
    countName: 'num',
    lifeMs: SHORT,
    entry: SECONDS_ENTRY,
    answer: '{"msg":"","code":0,"data":{"count":{entryCount},"proxy_list":[{entries}]}}',
    refusals: {
      denied: [-16, 'API鉴权失败'],
      'too-fast': [-51, '请求过于频繁'],
      empty: [3, '暂无符合条件的代理'],
    },
    refusal: CODE_AND_MSG,
  },
  {
    name: 'zhima',
    paceMs: 2 * SECOND_MS,
    keys: { neek: 'sandbox7000', pack: 'sandbox3000' },
    query: 'num={count}&type=2&port=1&ts=1&ys=1&cs=1',
    countName: 'num',
    lifeMs: [5 * MINUTE_MS, 25 * MINUTE_MS],
    entry: '{"ip":"{ip}","port":{port},"expire_time":"{endsAt}","city":"{city}","isp":"{carrier}"}',
    answer: '{"code":0,"success":true,"msg":"0","data":[{entries}]}',
    refusals: {
      denied: [113, '请添加白名单'],
      'too-fast': [111, '请2秒后再试'],
      empty: [115, '没有符合条件的IP'],
    },
    refusal: '{"code":{code},"msg":"{msg}","success":false,"data":[]}',
  },
  {
    name: 'juliangip',
    paceMs: 100,
    keys: { trade_no: '1000200030004000', sign: 'sandboxsign0123456789' },
    query: 'num=5&pt=1&result_type=json&ip_remain=1',
    countName: 'num',
    lifeMs: SHORT,
    entry: SECONDS_ENTRY,
    answer: '{"code":200,"msg":"请求成功","data":{"count":{entryCount},"proxy_list":[{entries}]}}',
    refusals: HTTP_LIKE_REFUSALS,
    refusal: CODE_AND_MSG,
  },
  {
    name: 'qg',
    paceMs: SECOND_MS,
    keys: { key: 'SANDBOXQ' },
    query: 'num={count}&distinct=true',
    countName: 'num',
    lifeMs: [MINUTE_MS, 2 * MINUTE_MS],
    entry:
      '{"proxy_ip":"{exit}","server":"{ip}:{port}","area":"{city}","isp":"{carrier}","deadline":"{endsAt}"}',
    answer: '{"code":"SUCCESS","data":[{entries}],"request_id":"83158ebe-be6c-40f7-a158-000000000000"}',
    refusals: {
      denied: ['INVALID_KEY', 'denied'],
      'too-fast': ['REQUEST_LIMIT_EXCEEDED', 'too-fast'],
      empty: ['NO_RESOURCE_FOUND', 'empty'],
    },
    refusal: '{"code":"{code}","message":"{msg}","request_id":"83158ebe-be6c-40f7-a158-000000000000"}',
  },
  {
    name: 'xiaoxiangdaili',
    paceMs: 10 * SECOND_MS,
    keys: { appKey: '884248500000000000', appSecret: 'sandboxAppSecret' },
    query: 'cnt={count}&wt=json',
    countName: 'cnt',
    lifeMs: [2 * MINUTE_MS, 2 * MINUTE_MS],
    entry: '{"ip":"{ip}","port":{port},"realIp":null,"startTime":"{startedAt}","during":{minutes}}',
    answer: '{"code":200,"success":true,"data":[{entries}],"msg":"操作成功"}',
    refusals: {
      denied: [1006, '应用授权验证未通过'],
      'too-fast': [1010, '请求过于频繁'],
      empty: [1004, '连接池无响应'],
    },
    refusal: '{"code":{code},"msg":"{msg}","success":false,"data":null}',
  },
  {
    name: 'asiyun',
    paceMs: SECOND_MS,
    keys: { orderId: 'sandboxorder1', sign: 'sandboxsign0123456789' },
    query: 'time=1795312800&type=1&num={count}&dataType=0&unbindTime=180',
    countName: 'num',
    lifeMs: [3 * MINUTE_MS, 3 * MINUTE_MS],
    entry: '{"realIp":"{exit}","pid":18,"cid":188,"area":"{city}","ip":"{ip}","port":{port}}',
    answer: '{"serialNo":"ca8ac15e5a1a4c89addf5c0be72f0000","code":0,"data":[{entries}]}',
    refusals: HTTP_LIKE_REFUSALS,
    refusal: CODE_AND_MSG,
  },
  {
    name: 'dataeyes',
    paceMs: SECOND_MS,
    keys: {},
    authorization: 'Basic c2FuZGJveC10b2tlbjo=',
    query: '',
    body: '{"city_id":"130200","qty":{count}}',
    countName: 'qty',
    lifeMs: SHORT,
    entry:
      '{"city":"{city}","expire_at":{endsAtSeconds},"ip":"{ip}","ip_port":"{ip}:{port}","out_ip":"","port":{port},"source":"sandbox","tags":[]}',
    answer: '{"code":0,"data":{"count":{entryCount},"items":[{entries}]}}',
    refusals: {
      denied: [401, 'unauthorized'],
      'too-fast': [429, 'too many requests'],
      empty: [404, 'no ip'],
    },
    refusal: CODE_AND_MSG,
  },
  {
    name: 'pinzan',
    paceMs: SECOND_MS,
    keys: { no: '20260101000000000000', secret: 'sandboxsecret' },
    query: 'num={count}&minute=3&format=json&pool=quality&mode=auth',
    countName: 'num',
    lifeMs: [3 * MINUTE_MS, 3 * MINUTE_MS],
    needsLogin: true,
    entry: '{"ip":"{ip}","port":{port},"account":"{username}","password":"{password}","net":"{carrier}"}',
    answer: '{"code":0,"status":200,"message":"","data":{"list":[{entries}]}}',
    refusals: { denied: [-1, '密钥错误'], 'too-fast': [-1, '请求过于频繁'], empty: [-1, '暂无IP'] },
    refusal: '{"code":{code},"msg":"{msg}","data":null}',
  },
];
