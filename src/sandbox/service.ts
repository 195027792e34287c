/**
 * The HTTP side of the extraction service. It reads each call (GET or POST), gets the answer from a rule or from the
 * operation, sends the answer, and records the call.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../core/clock.ts';
import { DAY_MS } from '../core/duration.ts';
import {
  type Answer,
  type Entry,
  type Layout,
  plainLine,
  print,
  replacesAnswer,
  sendAnswer,
  sendFault,
} from './answers.ts';
import { extract, layoutOf, type ServiceCall } from './extraction.ts';
import { akeyOf, type Instance, localTime } from './instance.ts';
import {
  LOCATIONS,
  type Operation,
  type RefusalCodes,
  refusal,
  SANDBOX_OPERATIONS,
  type SandboxOperationName,
  SUCCESS_CODE,
  textForCode,
} from './operations.ts';
import type { RuleAnswer, Rules } from './scenario.ts';
import { htmlPage, readBody, send, type WebServer } from './web-server.ts';

export const AREAS_REFUSALS = {
  key: '14001',
  parameters: '14002',
  unknown: '14003',
  expired: '14004',
  frozen: '14005',
  none: '14006',
} as const satisfies RefusalCodes;

const INSTANCES_REFUSALS = {
  parameters: '18001',
  key: '18002',
  none: '18003',
} as const satisfies RefusalCodes;

/** The account to which the exclusive instances belong. Its password is not secret. */
export interface Account {
  readonly username: string;
  readonly password: string;
}

interface ServiceState {
  readonly instances: readonly Instance[];
  readonly account: Account;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly clock: Clock;
}

interface Endpoint extends Pick<Operation, 'path' | 'product' | 'refusals'> {
  readonly name: SandboxOperationName;
  readonly idName: string | undefined;
  readonly hasRateLimit: boolean;
  readonly decide: (call: ServiceCall, state: ServiceState) => Answer | Promise<Answer>;
  readonly layout: (call: ServiceCall) => Layout;
}

const MAX_BODY_BYTES = 65_536;
/** For endpoints that answer only in JSON. */
const LIST = { hasRateLimit: false, layout: (): Layout => ({ format: 'json', line: plainLine }) };

const ENDPOINTS: readonly Endpoint[] = [
  ...SANDBOX_OPERATIONS.map(
    (operation): Endpoint => ({
      ...operation,
      name: operation.product,
      hasRateLimit: true,
      decide: (call) => extract(operation, call),
      layout: (call) => layoutOf(operation, call),
    }),
  ),
  {
    ...LIST,
    name: 'areas',
    path: '/ExclusiveProxy/GetAddibleServerList/',
    idName: 'api',
    product: 'exclusive',
    refusals: AREAS_REFUSALS,
    decide: ({ params, instance }) => listAreas(params, instance),
  },
  {
    ...LIST,
    name: 'instances',
    path: '/ExclusiveProxy/GetInstanceList/',
    idName: undefined,
    product: 'exclusive',
    refusals: INSTANCES_REFUSALS,
    decide: ({ params }, { instances, account, clock }) =>
      listInstances(params, instances, account, clock.now()),
  },
];

/** @param isExtraction - whether the server is the extraction server, which has only `short-pure`. */
export async function answerCall(
  state: ServiceState,
  server: WebServer,
  response: ServerResponse,
  isExtraction: boolean,
): Promise<void> {
  const { rules, log, clock } = state;
  const arrivedAt = clock.monotonic();
  const { req: request } = response;
  const { method = '' } = request;
  const url = URL.parse(request.url ?? '', 'http://service.example');
  const endpoint = ENDPOINTS.find(
    ({ name, path }) => path === url?.pathname && (name === 'short-pure') === isExtraction,
  );
  if (url === null || endpoint === undefined) return sendPage(response, 404);
  if (method !== 'GET' && method !== 'POST') return sendPage(response, 405);

  const params = await readParams(request, url);
  const id = endpoint.idName === undefined ? '' : (params.get(endpoint.idName) ?? '');
  const instance = state.instances.find((known) => known.id === id && known.product === endpoint.product);
  const early = endpoint.hasRateLimit && instance !== undefined && !instance.rateLimiter.admit();
  const client = request.socket.remoteAddress ?? '';
  const call = { params, client, instance, early };
  // called before the answer is sent, so that a client with an answer always finds the record
  const record = (outcome: string) => {
    const facts = { operation: endpoint.name, instance: id, method, client, arrivedAt, early };
    log.add({ ...facts, params: Object.fromEntries(params), outcome });
  };

  const rule = rules.answerTo(endpoint.name, id);
  if (rule !== undefined && 'body' in rule) {
    record('body');
    const { body, contentType = 'application/json; charset=utf-8', status = 200 } = rule;
    return send(response, status, { type: contentType, body });
  }
  const fault = rule !== undefined && 'fault' in rule ? rule : undefined;
  if (fault !== undefined && replacesAnswer(fault)) {
    record(`fault:${fault.fault}`);
    return sendFault(response, server, fault);
  }
  const answer =
    rule !== undefined && 'code' in rule
      ? answerWithCode(rule, endpoint)
      : await endpoint.decide(call, state);
  record(fault === undefined ? answer.code : `fault:${fault.fault}`);
  const printed = print(answer, endpoint.layout(call), fault?.fault === 'wrong-format');
  return sendAnswer(response, server, printed, fault);
}

