/**
 * Answers the extraction links of `LINK_VENDORS` at `/links/NAME`. Each link has its own proxies and its own pace, and
 * can be set to give no proxies (see `LINK_CONDITIONS`).
 *
 * Written from the vendors' public pages and clients, which docs/links.md names, and not from noria's decoder. Codes
 * that no public page documents are guesses; docs/links.md lists them.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../core/clock.ts';
import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { localTime, RateLimiter } from './instance.ts';
import type { InstanceMembers, RunningMember } from './members.ts';
import { LOCATIONS } from './operations.ts';
import type { CommonSettings } from './settings.ts';
import { htmlPage, readBody, send } from './web-server.ts';

/** `denied`: the key, the method or a header is wrong, or the customer may not get proxies. */
type LinkRefusal = 'denied' | 'too-fast' | 'empty';

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
  /** One proxy; `proxyOf` has the values. */
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

export const LINK_CONDITIONS = ['ok', 'denied', 'empty'] as const;
export type LinkCondition = (typeof LINK_CONDITIONS)[number];

interface OpenLink {
  readonly vendor: LinkVendor;
  readonly members: InstanceMembers;
  readonly limiter: RateLimiter;
  condition: LinkCondition;
  calls: number;
  paceBreaks: number;
}

const MAX_COUNT = 200;
const MAX_BODY_BYTES = 65_536;
const MAINLAND = LOCATIONS.filter(({ region }) => region === 'mainland');

export type SandboxLink = ReturnType<LinkServer['list']>[number];

export class LinkServer {
  readonly #clock: Clock;
  readonly #settings: Pick<CommonSettings, 'paceMs' | 'lifetimeMs'>;
  readonly #links: ReadonlyMap<string, OpenLink>;

  /** @param settings - replace the pace and the lifetimes of all vendors. */
  constructor(clock: Clock, settings: CommonSettings, membersOf: (vendor: LinkVendor) => InstanceMembers) {
    this.#clock = clock;
    this.#settings = settings;
    this.#links = new Map(
      LINK_VENDORS.map((vendor) => [
        vendor.name,
        {
          vendor,
          members: membersOf(vendor),
          limiter: new RateLimiter({ calls: 1, withinMs: settings.paceMs ?? vendor.paceMs }, clock),
          condition: 'ok',
          calls: 0,
          paceBreaks: 0,
        },
      ]),
    );
  }

  get members(): readonly RunningMember[] {
    return [...this.#links.values()].flatMap(({ members }) => members.alive);
  }

  list(base: string) {
    return [...this.#links.values()].map(({ vendor, condition, calls, paceBreaks }) => {
      const { name, keys, query, authorization, body, paceMs } = vendor;
      const params = [...Object.entries(keys).map(([key, value]) => `${key}=${value}`), query];
      const text = params.filter((part) => part !== '').join('&');
      return {
        name,
        url: `${base}/links/${name}${text === '' ? '' : `?${text}`}`,
        ...(authorization === undefined ? {} : { authorization }),
        ...(body === undefined ? {} : { body }),
        paceMs: this.#settings.paceMs ?? paceMs,
        condition,
        calls,
        paceBreaks,
      };
    });
  }

  setCondition(name: string, condition: LinkCondition): void {
    const link = this.#links.get(name);
    if (link === undefined) throw new NoriaError('not-found', `no link ${name}`);
    link.condition = condition;
  }

  async answer(request: IncomingMessage, response: ServerResponse, name: string): Promise<void> {
    const link = this.#links.get(name);
    if (link === undefined) return send(response, 404, { type: 'text/html', body: htmlPage(404) });
    const { vendor } = link;
    const body = await readBody(request, MAX_BODY_BYTES);
    const params = new URL(request.url ?? '', 'http://vendor.example').searchParams;
    const refusal = this.#refusal(link, request, params);
    const drawn = refusal === undefined ? await this.#draw(link, countOf(vendor, params, body)) : [];
    const why = refusal ?? (drawn.length === 0 ? 'empty' : undefined);
    const type = vendor.answer === undefined ? 'text/plain' : 'application/json';
    send(response, 200, {
      type: `${type}; charset=utf-8`,
      body: why === undefined ? listAnswer(vendor, drawn) : refusalAnswer(vendor, why),
    });
  }

  #refusal(link: OpenLink, request: IncomingMessage, params: URLSearchParams): LinkRefusal | undefined {
    const { vendor, condition, limiter } = link;
    link.calls += 1;
    if (!limiter.admit()) {
      link.paceBreaks += 1;
      return 'too-fast';
    }
    const { keys, authorization, body } = vendor;
    const hasKeys = Object.entries(keys).every(([name, value]) => params.get(name) === value);
    const isMethodRight = request.method === (body === undefined ? 'GET' : 'POST');
    const isAuthorised = authorization === undefined || request.headers.authorization === authorization;
    if (!hasKeys || !isMethodRight || !isAuthorised) return 'denied';
    return condition === 'ok' ? undefined : condition;
  }

  async #draw({ vendor, members }: OpenLink, count: number): Promise<Values[]> {
    const { lifetimeMs = vendor.lifeMs } = this.#settings;
    const drawn = await members.draw({
      count,
      newAllowed: count,
      mayRepeat: () => true,
      kinds: [{ protocol: 'http', label: 'http' }],
      locations: MAINLAND,
      reverse: false,
      minRemainingMs: 0,
      lifeMs: typeof lifetimeMs === 'number' ? [lifetimeMs, lifetimeMs] : lifetimeMs,
      order: 'longest',
      levels: [1],
      checkedMinutes: [1],
      responseSeconds: [1],
      minAliveHours: 0,
    });
    return drawn.map((member) => proxyOf(member, this.#clock.now()));
  }
}

