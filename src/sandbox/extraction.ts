/**
 * Decides one extraction call: refuses it with the operation's code, or draws members and says what the service says.
 *
 * The order of the checks is the stand-in's choice where the specification gives none: parameters, instance, key, pace,
 * the instance's condition, quotas, and what is left then. Source: service-spec, Endpoints, Errors, Limits.
 */
import { type Reason, SUCCESS, textFor } from './codes.ts';
import type { Demand, Kind } from './fleet.ts';
import type { Condition, Instance } from './instance.ts';
import { type Answer, customLine, freeLine, type Layout, plainLine, type Value } from './layouts.ts';
import type { Ledger } from './ledger.ts';
import type { Member } from './member.ts';
import type { Format, Operation, Product } from './operations.ts';
import { PLACES, type Place } from './places.ts';

export interface Call {
  readonly operation: Operation;
  readonly params: URLSearchParams;
  /** The caller's address. */
  readonly client: string;
  /** It came before the instance's pace allowed it. */
  readonly early: boolean;
}

const MINUTE_MS = 60_000;
/** A proxy made for an answer is told with its whole life, though some of it went by while it opened. */
const OPENING_MS = 50;
/** No proxy is made with less than this, so that one of `timespan` 0 is of use to somebody. */
const SHORTEST_LIFE_MS = 60_000;

/** The products whose distinct exits are counted against a total. */
const COUNTS_DISTINCT: ReadonlySet<Product> = new Set([
  'long-residential',
  'residential-socks5',
  'short-pure',
]);
const LEVELS = ['高匿', '普匿', '匿名', '透明', '未知'] as const;
const FREE_KINDS: Readonly<Record<string, Kind>> = {
  '1': { protocol: 'http', label: 'http' },
  '2': { protocol: 'socks4', label: 'socks4' },
  '3': { protocol: 'socks5', label: 'socks5' },
  '4': { protocol: 'http', label: 'https' },
};
const CHECKED_MINUTES = [1, 10, 30, 60, 90] as const;
const RESPONSE_SECONDS = [1, 3, 5, 10, 15] as const;
const ALIVE_HOURS = [1 / 6, 1 / 2, 1, 3, 10, 24, 48] as const;

