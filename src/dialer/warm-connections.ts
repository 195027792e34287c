/**
 * Connections to members that are opened before tunnels need them, so that a tunnel costs one round trip. After each
 * tunnel, noria opens some to the members that the pool will probably grant next: as many as tunnels arrive while one
 * opens, for a session at most one. They hold no lease. Reasons: docs/decisions/0006-keep-warm-connections.md.
 */
import type { Socket } from 'node:net';
import { AgedMap, BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { LeaseProvider, RoutingOptions, UpcomingMember } from '../pool/lease.ts';
import { Socks5Handshake } from './handshake.ts';
import { type OpenSocket, readyEvent } from './member-socket.ts';
import type { OpeningTimes, SourceMemory } from './source-memory.ts';
import { isSameLogin, type PreparedLogin } from './source-memory.ts';

/** A number: the maximum for each source. */
export type WarmSetting = 'auto' | 'off' | number;

/** What opening connections to members takes. */
export interface WarmParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
  readonly pool: LeaseProvider;
  memoryOf(source: string): SourceMemory;
}

const MAX_AUTO_CONNECTIONS = 128;
/** A stream: the tunnels of one session, or those without one that have the same routing options. */
const MAX_STREAMS = 1_024;
const RETRY_AFTER_MS = 10_000;
const MAX_FAILED_MEMBERS = 1_024;
/** One warm connection may end unused for every 25 tunnels. */
const EARNED_PER_TUNNEL = 0.04;
const MAX_BALANCE = 10;

export class WarmConnections {
  readonly #parts: WarmParts;
  readonly byMember = new Map<string, WarmConnection>();
  readonly #countBySource = new Map<string, number>();
  readonly #streams = new BoundedMap<string, TunnelRate>(MAX_STREAMS);
  readonly #failed: AgedMap<string>;
  /** How many more may end unused. At 0, noria opens none. */
  #balance = MAX_BALANCE;
  #maxPerSource = 0;

  constructor(parts: WarmParts) {
    this.#parts = parts;
    this.#failed = new AgedMap(parts.clock, RETRY_AFTER_MS, MAX_FAILED_MEMBERS);
  }

  /** Closes all warm connections, because their login may be outdated. */
  configure(setting: WarmSetting): void {
    for (const connection of [...this.byMember.values()]) {
      this.#forget(connection);
      connection.close();
    }
    this.#maxPerSource = setting === 'auto' ? MAX_AUTO_CONNECTIONS : setting === 'off' ? 0 : setting;
  }

  /** Only if it has the current login. The caller then owns it. */
  take({ member, source, login }: UpcomingMember): WarmConnection | undefined {
    const connection = this.byMember.get(member);
    if (connection === undefined) return undefined;
    this.#forget(connection);
    const current = login ?? this.#parts.memoryOf(source).credentials.current;
    if (!isSameLogin(connection.login, current)) {
      connection.close();
      return undefined;
    }
    connection.release();
    return connection;
  }

