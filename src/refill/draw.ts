/**
 * Applies a draw that has ended: adds its members to the pool, counts the draw, and emits `draw.done`. The turn
 * (source-turn.ts) makes the call.
 */
import { hash } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import type { EventBus, NoriaEvents } from '../core/events.ts';
import type { AddedMembers, DrawnMember } from '../pool/drawn-member.ts';
import type { DrawAnswer } from '../service/answer.ts';
import { SUCCESS } from '../service/codes.ts';
import type { DrawnEntry } from '../service/fields.ts';
import type { DrawSourceOptions, RefillPool } from './options.ts';
import type { DrawOutcome } from './reaction.ts';
import type { SourceStatistics } from './source-statistics.ts';

export interface DrawContext {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: RefillPool;
  readonly statistics: SourceStatistics;
}

export interface EndedDraw {
  readonly options: DrawSourceOptions;
  /** The monotonic moment at which noria began to connect to the service. */
  readonly startedAt: number;
  readonly asked: number;
  readonly outcome: DrawOutcome;
  /** Absent if the service did not answer. */
  readonly answer?: DrawAnswer;
}

/**
 * When the service reports too many connections, noria multiplies the limit of the source's open tunnels by this
 * factor. If there is no limit, the new limit is this factor times the source's number of open tunnels.
 */
export const TUNNEL_SHARE = 0.5;
const NONE_ADDED: AddedMembers = { joined: 0, renewed: 0, rejected: 0 };

/**
 * Applies the draw to the pool and to the statistics.
 *
 * @returns how many more members will be usable in `aheadMs` because of the draw.
 */
export function applyDraw(context: DrawContext, draw: EndedDraw, aheadMs: number): number {
  const { clock, bus, pool, statistics } = context;
  const { options, startedAt, asked, outcome, answer } = draw;
  const source = options.name;
  const ms = clock.monotonic() - startedAt;
  const usable = () => pool.usableAt(source, clock.monotonic() + aheadMs);
  const usableBefore = usable();
  if (outcome.limitsConnections) pool.limitTunnels(source, TUNNEL_SHARE);
  else if (outcome.code === SUCCESS) pool.unlimitTunnels(source);
  const added = answer === undefined ? NONE_ADDED : addToPool(context, options, answer);
  if (answer !== undefined) statistics.recordLatency(ms);
  const gained = usable() - usableBefore;
  bus.emit('draw.done', drawDone({ source, asked, ms }, draw, added));
  return gained;
}

function addToPool(
  { pool, clock, statistics }: DrawContext,
  options: DrawSourceOptions,
  answer: DrawAnswer,
): AddedMembers {
  statistics.quota = { ...statistics.quota, ...answer.quota };
  statistics.countForbidden(forbiddenIn(answer));
  if (answer.entries.length === 0) return NONE_ADDED;
  if (options.dailyBudget !== undefined) statistics.budget.add(answer.entries.map(distinctIp), clock.now());
  const members = answer.entries.flatMap((entry) => drawnMember(entry, answer.sentAt, options) ?? []);
  const added = pool.addMembers(options.name, members);
  statistics.counts.drawn += added.joined;
  return added;
}

/**
 * Returns the text by which the budget counts distinct IPs: the exit IP, if the entry names it. Otherwise the text is
 * the address, with a hash of the user name if the entry has one, because several exits may share an address.
 */
function distinctIp({ exitIp, host, port, login }: DrawnEntry): string {
  if (exitIp !== undefined) return exitIp;
  return login === undefined ? `${host}:${port}` : `${host}:${port} ${hash('sha256', login.username)}`;
}

/** Builds the member for the pool. Returns undefined if neither the entry nor the source names a protocol. */
function drawnMember(entry: DrawnEntry, sentAt: number, options: DrawSourceOptions): DrawnMember | undefined {
  const { host, port, exitIp, location, login } = entry;
  const protocol = entry.protocol ?? options.protocol;
  if (protocol === undefined) return undefined;
  const lifetimeMs =
    entry.lifetimeMs === 'unknown' ? undefined : (entry.lifetimeMs ?? options.defaultLifetimeMs);
  const facts = factsOf(entry);
  return {
    protocol,
    host,
    port,
    endsAt: lifetimeMs === undefined ? undefined : sentAt + lifetimeMs,
    unproven: options.unproven,
    ...(exitIp === undefined ? {} : { exitIp }),
    ...(location === undefined ? {} : { location }),
    ...(login === undefined ? {} : { login }),
    ...(facts === undefined ? {} : { facts }),
  };
}

function factsOf(entry: DrawnEntry): DrawnMember['facts'] {
  const { area, serverId, lastScore, yesterdayScore, level, isNew, onlineMs } = entry;
  const all = { area, serverId, lastScore, yesterdayScore, level, isNew, onlineMs };
  const facts: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(all)) if (value !== undefined) facts[name] = value;
  return Object.keys(facts).length === 0 ? undefined : facts;
}

/**
 * Builds the event for a draw that has ended. The numbers `received` and `rejected` include the entries that noria
 * dropped.
 */
function drawDone(
  ended: Pick<NoriaEvents['draw.done'], 'source' | 'asked' | 'ms'>,
  { outcome, answer }: EndedDraw,
  { joined, renewed }: AddedMembers,
): NoriaEvents['draw.done'] {
  const dropped = Object.values(answer?.dropped ?? {}).reduce((total, number) => total + number, 0);
  const received = (answer?.entries.length ?? 0) + dropped;
  const { code, message } = outcome;
  return {
    ...ended,
    code,
    received,
    joined,
    renewed,
    rejected: received - joined - renewed,
    forbidden: forbiddenIn(answer),
    ...(code === SUCCESS || message === undefined ? {} : { message }),
  };
}

/**
 * The number of proxies that cost money, but that noria must not use: their address is private, or it is noria's own
 * address.
 */
function forbiddenIn(answer: DrawAnswer | undefined): number {
  const { private: privateCount = 0, own = 0 } = answer?.dropped ?? {};
  return privateCount + own;
}
