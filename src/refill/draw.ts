/** One draw: calls the service, adds the members to the pool, counts and reports. The source decides when to draw and what follows. */
import type { Clock } from '../core/clock.ts';
import type { EventBus, NoriaEvents } from '../core/events.ts';
import type { AddedMembers, DrawnMember } from '../pool/drawn-member.ts';
import type { DrawAnswer, DrawnEntry } from '../service/answer.ts';
import { SUCCESS } from '../service/codes.ts';
import type { DrawSourceOptions, Extractor, RefillPool } from './options.ts';
import { type DrawOutcome, outcomeOfAnswer, outcomeOfError } from './reaction.ts';
import type { SourceRecords } from './source-records.ts';

export interface DrawContext {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly extractor: Extractor;
  readonly pool: RefillPool;
}

export interface Draw {
  readonly options: DrawSourceOptions;
  readonly records: SourceRecords;
  readonly count: number;
  /** How far ahead `gained` is measured. */
  readonly aheadMs: number;
  readonly signal: AbortSignal;
}

export interface DrawResult {
  readonly outcome: DrawOutcome;
  /** How many more members will be usable `aheadMs` from now because of the draw. */
  readonly gained: number;
}

/** The share of its tunnels that an instance with too many connections keeps. */
const TUNNEL_SHARE = 0.5;
const NONE_ADDED: AddedMembers = { joined: 0, renewed: 0, rejected: 0 };

/** Makes one draw. Returns undefined when `signal` aborted it. @throws only for a defect of the program. */
export async function makeDraw(context: DrawContext, draw: Draw): Promise<DrawResult | undefined> {
  const { clock, bus, pool } = context;
  const { options, records, count, signal } = draw;
  bus.emit('draw.started', { source: options.name, asked: count });
  const startedAt = clock.monotonic();
  const call = await callService(context, draw);
  if (call === undefined) return undefined;

  const { outcome, answer } = call;
  const ms = clock.monotonic() - startedAt;
  const usable = () => pool.usableAt(options.name, clock.monotonic() + draw.aheadMs);
  const usableBefore = usable();
  if (outcome.limitsConnections) pool.limitTunnels(options.name, TUNNEL_SHARE);
  else if (outcome.code === SUCCESS) pool.unlimitTunnels(options.name);
  const added = answer === undefined ? NONE_ADDED : addToPool(context, draw, answer);
  const gained = usable() - usableBefore;
  records.countCall(outcome.code, answer === undefined ? undefined : ms);
  bus.emit('draw.done', drawDone(draw, outcome, answer, added, ms));
  return signal.aborted ? undefined : { outcome, gained };
}

async function callService(
  { extractor }: DrawContext,
  { options, count, signal }: Draw,
): Promise<{ readonly outcome: DrawOutcome; readonly answer?: DrawAnswer } | undefined> {
  try {
    const call = { ...options.call, count };
    const answer = await extractor.extract(call, { signal, secrets: options.secrets });
    return { outcome: outcomeOfAnswer(options.call.product, answer), answer };
  } catch (error) {
    if (signal.aborted) return undefined; // ignored: the abort caused it
    return { outcome: outcomeOfError(error) };
  }
}

function addToPool(
  { pool, clock }: DrawContext,
  { options, records }: Draw,
  answer: DrawAnswer,
): AddedMembers {
  records.quota = { ...records.quota, ...answer.quota };
  records.countForbidden(forbiddenIn(answer));
  if (answer.entries.length === 0) return NONE_ADDED;
  if (options.dailyBudget !== undefined) records.budget.add(answer.entries.map(distinctIp), clock.now());
  const members = answer.entries.flatMap((entry) => drawnMember(entry, answer.sentAt, options) ?? []);
  const added = pool.addMembers(options.name, members);
  records.counts.drawn += added.joined;
  return added;
}

/** What the budget counts: the exit IP where the entry has it, else the address. Several exits may share an address. */
function distinctIp(entry: DrawnEntry): string {
  return entry.exitIp ?? `${entry.host}:${entry.port}`;
}

/** Undefined when neither the entry nor the source names a protocol. */
function drawnMember(entry: DrawnEntry, sentAt: number, options: DrawSourceOptions): DrawnMember | undefined {
  const { host, port, exitIp, location } = entry;
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

/** `received` includes the entries that were dropped as unusable; `rejected` counts those, too. */
function drawDone(
  { options, count }: Draw,
  outcome: DrawOutcome,
  answer: DrawAnswer | undefined,
  { joined, renewed }: AddedMembers,
  ms: number,
): NoriaEvents['draw.done'] {
  const dropped = Object.values(answer?.dropped ?? {}).reduce((total, number) => total + number, 0);
  const received = (answer?.entries.length ?? 0) + dropped;
  const { code, message } = outcome;
  return {
    source: options.name,
    code,
    asked: count,
    received,
    joined,
    renewed,
    rejected: received - joined - renewed,
    forbidden: forbiddenIn(answer),
    ms,
    ...(code === SUCCESS || message === undefined ? {} : { message }),
  };
}

/** Proxies at private addresses or at noria's own: noria may not use them, but they are paid for. */
function forbiddenIn(answer: DrawAnswer | undefined): number {
  const { private: privateCount = 0, own = 0 } = answer?.dropped ?? {};
  return privateCount + own;
}
