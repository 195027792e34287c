/**
 * How vendors of short-lived proxies answer their extraction links: parameters, pace, layouts and error codes.
 *
 * Written from the vendors' public pages and clients, which docs/links.md names, and not from noria's decoder. Codes
 * that no public page documents are guesses; docs/links.md lists them.
 */

import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import type { Printed } from '../answers.ts';

export interface LinkProxy {
  readonly ip: string;
  readonly port: number;
  readonly exit: string;
  readonly city: string;
  readonly carrier: string;
  readonly secondsLeft: number;
  readonly startedAt: number;
  readonly endsAt: number;
  readonly username: string;
  readonly password: string;
}

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
  readonly answer: (proxies: readonly LinkProxy[]) => Printed;
  readonly refuse: (why: LinkRefusal) => Printed;
}

const CHINA_MS = 8 * HOUR_MS;
const SHORT: LinkVendor['lifeMs'] = [2 * MINUTE_MS, 5 * MINUTE_MS];

const HTTP_LIKE_REFUSALS = codes({
  denied: [401, '签名错误'],
  'too-fast': [429, '请求过于频繁'],
  empty: [404, '暂无IP'],
});

export const LINK_VENDORS: readonly LinkVendor[] = [
  {
    name: 'text',
    paceMs: SECOND_MS,
    keys: { key: 'sandbox-text-key' },
    query: 'num={count}',
    countName: 'num',
    lifeMs: SHORT,
    answer: (proxies) => text(proxies.map(({ ip, port }) => `${ip}:${port}`)),
    refuse: (why) => text([`ERROR: ${why}`]),
  },
  {
    name: 'kuaidaili',
    paceMs: SECOND_MS,
    keys: { secret_id: 'sandboxsecretid', signature: 'sandboxsignature' },
    query: 'num={count}&pt=1&format=json&sep=1&f_et=1',
    countName: 'num',
    lifeMs: SHORT,
    answer: (proxies) => json({ msg: '', code: 0, data: countedList(proxies) }),
    refuse: codes({
      denied: [-16, 'API鉴权失败'],
      'too-fast': [-51, '请求过于频繁'],
      empty: [3, '暂无符合条件的代理'],
    }),
  },
  {
    name: 'zhima',
    paceMs: 2 * SECOND_MS,
    keys: { neek: 'sandbox7000', pack: 'sandbox3000' },
    query: 'num={count}&type=2&port=1&ts=1&ys=1&cs=1',
    countName: 'num',
    lifeMs: [5 * MINUTE_MS, 25 * MINUTE_MS],
    answer: (proxies) =>
      json({
        code: 0,
        success: true,
        msg: '0',
        data: proxies.map(({ ip, port, endsAt, city, carrier }) => ({
          ip,
          port,
          expire_time: chinaTime(endsAt),
          city,
          isp: carrier,
        })),
      }),
    refuse: codes(
      { denied: [113, '请添加白名单'], 'too-fast': [111, '请2秒后再试'], empty: [115, '没有符合条件的IP'] },
      { success: false, data: [] },
    ),
  },
  {
    name: 'juliangip',
    paceMs: 100,
    keys: { trade_no: '1000200030004000', sign: 'sandboxsign0123456789' },
    query: 'num=5&pt=1&result_type=json&ip_remain=1',
    countName: 'num',
    lifeMs: SHORT,
    answer: (proxies) => json({ code: 200, msg: '请求成功', data: countedList(proxies) }),
    refuse: HTTP_LIKE_REFUSALS,
  },
  {
    name: 'qg',
    paceMs: SECOND_MS,
    keys: { key: 'SANDBOXQ' },
    query: 'num={count}&distinct=true',
    countName: 'num',
    lifeMs: [MINUTE_MS, 2 * MINUTE_MS],
    answer: (proxies) =>
      json({
        code: 'SUCCESS',
        data: proxies.map(({ ip, port, exit, city, carrier, endsAt }) => ({
          proxy_ip: exit,
          server: `${ip}:${port}`,
          area: city,
          isp: carrier,
          deadline: chinaTime(endsAt),
        })),
        request_id: '83158ebe-be6c-40f7-a158-000000000000',
      }),
    refuse: (why) =>
      json({
        code: {
          denied: 'INVALID_KEY',
          'too-fast': 'REQUEST_LIMIT_EXCEEDED',
          empty: 'NO_RESOURCE_FOUND',
        }[why],
        message: why,
        request_id: '83158ebe-be6c-40f7-a158-000000000000',
      }),
  },
  {
    name: 'xiaoxiangdaili',
    paceMs: 10 * SECOND_MS,
    keys: { appKey: '884248500000000000', appSecret: 'sandboxAppSecret' },
    query: 'cnt={count}&wt=json',
    countName: 'cnt',
    lifeMs: [2 * MINUTE_MS, 2 * MINUTE_MS],
    answer: (proxies) =>
      json({
        code: 200,
        success: true,
        data: proxies.map(({ ip, port, startedAt, endsAt }) => ({
          ip,
          port,
          realIp: null,
          startTime: chinaTime(startedAt),
          during: Math.round((endsAt - startedAt) / MINUTE_MS),
        })),
        msg: '操作成功',
      }),
    refuse: codes(
      {
        denied: [1006, '应用授权验证未通过'],
        'too-fast': [1010, '请求过于频繁'],
        empty: [1004, '连接池无响应'],
      },
      { success: false, data: null },
    ),
  },
  {
    name: 'asiyun',
    paceMs: SECOND_MS,
    keys: { orderId: 'sandboxorder1', sign: 'sandboxsign0123456789' },
    query: 'time=1795312800&type=1&num={count}&dataType=0&unbindTime=180',
    countName: 'num',
    lifeMs: [3 * MINUTE_MS, 3 * MINUTE_MS],
    answer: (proxies) =>
      json({
        serialNo: 'ca8ac15e5a1a4c89addf5c0be72f0000',
        code: 0,
        data: proxies.map(({ ip, port, exit, city }) => ({
          realIp: exit,
          pid: 18,
          cid: 188,
          area: city,
          ip,
          port,
        })),
      }),
    refuse: HTTP_LIKE_REFUSALS,
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
    answer: (proxies) =>
      json({
        code: 0,
        data: {
          count: proxies.length,
          items: proxies.map(({ ip, port, city, endsAt }) => ({
            city,
            expire_at: Math.floor(endsAt / SECOND_MS),
            ip,
            ip_port: `${ip}:${port}`,
            out_ip: '',
            port,
            source: 'sandbox',
            tags: [],
          })),
        },
      }),
    refuse: codes({
      denied: [401, 'unauthorized'],
      'too-fast': [429, 'too many requests'],
      empty: [404, 'no ip'],
    }),
  },
  {
    name: 'pinzan',
    paceMs: SECOND_MS,
    keys: { no: '20260101000000000000', secret: 'sandboxsecret' },
    query: 'num={count}&minute=3&format=json&pool=quality&mode=auth',
    countName: 'num',
    lifeMs: [3 * MINUTE_MS, 3 * MINUTE_MS],
    needsLogin: true,
    answer: (proxies) =>
      json({
        code: 0,
        status: 200,
        message: '',
        data: {
          list: proxies.map(({ ip, port, username, password, carrier }) => ({
            ip,
            port,
            account: username,
            password,
            net: carrier,
          })),
        },
      }),
    refuse: codes(
      { denied: [-1, '密钥错误'], 'too-fast': [-1, '请求过于频繁'], empty: [-1, '暂无IP'] },
      { data: null },
    ),
  },
];

function codes(
  meanings: Readonly<Record<LinkRefusal, readonly [code: number, message: string]>>,
  rest: object = {},
): LinkVendor['refuse'] {
  return (why) => {
    const [code, msg] = meanings[why];
    return json({ code, msg, ...rest });
  };
}

function countedList(proxies: readonly LinkProxy[]): object {
  const list = proxies.map(({ ip, port, secondsLeft }) => `${ip}:${port},${secondsLeft}`);
  return { count: list.length, proxy_list: list };
}

function json(value: object): Printed {
  return { contentType: 'application/json; charset=utf-8', body: JSON.stringify(value) };
}

function text(lines: readonly string[]): Printed {
  return { contentType: 'text/plain; charset=utf-8', body: lines.join('\r\n') };
}

/** Formats a moment as `2026-11-22 10:05:00` in China's time zone. */
function chinaTime(epochMs: number): string {
  return new Date(epochMs + CHINA_MS).toISOString().slice(0, 19).replace('T', ' ');
}