function answerWithCode(
  { code, msg }: Extract<RuleAnswer, { code: string }>,
  { refusals, name }: Endpoint,
): Answer {
  const envelope = { code, msg: msg ?? textForCode(refusals, code) };
  if (code !== SUCCESS_CODE) return envelope;
  if (name === 'areas') return { ...envelope, list: { name: 'serverList', items: [] } };
  if (name === 'instances') return { ...envelope, list: { name: 'instance_list', items: [] } };
  return { ...envelope, data: { counters: {}, entries: [] } };
}

function sendPage(response: ServerResponse, status: number): void {
  send(response, status, { type: 'text/html', body: htmlPage(status) });
}

async function readParams(request: IncomingMessage, url: URL): Promise<URLSearchParams> {
  const params = new URLSearchParams(url.search);
  if (request.method !== 'POST') return params;
  const form = new URLSearchParams(await readBody(request, MAX_BODY_BYTES));
  for (const [name, value] of form) params.set(name, value);
  return params;
}

/*
 * Operation 9 lists the area lines from which an exclusive instance can get more servers. Operation 10 lists the
 * exclusive instances of an account. Both answer only in JSON. Source: the service's specification, Endpoints 9 and 10.
 */

const NEAR_EXPIRY_DAYS = 7;
const BOUGHT_DAYS = 60;
const RESET_PERIOD_MINUTES = 10;

const AREAS = LOCATIONS.filter(({ region }) => region === 'mainland').map(({ area }, at) => ({
  area,
  count: 1 + ((at * 7) % 12),
  score: at === 3 ? -1 : 70 + ((at * 11) % 30),
}));

function listAreas(params: URLSearchParams, instance: Instance | undefined): Answer {
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

function listInstances(
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

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /** The instance id in the call, even if there is no such instance; empty if the call contains none. */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  readonly client: string;
  readonly arrivedAt: number;
  /**
   * Whether the call came too early for the rate limit. The service does not always answer such a call with 12002 (rate
   * limit): a rule of the scenario or another check may come first.
   */
  readonly early: boolean;
  readonly outcome: string;
}

const KEPT_CALLS = 1000;
const NONE = { calls: 0, paceBreaks: 0, codes: {} as Readonly<Record<string, number>> };

export class CallLog {
  #latest: CallRecord[] = [];
  #all = NONE;
  readonly #instances = new Map<string, typeof NONE>();

  add(record: CallRecord): void {
    this.#latest.push(record);
    if (this.#latest.length > KEPT_CALLS) this.#latest.shift();
    this.#all = count(this.#all, record);
    if (record.instance === '') return;
    this.#instances.set(record.instance, count(this.#instances.get(record.instance) ?? NONE, record));
  }

  get latest(): readonly CallRecord[] {
    return [...this.#latest];
  }

  /** @param instances - the ids to list even if they had no calls. */
  stats(instances: readonly string[]) {
    const counts = new Map([...instances.map((id) => [id, NONE] as const), ...this.#instances]);
    return { ...this.#all, instances: Object.fromEntries(counts) };
  }

  reset(): void {
    this.#latest = [];
    this.#all = NONE;
    this.#instances.clear();
  }
}

function count({ calls, paceBreaks, codes }: typeof NONE, { early, outcome }: CallRecord) {
  return {
    calls: calls + 1,
    paceBreaks: paceBreaks + (early ? 1 : 0),
    codes: { ...codes, [outcome]: (codes[outcome] ?? 0) + 1 },
  };
}