/** The format that a call selects; JSON where it selects none, so that its refusal can be read. */
export function layoutOf(
  { operation, params }: Pick<Call, 'operation' | 'params'>,
  instance: Instance | undefined,
): Layout {
  const format: Format = operation.formats[params.get(operation.formatName) ?? ''] ?? 'json';
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

  const members = await instance.fleet.draw(demandOf(call, instance, count));
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
function conditionReason({ operation, condition, options, fleet, ledger }: Instance): Reason | undefined {
  const { product, refusals } = operation;
  const unbound = !condition.terminalIpBound && options.auth !== 'password';
  const connectionsUsedUp =
    product === 'long-residential' && reaches(fleet.connections, condition.connectionLimit);
  const trafficUsedUp = product === 'residential-socks5' && reaches(fleet.bytes, condition.trafficLimitBytes);
  const usedUp = reaches(ledger.handedOut, condition.usageLimit);
  const standing: readonly (readonly [Reason, boolean])[] = [
    ['expired', condition.expired],
    ['unknown', condition.expired], // where an operation has no code for expired alone
    ['frozen', condition.frozen],
    ['device', !condition.deviceAuthorised],
    ['unbound', unbound],
    ['quota', condition.restricted || usedUp || connectionsUsedUp || trafficUsedUp],
    ['distinct', distinctLeft(ledger, condition) === 0],
  ];
  return standing.find(([reason, stands]) => stands && refusals[reason] !== undefined)?.[0];
}

function reaches(used: number, limit: number | null): boolean {
  return limit !== null && used >= limit;
}

/** How many more distinct exits the instance may draw. */
function distinctLeft(ledger: Ledger, { accounting, distinctLimit }: Condition): number {
  if (accounting === 'even') return Number.POSITIVE_INFINITY;
  return Math.max(0, distinctLimit - (accounting === 'pay-per-use' ? ledger.ever : ledger.today));
}

/** The parameters in the sandbox's own words. */
function demandOf({ operation, params }: Call, instance: Instance, count: number): Demand {
  const { ledger, condition } = instance;
  const onlyNew = params.get('fitter') === '1' || params.get('dedup') === '1';
  const isCounted = COUNTS_DISTINCT.has(operation.product);
  return {
    count,
    newAllowed: isCounted ? distinctLeft(ledger, condition) : count,
    mayRepeat: (exit) => !onlyNew || !ledger.drawnToday(exit),
    kinds: kindsOf(operation, params),
    places: placesOf(params),
    reverse: reverseOf(params.get('tunnel')),
    ...livesOf(operation, params, instance.options.lifetimeMs),
    order: params.get('order') === '1' ? 'longest' : 'random',
    levels: chosen([1, 2, 3, 4, 5], params.get('level_type'), (level, wanted) => level === wanted),
    checkedMinutes: upTo(CHECKED_MINUTES, params.get('lastcheck_type')),
    responseSeconds: upTo(RESPONSE_SECONDS, params.get('sleep_type')),
    leastAliveHours: ALIVE_HOURS[Number(params.get('alive_type') ?? 0) - 1] ?? 0,
  };
}

function kindsOf({ protocol }: Operation, params: URLSearchParams): readonly Kind[] {
  if (protocol === 'pro') {
    return params.get('pro') === '2'
      ? [{ protocol: 'socks5', label: 'socks5' }]
      : [{ protocol: 'http', label: 'http' }];
  }
  if (protocol !== 'mixed') return [{ protocol, label: protocol }];
  const kind = FREE_KINDS[params.get('protocol_type') ?? ''];
  return kind === undefined ? Object.values(FREE_KINDS) : [kind];
}

/** Keywords are half-width comma separated; a place fits when it holds one of `adr`, the carrier, and none of `nadr`. */
function placesOf(params: URLSearchParams): readonly Place[] {
  const region = params.get('dalu') === '0' ? 'overseas' : 'mainland'; // only free proxies are elsewhere
  const words = (name: string) => (params.get(name) ?? '').split(',').filter((word) => word !== '');
  const [wanted, carriers, unwanted] = [words('adr'), words('isp'), words('nadr')];
  const holds = (place: Place, keywords: readonly string[]) =>
    keywords.some((word) => place.adr.includes(word));
  return PLACES.filter(
    (place) =>
      place.region === region &&
      (wanted.length === 0 || holds(place, wanted)) &&
      (carriers.length === 0 || holds(place, carriers)) &&
      !holds(place, unwanted),
  );
}

function reverseOf(tunnel: string | null): Demand['reverse'] {
  if (tunnel === '1') return 'either';
  return tunnel === '3';
}

/** Lives of new proxies, and what must be left of old ones: by `timespan`, unless the instance sets its own. */
function livesOf(
  { timespan, longestMinutes }: Operation,
  params: URLSearchParams,
  own: number | readonly [number, number] | undefined,
): Pick<Demand, 'leastRemainingMs' | 'lifeMs'> {
  if (own !== undefined) {
    return { leastRemainingMs: 0, lifeMs: typeof own === 'number' ? [own, own] : own };
  }
  const leastMs = timespan === undefined ? 0 : Number(params.get('timespan') ?? 0) * MINUTE_MS;
  const mostMs = (timespan?.topMinutes ?? longestMinutes) * MINUTE_MS;
  return { leastRemainingMs: leastMs, lifeMs: [Math.max(leastMs, SHORTEST_LIFE_MS), mostMs] };
}

/** The values up to the one that a selector from 1 names; all where it is left out. */
function upTo(values: readonly number[], selector: string | null): readonly number[] {
  return chosen(values, selector, (value, wanted) => values.indexOf(value) < wanted);
}

function chosen(
  values: readonly number[],
  selector: string | null,
  keeps: (value: number, wanted: number) => boolean,
): readonly number[] {
  return selector === null || selector === ''
    ? values
    : values.filter((value) => keeps(value, Number(selector)));
}

function success(
  { operation, options, condition, fleet, ledger }: Instance,
  members: readonly Member[],
): Answer {
  const fresh = members.map(({ exit }) => ledger.note(exit.address));
  const added = fresh.filter(Boolean).length;
  const entries = members.map((member, at) => {
    const entry = entryOf(member, fresh[at] ?? false, options.showOutIp ?? true);
    return Object.fromEntries(operation.fields.flatMap((name) => pairOf(entry, name)));
  });
  if (operation.product === 'short-pure') {
    const left = distinctLeft(ledger, condition);
    const msg = `获取成功，本次新增${added}个去重IP，今日剩余${left}个`;
    return {
      code: SUCCESS,
      msg,
      data: { counters: { dedup_count: added, today_left_count: left }, entries },
    };
  }
  const counters = COUNTS_DISTINCT.has(operation.product)
    ? {
        update_count: added,
        active_count: fleet.members.filter(({ exit }) => ledger.drawnEver(exit.address)).length,
        today_count: ledger.today,
        ...(condition.accounting === 'even' ? {} : { surplus_count: distinctLeft(ledger, condition) }),
      }
    : {};
  return { code: SUCCESS, msg: '获取成功', data: { counters, entries } };
}

/** Everything that any operation says of a proxy. Times are whole seconds, not more than is left. */
function entryOf(
  member: Member,
  isNew: boolean,
  showsExit: boolean,
): Readonly<Record<string, Value | undefined>> {
  const { traits } = member;
  const secondsLeft = Math.floor((member.remainingMs + OPENING_MS) / 1000);
  return {
    ip: member.host,
    port: member.port,
    adr: traits.place.adr,
    outip: member.exit.address,
    out_ip: showsExit ? member.exit.address : undefined,
    timeout: traits.reverse ? -1 : secondsLeft,
    expired_seconds: secondsLeft,
    cometime: Math.floor(member.onlineMs / 1000),
    is_new_dedup: isNew,
    protocol: traits.label,
    level: LEVELS[traits.level - 1],
    area: traits.place.area,
    id: traits.serverId,
    lastscore: traits.lastScore,
    yestodayscore: traits.yesterdayScore,
  };
}

function pairOf(entry: Readonly<Record<string, Value | undefined>>, name: string): [string, Value][] {
  const value = entry[name];
  return value === undefined ? [] : [[name, value]];
}

function refuse({ refusals }: Operation, reason: Reason, detail = ''): Answer {
  const code = refusals[reason];
  if (code === undefined) throw new TypeError(`the operation has no code for: ${reason}`);
  return { code, msg: textFor(reason) + detail };
}