function countOf({ countName }: LinkVendor, params: URLSearchParams, body: string): number {
  const inBody = new RegExp(`"${countName}":\\s*"?(\\d+)`).exec(body)?.[1];
  const count = Number(params.get(countName) ?? inBody ?? 1);
  return Number.isInteger(count) ? Math.min(Math.max(count, 1), MAX_COUNT) : 1;
}

type Values = Readonly<Record<string, string | number>>;

function listAnswer({ entry, answer }: LinkVendor, proxies: readonly Values[]): string {
  const entries = proxies.map((proxy) => fill(entry, proxy));
  if (answer === undefined) return entries.join('\r\n');
  return fill(answer, { entryCount: entries.length, entries: entries.join(',') });
}

function refusalAnswer({ refusal, refusals }: LinkVendor, why: LinkRefusal): string {
  const [code, msg] = refusals[why];
  return fill(refusal, { code, msg });
}

function fill(template: string, values: Values): string {
  return template.replaceAll(/\{(\w+)\}/g, (_all, name: string) => {
    const value = values[name];
    if (value === undefined) throw new TypeError(`no value for {${name}} in ${template}`);
    return String(value);
  });
}

function proxyOf(member: RunningMember, now: number): Values {
  const { host, port, exit, remainingMs, traits, login } = member;
  const [city = '', carrier = ''] = traits.location.adr.split(' ');
  const startedAt = now - (member.onlineMs - traits.onlineMs);
  const endsAt = now + remainingMs;
  return {
    ip: host,
    port,
    exit: exit.address,
    city,
    carrier,
    secondsLeft: Math.floor(remainingMs / SECOND_MS),
    startedAt: chinaTime(startedAt),
    endsAt: chinaTime(endsAt),
    endsAtSeconds: Math.floor(endsAt / SECOND_MS),
    minutes: Math.round((endsAt - startedAt) / MINUTE_MS),
    username: login?.username ?? '',
    password: login?.password ?? '',
  };
}

function chinaTime(epochMs: number): string {
  return localTime(epochMs).replace('T', ' ');
}
