/**
 * Operation 9 lists the area lines from which an exclusive instance can get more servers. Operation 10 lists the
 * exclusive instances of an account. Both answer only in JSON. Source: the service's specification, Endpoints 9 and 10.
 */
import { DAY_MS } from '../core/duration.ts';
import type { Answer, Entry } from './answers.ts';
import { akeyOf, type Instance, localTime } from './instance.ts';
import { LOCATIONS, type RefusalCodes, refusal, SUCCESS_CODE } from './operations.ts';

export const AREAS_REFUSALS = {
  key: '14001',
  parameters: '14002',
  unknown: '14003',
  expired: '14004',
  frozen: '14005',
  none: '14006',
} as const satisfies RefusalCodes;

export const INSTANCES_REFUSALS = {
  parameters: '18001',
  key: '18002',
  none: '18003',
} as const satisfies RefusalCodes;

/** The account to which the exclusive instances belong. Its password is not secret. */
export interface Account {
  readonly username: string;
  readonly password: string;
}

const NEAR_EXPIRY_DAYS = 7;
const BOUGHT_DAYS = 60;
const RESET_PERIOD_MINUTES = 10;

const AREAS = LOCATIONS.filter(({ region }) => region === 'mainland').map(({ area }, at) => ({
  area,
  count: 1 + ((at * 7) % 12),
  score: at === 3 ? -1 : 70 + ((at * 11) % 30),
}));

export function listAreas(params: URLSearchParams, instance: Instance | undefined): Answer {
  if (!params.get('api') || !params.get('akey')) return refusal(AREAS_REFUSALS, 'parameters');
  if (instance === undefined) return refusal(AREAS_REFUSALS, 'unknown');
  if (params.get('akey') !== instance.akey) return refusal(AREAS_REFUSALS, 'key');
  if (instance.condition.expired) return refusal(AREAS_REFUSALS, 'expired');
  if (instance.condition.frozen) return refusal(AREAS_REFUSALS, 'frozen');
  const keywords = (params.get('areaKeyword') ?? '').split(',').filter((word) => word !== '');
  const items = AREAS.filter(
    ({ area }) => keywords.length === 0 || keywords.some((word) => area.includes(word)),
  );
  if (items.length === 0) return refusal(AREAS_REFUSALS, 'none');
  return { code: SUCCESS_CODE, msg: '获取成功', list: { name: 'serverList', items } };
}

export function listInstances(
  params: URLSearchParams,
  instances: readonly Instance[],
  account: Account,
  now: number,
): Answer {
  const [username, password, status = ''] = ['username', 'password', 'status'].map(
    (name) => params.get(name) ?? '',
  );
  if (!username || !password || !/^[123]?$/.test(status)) return refusal(INSTANCES_REFUSALS, 'parameters');
  if (username !== account.username || password !== akeyOf(account.password)) {
    return { ...refusal(INSTANCES_REFUSALS, 'key'), msg: '用户名或密码错误' };
  }
  const items = instances
    .filter((instance) => instance.product === 'exclusive' && hasStatus(instance, status))
    .map((instance) => recordOf(instance, now));
  if (items.length === 0) return { ...refusal(INSTANCES_REFUSALS, 'none'), msg: '没有符合条件的实例' };
  return { code: SUCCESS_CODE, msg: '获取成功', list: { name: 'instance_list', items } };
}

function hasStatus({ condition }: Instance, status: string): boolean {
  if (status === '3') return condition.expired;
  if (status === '2') return !condition.expired;
  return status === '' || (!condition.expired && condition.daysLeft <= NEAR_EXPIRY_DAYS);
}

function recordOf({ id, condition, options, members }: Instance, now: number): Entry {
  const expiresAt = now + (condition.expired ? -1 : condition.daysLeft) * DAY_MS;
  return {
    instanceId: id,
    status: condition.expired ? '已过期' : '正常',
    createTime: localTime(expiresAt - BOUGHT_DAYS * DAY_MS),
    expirationTime: localTime(expiresAt),
    serverMaxCount: members.max,
    serverCount: members.alive.length,
    resetPeriod: RESET_PERIOD_MINUTES,
    authorizationMode: options.auth === 'password' ? 1 : 0,
  };
}
