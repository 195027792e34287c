/**
 * Opens and owns warm connections: connections to members that are opened before tunnels need them, so that a tunnel
 * costs one round trip to its member.
 *
 * After each tunnel, noria asks the pool for the next members and opens warm connections to them. Their number follows
 * from the number of tunnels that arrive while noria opens one connection. For a session, noria opens at most one
 * connection, to the session's member. Warm connections hold no lease: a tunnel uses a warm connection only if the pool
 * grants the member of the connection to the tunnel.
 * docs/decisions/0006-keep-warm-connections.md gives the reasons.
 */
import type { Socket } from 'node:net';
import { AgedMap, BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { LeaseProvider, RoutingOptions, UpcomingMember } from '../pool/lease.ts';
import { isSameLogin, type PreparedLogin } from './credentials.ts';
import { type OpenSocket, readyEvent } from './member-socket.ts';
import { Socks5Handshake } from './socks-handshake.ts';
import type { SourceMemory } from './source-memory.ts';

/** How many warm connections noria keeps. `auto`: noria decides. `off`: none. A number: the maximum for each source. */
export type WarmSetting = 'auto' | 'off' | number;

interface WarmParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
  readonly pool: LeaseProvider;
  memoryOf(source: string): SourceMemory;
}

/** A warm connection that a tunnel has taken. The tunnel owns it. */
export interface TakenConnection {
  readonly socket: Socket;
  readonly login: PreparedLogin | undefined;
  /** Whether TCP, and TLS if used, are established. */
  readonly isConnected: boolean;
  /** SOCKS5 only: the handshake of this connection, which has already sent its opening message. */
  readonly handshake: Socks5Handshake | undefined;
  /** How many ms a tunnel saves by using this connection instead of a new one. */
  readonly savedMs: number;
}

/** With `auto`, the maximum number of warm connections for each source. */
const MAX_AUTO_CONNECTIONS = 128;
/**
 * The maximum number of streams whose rates noria remembers. A stream consists of the tunnels of one session, or of the
 * tunnels without a session that have the same routing options.
 */
const MAX_STREAMS = 1_024;
/** How long noria opens no further warm connection to a member that has closed or refused a warm connection. */
const RETRY_AFTER_MS = 10_000;
const MAX_FAILED_MEMBERS = 1_024;
/**
 * How much each tunnel adds to the number of warm connections that may end unused. So on average, one warm connection
 * may end unused for every 25 tunnels.
 */
const EARNED_PER_TUNNEL = 0.04;
const MAX_BALANCE = 10;

export class WarmConnections {
  readonly #parts: WarmParts;
  readonly #byMember = new Map<string, WarmConnection>();
  readonly #countBySource = new Map<string, number>();
  readonly #streams = new BoundedMap<string, TunnelRate>(MAX_STREAMS);
  /** The members that closed or refused a warm connection. */
  readonly #failed: AgedMap<string>;
  /** The balance: how many more warm connections may end unused. At 0, noria opens no further warm connection. */
  #balance = MAX_BALANCE;
  #maxPerSource = 0;

  constructor(parts: WarmParts) {
    this.#parts = parts;
    this.#failed = new AgedMap(parts.clock, RETRY_AFTER_MS, MAX_FAILED_MEMBERS);
  }

  get size(): number {
    return this.#byMember.size;
  }

  /** Sets the maximum number of warm connections. Closes all warm connections, because their login may be outdated. */
  configure(setting: WarmSetting): void {
    this.close();
    this.#maxPerSource = setting === 'auto' ? MAX_AUTO_CONNECTIONS : setting === 'off' ? 0 : setting;
  }

  /**
   * Returns the warm connection to the member if the connection has the current login. The caller then owns the
   * connection.
   */
  take({ member, source, login }: UpcomingMember): TakenConnection | undefined {
    const connection = this.#byMember.size === 0 ? undefined : this.#byMember.get(member);
    if (connection === undefined) return undefined;
    this.#forget(connection);
    const current = login ?? this.#parts.memoryOf(source).credentials.current;
    if (isSameLogin(connection.login, current)) return connection.take();
    connection.close();
    return undefined;
  }

