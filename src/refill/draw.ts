/**
 * One draw: opens a connection, calls the service, adds the members to the pool, and counts and reports the result.
 * The source decides when to draw and how to continue.
 */
import { hash } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import type { EventBus, NoriaEvents } from '../core/events.ts';
import { hasCode } from '../core/faults.ts';
import type { AddedMembers, DrawnMember } from '../pool/drawn-member.ts';
import type { DrawAnswer, DrawnEntry } from '../service/answer.ts';
import { SUCCESS } from '../service/codes.ts';
import type { WriteGate } from '../service/transport.ts';
import type { DrawSourceOptions, ExtractConnection, Extractor, RefillPool } from './options.ts';
import { type DrawOutcome, outcomeOfAnswer, outcomeOfError } from './reaction.ts';
import type { SourceStatistics } from './source-statistics.ts';

export interface DrawContext {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly extractor: Extractor;
  readonly pool: RefillPool;
}

interface DrawingSource {
  readonly options: DrawSourceOptions;
  readonly statistics: SourceStatistics;
}

interface DrawOrder {
  readonly count: number;
  /**
   * How far in ms `DrawResult.gained` looks ahead: it counts the members that will still be usable this long after the
   * draw.
   */
  readonly aheadMs: number;
  readonly gate: WriteGate;
}

interface EndedCall {
  readonly outcome: DrawOutcome;
  /** Absent if the service did not answer. */
  readonly answer?: DrawAnswer;
}

export interface DrawResult {
  readonly outcome: DrawOutcome;
  /** By how many the draw increases the number of members that will be usable `aheadMs` after the draw. */
  readonly gained: number;
}

/**
 * When the service reports too many connections, noria multiplies the limit of the source's open tunnels by this
 * factor. If there is no limit, the new limit is this factor times the source's number of open tunnels.
 */
export const TUNNEL_SHARE = 0.5;
const NONE_ADDED: AddedMembers = { joined: 0, renewed: 0, rejected: 0 };

/**
 * Opens the connection of a draw that will request `asked` members. `signal` also aborts the draw.
 *
 * @returns the result of the draw if the connection failed; undefined if `signal` aborted.
 * @throws only if noria has a bug.
 */
export async function openDraw(
  context: DrawContext,
  { asked, ...drawing }: DrawingSource & { readonly asked: number },
  signal: AbortSignal,
): Promise<Draw | DrawResult | undefined> {
  const startedAt = context.clock.monotonic();
  try {
    const connection = await context.extractor.connect(drawing.options.call, signal);
    return new Draw({ ...context, ...drawing, connection, startedAt, signal });
  } catch (error) {
    if (signal.aborted) return undefined; // ignored: the caller aborted the draw
    const outcome = outcomeOfError(error);
    const { bus, clock } = context;
    const source = drawing.options.name;
    bus.emit('draw.started', { source, asked });
    drawing.statistics.countCall(outcome.code, undefined);
    const ended = { source, asked, ms: clock.monotonic() - startedAt };
    bus.emit('draw.done', drawDone(ended, { outcome }));
    return { outcome, gained: 0 };
  }
}

interface DrawOptions extends DrawContext, DrawingSource {
  readonly connection: ExtractConnection;
  readonly startedAt: number;
  readonly signal: AbortSignal;
}

/** A draw with an open connection. */
export class Draw {
  readonly #options: DrawOptions;

  constructor(options: DrawOptions) {
    this.#options = options;
  }

  /**
   * Requests members and adds them to the pool.
   *
   * @returns undefined if the draw was aborted, or if the permit had expired and the request was not sent.
   * @throws only if noria has a bug.
   */
  async make(order: DrawOrder): Promise<DrawResult | undefined> {
    const { clock, bus, pool, options, statistics, startedAt, signal } = this.#options;
    const { count: asked, aheadMs } = order;
    const source = options.name;
    bus.emit('draw.started', { source, asked });
    const call = await this.#call(order);
    if (call === undefined) return undefined;

    const { outcome, answer } = call;
    const ms = clock.monotonic() - startedAt;
    const usable = () => pool.usableAt(source, clock.monotonic() + aheadMs);
    const usableBefore = usable();
    if (outcome.limitsConnections) pool.limitTunnels(source, TUNNEL_SHARE);
    else if (outcome.code === SUCCESS) pool.unlimitTunnels(source);
    const added = answer === undefined ? NONE_ADDED : addToPool(this.#options, answer);
    const gained = usable() - usableBefore;
    statistics.countCall(outcome.code, answer === undefined ? undefined : ms);
    bus.emit('draw.done', drawDone({ source, asked, ms }, call, added));
    return signal.aborted ? undefined : { outcome, gained };
  }

  close(): void {
    this.#options.connection.close();
  }

  async #call({ count, gate }: DrawOrder): Promise<EndedCall | undefined> {
    const { connection, options, signal } = this.#options;
    try {
      const answer = await connection.extract({ ...options.call, count }, { secrets: options.secrets, gate });
      return { outcome: outcomeOfAnswer(options.call.product, answer), answer };
    } catch (error) {
      // ignored: the caller aborted the draw, or the permit expired and the caller repeats the draw
      if (signal.aborted || hasCode(error, 'pace-held')) return undefined;
      return { outcome: outcomeOfError(error) };
    }
  }
}

function addToPool(
  { pool, clock, options, statistics }: DrawContext & DrawingSource,
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
 * Returns the text that stands for one IP in the budget: the exit IP, if the entry names it. Otherwise the text is the
 * address, with a hash of the user name if the entry has one, because several exits may share an address.
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

/** Builds the event for a draw that has ended. The numbers `received` and `rejected` include the entries that noria dropped. */
function drawDone(
  ended: Pick<NoriaEvents['draw.done'], 'source' | 'asked' | 'ms'>,
  { outcome, answer }: EndedCall,
  { joined, renewed }: AddedMembers = NONE_ADDED,
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