  used(routing: RoutingOptions, next: UpcomingMember): void {
    if (this.#maxPerSource === 0) return;
    const memory = this.#parts.memoryOf(next.source);
    const { opening } = memory;
    if (opening.averageMs === undefined || opening.minMs < MIN_GAIN_MS) return;
    this.#balance = Math.min(MAX_BALANCE, this.#balance + EARNED_PER_TUNNEL);
    const rate = this.#rateOf(routing);
    rate.add(this.#parts.clock.monotonic());
    const openingMs = opening.averageMs * openingRoundTrips(next, memory);
    const stock = stockFor(rate.perMs, openingMs, opening.keepMs);
    if (stock === 0 || this.#balance <= 0) return;
    const count = Math.min(stock, this.#maxPerSource);
    for (const member of this.#parts.pool.upcoming({ routing, count, isKnown: this.#isKnown }))
      this.#open(member);
  }

  readonly #onEnded = (connection: WarmConnection, end: WarmEnd, keptMs: number): void => {
    const { member, source } = connection.member;
    this.#forget(connection);
    this.#balance -= 1;
    if (end === 'expired') return;
    this.#failed.set(member, true);
    if (end === 'closed') this.#parts.memoryOf(source).opening.closedUnused(member, keptMs);
  };

  #rateOf({ session, source, protocol, location }: RoutingOptions): TunnelRate {
    const stream = session === undefined ? `|${source ?? ''}|${protocol ?? ''}|${location ?? ''}` : session;
    return this.#streams.getOrMake(stream, () => new TunnelRate());
  }

  readonly #isKnown = (member: string): boolean => this.byMember.has(member) || this.#failed.has(member);

  #open(member: UpcomingMember): void {
    const { source } = member;
    const count = this.#countBySource.get(source) ?? 0;
    if (count >= this.#maxPerSource || this.#isKnown(member.member)) return;
    const connection = new WarmConnection(this.#parts, member, this.#onEnded);
    this.byMember.set(member.member, connection);
    this.#countBySource.set(source, count + 1);
  }

  #forget({ member: { member, source } }: WarmConnection): void {
    this.byMember.delete(member);
    this.#countBySource.set(source, (this.#countBySource.get(source) ?? 1) - 1);
  }
}

/** `unopened`: noria could not establish it. `closed`: by the member. `expired`: at its time limit. */
type WarmEnd = 'unopened' | 'closed' | 'expired';

/**
 * Ends when a tunnel takes it, when it expires, or when the member closes it. If a SOCKS5 member does not accept
 * pipelining, greeting and login are sent early as well; the login only if the member asks for one.
 */
export class WarmConnection {
  readonly member: UpcomingMember;
  readonly login: PreparedLogin | undefined;
  readonly socket: Socket;
  /** Whether TCP, and TLS if used, are established. */
  isConnected = false;
  /** SOCKS5 only; its opening message has been sent if the connection is established. */
  readonly handshake: Socks5Handshake | undefined;
  /** Set by `release`. */
  savedMs = 0;
  readonly #parts: WarmParts;
  readonly #opening: OpeningTimes;
  readonly #onEnded: (connection: WarmConnection, end: WarmEnd, keptMs: number) => void;
  readonly #openedAt: number;
  readonly #deadline: Deadline;
  #readyAt: number | undefined;

  /** @param onEnded - it has ended unused. `keptMs`: the time since it was ready. */
  constructor(
    parts: WarmParts,
    member: UpcomingMember,
    onEnded: (connection: WarmConnection, end: WarmEnd, keptMs: number) => void,
  ) {
    const { remainingMs = Number.POSITIVE_INFINITY } = member;
    const memory = parts.memoryOf(member.source);
    this.member = member;
    this.login = memory.credentials.firstFor(member.login);
    this.#parts = parts;
    this.#opening = memory.opening;
    this.#onEnded = onEnded;
    const greets = openingRoundTrips(member, memory) > 1;
    this.handshake = greets ? new Socks5Handshake(undefined, this.login) : undefined;
    this.#openedAt = parts.clock.monotonic();
    const keepMs = Math.min(memory.opening.keepMs, remainingMs);
    this.#deadline = parts.deadlines.set(keepMs, this.#onExpired);
    this.socket = parts.openSocket(member, 'tunnel');
    this.socket.on(readyEvent(member.protocol), this.#onReady).on('close', this.#onClosed);
  }

  /** Without a call of `onEnded`. */
  close(): void {
    this.release();
    this.socket.destroy();
  }

  /** From now on, the caller owns the socket. */
  release(): void {
    this.savedMs = (this.#readyAt ?? this.#parts.clock.monotonic()) - this.#openedAt;
    this.#parts.deadlines.clear(this.#deadline);
    this.socket
      .off(readyEvent(this.member.protocol), this.#onReady)
      .off('close', this.#onClosed)
      .off('data', this.#onData)
      .off('end', this.#onClosed);
  }

  readonly #onReady = (): void => {
    const now = this.#parts.clock.monotonic();
    this.isConnected = true;
    this.#opening.opened(now - this.#openedAt);
    this.socket.on('data', this.#onData).on('end', this.#onClosed);
    if (this.handshake === undefined) this.#readyAt = now;
    else this.socket.write(this.handshake.opening);
  };

  readonly #onData = (bytes: Buffer): void => {
    const step = this.handshake?.take(bytes);
    if (step?.kind === 'send') this.socket.write(step.bytes);
    else if (step?.kind !== 'more')
      this.#end('closed'); // before the request, a member may send only replies of the handshake
    else if (this.handshake?.isWaiting === true) this.#readyAt ??= this.#parts.clock.monotonic();
  };

  readonly #onClosed = (): void => this.#end(this.isConnected ? 'closed' : 'unopened');

  readonly #onExpired = (): void => this.#end(this.isConnected ? 'expired' : 'unopened');

  #end(end: WarmEnd): void {
    const now = this.#parts.clock.monotonic();
    this.close();
    this.#onEnded(this, end, now - (this.#readyAt ?? now));
  }
}

/** Until the member can receive the request for a target. */
function openingRoundTrips(
  { member, protocol, login }: UpcomingMember,
  { pipelining, credentials }: SourceMemory,
): number {
  const hasLogin = (login ?? credentials.current) !== undefined;
  if (protocol !== 'socks5' || !pipelining.isPlain(member, hasLogin)) return 1;
  return hasLogin ? 3 : 2;
}

/** Clients would not notice a smaller gain. */
export const MIN_GAIN_MS = 2;
/** The larger of two averages counts: the long one shows low rates, the short one soon shows a sudden rise. */
const LONG_WINDOW_MS = 5_000;
const SHORT_WINDOW_MS = 500;
/** A single tunnel does not show that more follow. */
const MIN_TUNNELS = 1.5;
/** With 2 standard deviations, about 2 % of the tunnels find no open connection. */
const DEVIATIONS = 2;
/** noria holds no more than tunnels are expected to use within this share of `keepMs`. */
const USE_SHARE = 0.5;

export class TunnelRate {
  #long = 0;
  #short = 0;
  #at = Number.NEGATIVE_INFINITY;

  add(now: number): void {
    const passedMs = now - this.#at;
    this.#long = this.#long * Math.exp(-passedMs / LONG_WINDOW_MS) + 1;
    this.#short = this.#short * Math.exp(-passedMs / SHORT_WINDOW_MS) + 1;
    this.#at = now;
  }

  /** Tunnels per ms at the time of the latest tunnel; 0 if there were too few tunnels to estimate a rate. */
  get perMs(): number {
    if (this.#long < MIN_TUNNELS) return 0;
    // The latest tunnel does not count: the short window ends exactly at this tunnel, so counting it would make a low
    // rate too high.
    return Math.max(this.#long / LONG_WINDOW_MS, (this.#short - 1) / SHORT_WINDOW_MS);
  }
}

/** Rate × opening time, plus a reserve for irregular arrivals. 0 if tunnels would need too long to use them all. */
export function stockFor(perMs: number, openingMs: number, keepMs: number): number {
  const duringOpening = perMs * openingMs;
  const stock = Math.max(1, Math.ceil(duringOpening + DEVIATIONS * Math.sqrt(duringOpening)));
  return stock <= perMs * keepMs * USE_SHARE ? stock : 0;
}
