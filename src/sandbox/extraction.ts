/**
 * Decides one extraction call: refuses it with the operation's code, or draws members and says what the service says.
 *
 * The order of the checks is the stand-in's choice where the specification gives none: parameters, instance, key, pace,
 * the instance's condition, quotas, and what is left then. Source: service-spec, Endpoints, Errors, Limits.
 */
import { type RefusalReason, SUCCESS_CODE, textFor } from './codes.ts';
import { readExtractionQuery } from './extraction-query.ts';
import type { Instance } from './instance.ts';
import { type Answer, customLine, freeLine, type Layout, plainLine, type Value } from './layouts.ts';
import type { RunningMember } from './member.ts';
import type { AnswerFormat, Operation } from './operations.ts';

export interface Call {
  readonly operation: Operation;
  readonly params: URLSearchParams;
  /** The caller's address. */
  readonly client: string;
  /** It came before the instance's pace allowed it. */
  readonly early: boolean;
}

/** A proxy made for an answer is told with its whole life, though some of it went by while it opened. */
const OPENING_MS = 50;

const LEVELS = ['高匿', '普匿', '匿名', '透明', '未知'] as const;

/** The format that a call selects; JSON where it selects none, so that its refusal can be read. */
export function layoutOf(
  { operation, params }: Pick<Call, 'operation' | 'params'>,
  instance: Instance | undefined,
): Layout {
  const format: AnswerFormat = operation.formats[params.get(operation.formatName) ?? ''] ?? 'json';
  const { textLayout, fields } = instance?.options ?? {};
  const usual = operation.product === 'free' ? freeLine : plainLine;
  return { format, line: textLayout === undefined ? usual : customLine(textLayout), fields };
}

/** Answers a call of operations 1 to 8. `instance` is undefined when it names none of the operation's. */
export async function extract(call: Call, instance: Instance | undefined): Promise<Answer> {
  const { operation, params } = call;
  const count = countOf(call, instance);
  if (count === undefined || !hasGoodParameters(call)) return refuse(operation, 'parameters');
  if (instance === undefined) return refuse(operation, 'unknown');
  if (params.get('akey') !== instance.akey) return refuse(operation, 'key');
  if (call.early) return refuse(operation, 'pace');
  const reason = conditionReason(instance);
  if (reason !== undefined) return refuse(operation, reason);
  const otherClient = operation.product === 'free' ? instance.clients.note(call.client) : undefined;
  if (otherClient !== undefined) return refuse(operation, 'other-client', `：${otherClient}`);

  const { ledger, condition, options } = instance;
  const demand = readExtractionQuery(call, { ledger, condition, lifetimeMs: options.lifetimeMs }, count);
  const members = await instance.members.draw(demand);
  if (members.length === 0) return refuse(operation, 'none');
  return success(instance, members);
}

function hasGoodParameters({ operation, params }: Call): boolean {
  if (operation.formats[params.get(operation.formatName) ?? ''] === undefined) return false;
  if (!params.get(operation.idName) || !params.get('akey')) return false;
  return operation.parameters.every(({ name, required, fits }) => {
    const value = params.get(name);
    return value === null || value === '' ? !required : fits(value);
  });
}

/** How many proxies are asked for; undefined when that is no number, or more than the instance may have. */
function countOf({ operation, params }: Call, instance: Instance | undefined): number | undefined {
  const limit = instance?.condition.singlePullLimit ?? 1;
  const text = params.get('count') ?? '';
  if (text === '') return operation.countRequired ? undefined : limit;
  if (!/^\d{1,9}$/.test(text) || Number(text) < 1) return undefined;
  return instance !== undefined && Number(text) > limit ? undefined : Number(text);
}

/** What stands against a call whatever it asks for, as far as the operation has a code for it. */
function conditionReason(instance: Instance): RefusalReason | undefined {
  const { condition, options, ledger } = instance;
  const standing: readonly (readonly [RefusalReason, boolean])[] = [
    ['expired', condition.expired],
    ['unknown', condition.expired], // where an operation has no code for expired alone
    ['frozen', condition.frozen],
    ['device', !condition.deviceAuthorised],
    ['unbound', !condition.terminalIpBound && options.auth !== 'password'],
    ['quota', quotaIsUsedUp(instance)],
    ['distinct', ledger.distinctLeft(condition) === 0],
  ];
  const { refusals } = instance.operation;
  return standing.find(([reason, stands]) => stands && refusals[reason] !== undefined)?.[0];
}

/** 12008 means something else for almost every operation. */
function quotaIsUsedUp({ product, condition, members: fleet, ledger }: Instance): boolean {
  const usageIsUp = reaches(ledger.handedOut, condition.usageLimit);
  if (product === 'long-residential') return reaches(fleet.connections, condition.connectionLimit);
  if (product === 'residential-socks5') return usageIsUp || reaches(fleet.bytes, condition.trafficLimitBytes);
  return product === 'short-pure' ? condition.restricted : usageIsUp;
}

function reaches(used: number, limit: number | null): boolean {
  return limit !== null && used >= limit;
}

function success(
  { operation, options, condition, members: fleet, ledger }: Instance,
  members: readonly RunningMember[],
): Answer {
  const fresh = members.map(({ exit }) => ledger.note(exit.address));
  const added = fresh.filter(Boolean).length;
  const entries = members.map((member, at) => {
    const entry = entryOf(member, fresh[at] ?? false, options.showOutIp ?? true);
    return Object.fromEntries(operation.fields.flatMap((name) => pairOf(entry, name)));
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
          active_count: fleet.members.filter(({ exit }) => ledger.drawnEver(exit.address)).length,
          today_count: ledger.today,
          ...(condition.accounting === 'even' ? {} : { surplus_count: ledger.distinctLeft(condition) }),
        }
      : {};
  return { code: SUCCESS_CODE, msg: '获取成功', data: { counters, entries } };
}

/** Everything that any operation says of a proxy. Times are whole seconds, not more than is left. */
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

function pairOf(entry: Readonly<Record<string, Value | undefined>>, name: string): [string, Value][] {
  const value = entry[name];
  return value === undefined ? [] : [[name, value]];
}

function refuse({ refusals }: Operation, reason: RefusalReason, detail = ''): Answer {
  const code = refusals[reason];
  if (code === undefined) throw new TypeError(`the operation has no code for: ${reason}`);
  return { code, msg: textFor(reason) + detail };
}
