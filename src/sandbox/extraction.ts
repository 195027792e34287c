/**
 * Answers one extraction call: refuses it with a code of the operation, or draws members and reports them.
 *
 * The specification leaves the order of the checks open. The sandbox checks in this order: parameters, instance, key,
 * rate limit, state and quotas of the instance, the client of a free application, available proxies. Source: the
 * service's specification, Endpoints, Errors, Limits.
 */
import { type RefusalReason, refusal, SUCCESS_CODE } from './codes.ts';
import { readExtractionQuery } from './extraction-query.ts';
import type { Instance } from './instance.ts';
import { type Answer, customLine, freeLine, type Layout, plainLine, type Value } from './layouts.ts';
import type { RunningMember } from './member.ts';
import type { AnswerFormat, Operation } from './operations.ts';

interface ExtractionCall {
  readonly operation: Operation;
  readonly params: URLSearchParams;
  readonly client: string;
  /** Whether the call came too early for the instance's rate limit. */
  readonly early: boolean;
}

/**
 * The sandbox adds this time to each remaining life before it rounds down to seconds. Opening a new proxy takes some
 * ms, so its reported life would otherwise be a second too short.
 */
const OPENING_MS = 50;

const LEVELS = ['高匿', '普匿', '匿名', '透明', '未知'] as const;

/**
 * Returns the format that a call selects. If it selects none or an invalid one, the format is JSON, so that the caller
 * can read the refusal.
 */
export function layoutOf(
  { operation, params }: Pick<ExtractionCall, 'operation' | 'params'>,
  instance: Instance | undefined,
): Layout {
  const format: AnswerFormat = operation.formats[params.get(operation.formatName) ?? ''] ?? 'json';
  const { textLayout, fields } = instance?.options ?? {};
  const defaultLine = operation.product === 'free' ? freeLine : plainLine;
  return { format, line: textLayout === undefined ? defaultLine : customLine(textLayout), fields };
}

/**
 * Answers a call to one of the operations 1 to 8. `instance` is undefined if the call names no instance of the product.
 */
export async function extract(call: ExtractionCall, instance: Instance | undefined): Promise<Answer> {
  const { operation, params } = call;
  const refuse = (reason: RefusalReason, detail?: string) => refusal(operation.refusals, reason, detail);
  const count = countOf(call, instance);
  if (count === undefined || !hasValidParameters(call)) return refuse('parameters');
  if (instance === undefined) return refuse('unknown');
  if (params.get('akey') !== instance.akey) return refuse('key');
  if (call.early) return refuse('pace');
  const reason = conditionReason(instance);
  if (reason !== undefined) return refuse(reason);
  const otherClient = operation.product === 'free' ? instance.clientLock.acquire(call.client) : undefined;
  if (otherClient !== undefined) return refuse('other-client', `：${otherClient}`);

  const { ledger, condition, options } = instance;
  const context = { ledger, condition, lifetimeMs: options.lifetimeMs };
  const members = await instance.members.draw(readExtractionQuery(call, context, count));
  return members.length === 0 ? refuse('none') : success(instance, members);
}

function hasValidParameters({ operation, params }: ExtractionCall): boolean {
  if (operation.formats[params.get(operation.formatName) ?? ''] === undefined) return false;
  if (!params.get(operation.idName) || !params.get('akey')) return false;
  return operation.parameters.every(({ name, required, isValid }) => {
    const value = params.get(name);
    return value === null || value === '' ? !required : isValid(value);
  });
}

/**
 * Returns the number of proxies that the call asks for; undefined if it is invalid or above the limit of the instance.
 */
function countOf({ operation, params }: ExtractionCall, instance: Instance | undefined): number | undefined {
  const limit = instance?.condition.singlePullLimit ?? 1;
  const text = params.get('count') ?? '';
  if (text === '') return operation.countRequired ? undefined : limit;
  if (!/^\d{1,9}$/.test(text) || Number(text) < 1) return undefined;
  return instance !== undefined && Number(text) > limit ? undefined : Number(text);
}

/**
 * Returns the first reason why the service currently refuses all calls for the instance; undefined if there is none.
 * Reasons for which the operation has no code do not count.
 */
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

/** Whether a quota is used up, so that the call gets 12008. Each product has its own quotas. */
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
    const entry = entryOf(member, isNew[at] ?? false, options.showOutIp ?? true);
    return Object.fromEntries(operation.fields.flatMap((name) => fieldOf(entry, name)));
  });
  if (operation.counters === 'pure') {
    const left = ledger.distinctLeft(condition);
    const msg = `获取成功，本次新增${added}个去重IP，今日剩余${left}个`;
    return {
      code: SUCCESS_CODE,
      msg,
      data: { counters: { dedup_count: added, today_left_count: left }, entries },
    };
  }
  const counters =
    operation.counters === 'residential'
      ? {
          update_count: added,
          active_count: members.alive.filter(({ exit }) => ledger.wasDrawn(exit.address)).length,
          today_count: ledger.today,
          ...(condition.accounting === 'even' ? {} : { surplus_count: ledger.distinctLeft(condition) }),
        }
      : {};
  return { code: SUCCESS_CODE, msg: '获取成功', data: { counters, entries } };
}

/** Returns all fields of a proxy. Each operation reports some of them. Times are in whole seconds, rounded down. */
function entryOf(
  member: RunningMember,
  isNew: boolean,
  showsExit: boolean,
): Readonly<Record<string, Value | undefined>> {
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

function fieldOf(entry: Readonly<Record<string, Value | undefined>>, name: string): [string, Value][] {
  const value = entry[name];
  return value === undefined ? [] : [[name, value]];
}
