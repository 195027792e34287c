/**
 * Answers one extraction call: refuses it with a code of the operation, or draws members and reports them.
 *
 * The specification leaves the order of the checks open. The sandbox checks in this order: parameters, instance, key,
 * rate limit, state and quotas of the instance, the client of a free application, available proxies. Source: the
 * service's specification, Endpoints, Errors, Limits.
 */
import { MINUTE_MS } from '../core/duration.ts';
import { type Answer, customLine, freeLine, type Layout, plainLine, type Value } from './answers.ts';
import type { Instance } from './instance.ts';
import type { ExtractionQuery, RunningMember } from './members.ts';
import {
  LOCATIONS,
  type Operation,
  type RefusalReason,
  refusal,
  type SandboxLocation,
  SUCCESS_CODE,
} from './operations.ts';

export interface ServiceCall {
  readonly params: URLSearchParams;
  readonly client: string;
  readonly instance: Instance | undefined;
  /** Whether the call came too early for the instance's rate limit. */
  readonly early: boolean;
}

/** Opening a new proxy takes some ms, so its life in whole seconds would otherwise be a second too short. */
const OPENING_MS = 50;

const LEVELS = ['高匿', '普匿', '匿名', '透明', '未知'] as const;

/** If a call selects no format or an invalid one, the format is JSON, so that the caller can read the refusal. */
export function layoutOf(operation: Operation, { params, instance }: ServiceCall): Layout {
  const format = operation.formats[params.get(operation.formatName) ?? ''] ?? 'json';
  const { textLayout, fields } = instance?.options ?? {};
  const defaultLine = operation.product === 'free' ? freeLine : plainLine;
  return { format, line: textLayout === undefined ? defaultLine : customLine(textLayout), fields };
}

export async function extract(operation: Operation, call: ServiceCall): Promise<Answer> {
  const { params, instance } = call;
  const refuse = (reason: RefusalReason, detail?: string) => refusal(operation.refusals, reason, detail);
  const count = countOf(operation, call);
  if (count === undefined || !hasValidParameters(operation, params)) return refuse('parameters');
  if (instance === undefined) return refuse('unknown');
  if (params.get('akey') !== instance.akey) return refuse('key');
  if (call.early) return refuse('pace');
  const reason = conditionReason(instance);
  if (reason !== undefined) return refuse(reason);
  const otherClient = operation.product === 'free' ? instance.clientLock.acquire(call.client) : undefined;
  if (otherClient !== undefined) return refuse('other-client', `：${otherClient}`);

  const members = await instance.members.draw(readExtractionQuery(instance, params, count));
  return members.length === 0 ? refuse('none') : success(instance, members);
}

function hasValidParameters(operation: Operation, params: URLSearchParams): boolean {
  if (operation.formats[params.get(operation.formatName) ?? ''] === undefined) return false;
  if (!params.get(operation.idName) || !params.get('akey')) return false;
  return operation.parameters.every(({ name, required, isValid }) => {
    const value = params.get(name);
    return value === null || value === '' ? !required : isValid(value);
  });
}

/** Undefined if the count is invalid or above the limit of the instance. */
function countOf(operation: Operation, { params, instance }: ServiceCall): number | undefined {
  const limit = instance?.condition.singlePullLimit ?? 1;
  const text = params.get('count') ?? '';
  if (text === '') return operation.countRequired ? undefined : limit;
  if (!/^\d{1,9}$/.test(text) || Number(text) < 1) return undefined;
  return instance !== undefined && Number(text) > limit ? undefined : Number(text);
}

/** The first reason, for which the operation has a code, why the service now refuses all calls for the instance. */
function conditionReason(instance: Instance): RefusalReason | undefined {
  const { condition, options, ledger } = instance;
  const reasons: readonly (readonly [RefusalReason, boolean])[] = [
    ['expired', condition.expired],
    ['unknown', condition.expired], // used if the operation has no code for `expired`
    ['frozen', condition.frozen],
    ['device', !condition.deviceAuthorised],
    ['unbound', !condition.terminalIpBound && options.auth !== 'password'],
    ['quota', isQuotaUsedUp(instance)],
    ['distinct', ledger.distinctLeft(condition) === 0],
  ];
  const { refusals } = instance.operation;
  return reasons.find(([reason, applies]) => applies && refusals[reason] !== undefined)?.[0];
}

/** Whether the call gets 12008. Each product has its own quotas. */
function isQuotaUsedUp({ product, condition, members, ledger }: Instance): boolean {
  const isUsedUp = reaches(ledger.handedOut, condition.usageLimit);
  if (product === 'long-residential') return reaches(members.connections, condition.connectionLimit);
  if (product === 'residential-socks5')
    return isUsedUp || reaches(members.bytes, condition.trafficLimitBytes);
  return product === 'short-pure' ? condition.restricted : isUsedUp;
}

function reaches(used: number, limit: number | null): boolean {
  return limit !== null && used >= limit;
}