  /**
   * Call it when a tunnel or request with these routing options uses the member. Opens connections to the members that
   * the next tunnels will probably get.
   */
  used(routing: RoutingOptions, next: UpcomingMember): void {
    if (this.#maxPerSource === 0) return;
    const { opening } = this.#parts.memoryOf(next.source);
    if (opening.averageMs === undefined || opening.minMs < MIN_GAIN_MS) return;
    this.#balance = Math.min(MAX_BALANCE, this.#balance + EARNED_PER_TUNNEL);
    const rate = this.#rateOf(routing);
    rate.add(this.#parts.clock.monotonic());
    const openingMs = opening.averageMs * this.#openingRoundTrips(next);
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

  close(): void {
    for (const connection of [...this.#byMember.values()]) {
      this.#forget(connection);
      connection.close();
    }
  }

  #rateOf({ session, source, protocol, location }: RoutingOptions): TunnelRate {
    const stream = session === undefined ? `|${source ?? ''}|${protocol ?? ''}|${location ?? ''}` : session;
    let rate = this.#streams.get(stream);
    if (rate === undefined) {
      rate = new TunnelRate();
      this.#streams.set(stream, rate);
    }
    return rate;
  }

  readonly #isKnown = (member: string): boolean => this.#byMember.has(member) || this.#failed.has(member);

  #open(member: UpcomingMember): void {
    const { source, remainingMs = Number.POSITIVE_INFINITY } = member;
    const count = this.#countBySource.get(source) ?? 0;
    if (count >= this.#maxPerSource || this.#isKnown(member.member)) return;
    const memory = this.#parts.memoryOf(source);
    const login = memory.credentials.firstFor(member.login);
    const greets = this.#openingRoundTrips(member) > 1;
    const keepMs = Math.min(memory.opening.keepMs, remainingMs);
    const settings = { member, memory, login, greets, keepMs };
    const connection = new WarmConnection(this.#parts, settings, this.#onEnded);
    this.#byMember.set(member.member, connection);
    this.#countBySource.set(source, count + 1);
  }

  /**
   * The number of round trips until the member can receive the request for a target: one for the connection, and those
   * of the handshake before the request.
   */
  #openingRoundTrips({ member, source, protocol, login }: UpcomingMember): number {
    const { pipelining, credentials } = this.#parts.memoryOf(source);
    const hasLogin = (login ?? credentials.current) !== undefined;
    if (protocol !== 'socks5' || !pipelining.isPlain(member, hasLogin)) return 1;
    return hasLogin ? 3 : 2;
  }

  #forget({ member: { member, source } }: WarmConnection): void {
    this.#byMember.delete(member);
    this.#countBySource.set(source, (this.#countBySource.get(source) ?? 1) - 1);
  }
}

/**
 * How a warm connection ended unused. `unopened`: noria could not establish it. `closed`: the member closed it.
 * `expired`: it reached its time limit.
 */
type WarmEnd = 'unopened' | 'closed' | 'expired';

/**
 * A connection to a member that is opened before a tunnel needs it, with TLS if the member speaks TLS. It ends when a
 * tunnel takes it, when it expires, or when the member closes it.
 *
 * If a SOCKS5 member does not accept pipelined handshakes, greeting and login are sent early as well, one after the
 * other. The login is sent only if the member asks for a login.
 */
class WarmConnection {
  readonly member: UpcomingMember;
  readonly login: PreparedLogin | undefined;
  readonly #parts: WarmParts;
  readonly #memory: SourceMemory;
  readonly #onEnded: (connection: WarmConnection, end: WarmEnd, keptMs: number) => void;
  readonly #socket: Socket;
  readonly #openedAt: number;
  readonly #deadline: Deadline;
  #isConnected = false;
  #readyAt: number | undefined;
  readonly #handshake: Socks5Handshake | undefined;

  /** @param onEnded - called when the connection has ended unused. `keptMs`: the time since it was ready. */
  constructor(
    parts: WarmParts,
    settings: {
      readonly member: UpcomingMember;
      readonly memory: SourceMemory;
      readonly login: PreparedLogin | undefined;
      /** SOCKS5 only: whether to send greeting and login before a tunnel needs the connection. */
      readonly greets: boolean;
      /** The connection expires when this number of ms has passed since noria began to open it. */
      readonly keepMs: number;
    },
    onEnded: (connection: WarmConnection, end: WarmEnd, keptMs: number) => void,
  ) {
    const { member, login, memory, greets, keepMs } = settings;
    this.member = member;
    this.login = login;
    this.#parts = parts;
    this.#memory = memory;
    this.#onEnded = onEnded;
    this.#handshake = greets ? new Socks5Handshake(undefined, login) : undefined;
    this.#openedAt = parts.clock.monotonic();
    this.#deadline = parts.deadlines.set(keepMs, this.#onExpired);
    this.#socket = parts.openSocket(member, 'tunnel');
    this.#socket.on(readyEvent(member.protocol), this.#onReady).on('close', this.#onClosed);
  }

  take(): TakenConnection {
    this.#release();
    const handshake = this.#isConnected ? this.#handshake : undefined;
    const savedMs = (this.#readyAt ?? this.#parts.clock.monotonic()) - this.#openedAt;
    return { socket: this.#socket, login: this.login, isConnected: this.#isConnected, handshake, savedMs };
  }

  /** Closes the connection without a call of `onEnded`. */
  close(): void {
    this.#release();
    this.#socket.destroy();
  }

  readonly #onReady = (): void => {
    const now = this.#parts.clock.monotonic();
    this.#isConnected = true;
    this.#memory.opening.opened(now - this.#openedAt);
    this.#socket.on('data', this.#onData).on('end', this.#onClosed);
    if (this.#handshake === undefined) this.#readyAt = now;
    else this.#socket.write(this.#handshake.opening);
  };

  readonly #onData = (bytes: Buffer): void => {
    const step = this.#handshake?.take(bytes);
    if (step?.kind === 'send') this.#socket.write(step.bytes);
    else if (step?.kind !== 'more')
      this.#end('closed'); // before the request, a member may send only replies of the handshake
    else if (this.#handshake?.isWaiting === true) this.#readyAt ??= this.#parts.clock.monotonic();
  };

  readonly #onClosed = (): void => this.#end(this.#isConnected ? 'closed' : 'unopened');

  readonly #onExpired = (): void => this.#end(this.#isConnected ? 'expired' : 'unopened');

  #end(end: WarmEnd): void {
    const now = this.#parts.clock.monotonic();
    this.close();
    this.#onEnded(this, end, now - (this.#readyAt ?? now));
  }

  #release(): void {
    this.#parts.deadlines.clear(this.#deadline);
    this.#socket
      .off(readyEvent(this.member.protocol), this.#onReady)
      .off('close', this.#onClosed)
      .off('data', this.#onData)
      .off('end', this.#onClosed);
  }
}

/**
 * If opening a connection takes less than this, noria opens no warm connections, because clients would not notice the
 * difference.
 */
export const MIN_GAIN_MS = 2;
/**
 * noria averages the rate of tunnels over both windows, and uses the larger average. The long window shows low rates,
 * such as a few tunnels per second. The short window soon shows a sudden rise.
 */
const LONG_WINDOW_MS = 5_000;
const SHORT_WINDOW_MS = 500;
/**
 * With fewer tunnels than this in the long window, the rate is 0, because a single tunnel does not show that more
 * tunnels follow.
 */
const MIN_TUNNELS = 1.5;
/**
 * The reserve of warm connections, in standard deviations of the number of tunnels that arrive while a connection
 * opens. With 2, about 2 % of the tunnels find no open connection.
 */
const DEVIATIONS = 2;
/**
 * noria holds warm connections only if tunnels are expected to use all of them within this share of `keepMs`.
 */
const USE_SHARE = 0.5;

/** Measures the rate of tunnels. The latest tunnels count most. */
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

/**
 * The number of connections to hold: rate × opening time, plus a reserve for irregular arrivals. 0 if tunnels would
 * need longer than USE_SHARE × `keepMs` to use all these connections.
 * @param keepMs - how long noria keeps an unused connection.
 */
export function stockFor(perMs: number, openingMs: number, keepMs: number): number {
  const duringOpening = perMs * openingMs;
  const stock = Math.max(1, Math.ceil(duringOpening + DEVIATIONS * Math.sqrt(duringOpening)));
  return stock <= perMs * keepMs * USE_SHARE ? stock : 0;
}