function success(instance: Instance, drawn: readonly RunningMember[]): Answer {
  const { operation, options, condition, members, ledger } = instance;
  const isNew = drawn.map(({ exit }) => ledger.record(exit.address));
  const added = isNew.filter(Boolean).length;
  const entries = drawn.map((member, at) => {
    const entry: Readonly<Record<string, Value | undefined>> = entryOf(
      member,
      isNew[at] ?? false,
      options.showOutIp ?? true,
    );
    return Object.fromEntries(
      operation.fields.flatMap((name) => (entry[name] === undefined ? [] : [[name, entry[name]]])),
    );
  });
  if (operation.counters === 'pure') {
    const left = ledger.distinctLeft(condition);
    const msg = `获取成功，本次新增${added}个去重IP，今日剩余${left}个`;
    const counters = { dedup_count: added, today_left_count: left };
    return { code: SUCCESS_CODE, msg, data: { counters, entries } };
  }
  const counters = operation.counters === 'residential' && {
    update_count: added,
    active_count: members.alive.filter(({ exit }) => ledger.wasDrawn(exit.address)).length,
    today_count: ledger.today,
    ...(condition.accounting === 'even' ? {} : { surplus_count: ledger.distinctLeft(condition) }),
  };
  return { code: SUCCESS_CODE, msg: '获取成功', data: { counters: counters || {}, entries } };
}

function entryOf(member: RunningMember, isNew: boolean, showsExit: boolean) {
  const { traits } = member;
  const secondsLeft = Math.floor((member.remainingMs + OPENING_MS) / 1000);
  return {
    ip: member.host,
    port: member.port,
    adr: traits.location.adr,
    outip: member.exit.address,
    out_ip: showsExit ? member.exit.address : undefined,
    timeout: traits.reverse ? -1 : secondsLeft,
    expired_seconds: secondsLeft,
    cometime: Math.floor(member.onlineMs / 1000),
    is_new_dedup: isNew,
    protocol: traits.label,
    level: LEVELS[traits.level - 1],
    area: traits.location.area,
    id: traits.serverId,
    lastscore: traits.lastScore,
    yestodayscore: traits.yesterdayScore,
  };
}

/** The minimum life of new proxies if the call sets none. Proxies with a shorter life would be useless. */
const MIN_LIFE_MS = 60_000;

const FREE_KINDS: Readonly<Record<string, ExtractionQuery['kinds'][number]>> = {
  '1': { protocol: 'http', label: 'http' },
  '2': { protocol: 'socks4', label: 'socks4' },
  '3': { protocol: 'socks5', label: 'socks5' },
  '4': { protocol: 'http', label: 'https' },
};
const CHECKED_MINUTES = [1, 10, 30, 60, 90] as const;
const RESPONSE_SECONDS = [1, 3, 5, 10, 15] as const;
const ALIVE_HOURS = [1 / 6, 1 / 2, 1, 3, 10, 24, 48] as const;

function readExtractionQuery(
  { operation, ledger, condition, options }: Instance,
  params: URLSearchParams,
  count: number,
): ExtractionQuery {
  const onlyNew = params.get('fitter') === '1' || params.get('dedup') === '1';
  return {
    count,
    newAllowed: operation.counters === undefined ? count : ledger.distinctLeft(condition),
    mayRepeat: (exit) => !onlyNew || !ledger.wasDrawnToday(exit),
    kinds: kindsOf(operation, params),
    locations: locationsOf(params),
    reverse: params.get('tunnel') === '1' ? 'either' : params.get('tunnel') === '3',
    ...livesOf(operation, params, options.lifetimeMs),
    order: params.get('order') === '1' ? 'longest' : 'random',
    levels: params.get('level_type') ? [Number(params.get('level_type'))] : [1, 2, 3, 4, 5],
    checkedMinutes: upTo(CHECKED_MINUTES, params.get('lastcheck_type')),
    responseSeconds: upTo(RESPONSE_SECONDS, params.get('sleep_type')),
    minAliveHours: ALIVE_HOURS[Number(params.get('alive_type') ?? 0) - 1] ?? 0,
  };
}

function kindsOf({ protocol }: Operation, params: URLSearchParams): ExtractionQuery['kinds'] {
  if (protocol === 'pro') {
    return params.get('pro') === '2'
      ? [{ protocol: 'socks5', label: 'socks5' }]
      : [{ protocol: 'http', label: 'http' }];
  }
  if (protocol !== 'mixed') return [{ protocol, label: protocol }];
  const kind = FREE_KINDS[params.get('protocol_type') ?? ''];
  return kind === undefined ? Object.values(FREE_KINDS) : [kind];
}

function locationsOf(params: URLSearchParams): readonly SandboxLocation[] {
  const region = params.get('dalu') === '0' ? 'overseas' : 'mainland'; // only the free product has the parameter `dalu`
  const words = (name: string) => (params.get(name) ?? '').split(',').filter((word) => word !== '');
  const [included, carriers, excluded] = [words('adr'), words('isp'), words('nadr')];
  const contains = ({ adr }: SandboxLocation, keywords: readonly string[]) =>
    keywords.some((word) => adr.includes(word));
  return LOCATIONS.filter(
    (location) =>
      location.region === region &&
      (included.length === 0 || contains(location, included)) &&
      (carriers.length === 0 || contains(location, carriers)) &&
      !contains(location, excluded),
  );
}

function livesOf(
  { parameters, longestMinutes }: Operation,
  params: URLSearchParams,
  own: Instance['options']['lifetimeMs'],
): Pick<ExtractionQuery, 'minRemainingMs' | 'lifeMs'> {
  if (own !== undefined) return { minRemainingMs: 0, lifeMs: typeof own === 'number' ? [own, own] : own };
  const hasTimespan = parameters.some(({ name }) => name === 'timespan');
  const minMs = hasTimespan ? Number(params.get('timespan') ?? 0) * MINUTE_MS : 0;
  return { minRemainingMs: minMs, lifeMs: [Math.max(minMs, MIN_LIFE_MS), longestMinutes * MINUTE_MS] };
}

/** The first values, up to the number that the call gives; all if it gives none. */
function upTo(values: readonly number[], selector: string | null): readonly number[] {
  return values.slice(0, Number(selector || values.length));
}
