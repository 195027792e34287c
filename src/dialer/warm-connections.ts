/**
 * Opens and owns warm connections: connections to members that are opened before tunnels need them, so that a tunnel
 * costs one round trip to its member.
 *
 * After each tunnel, noria asks the pool for the next members and opens warm connections to them. The number of warm
 * connections follows from the number of tunnels that arrive while noria opens one connection (warm-stock.ts). For a
 * session, noria opens at most one connection, to the session's member. Warm connections hold no lease: a tunnel uses a
 * warm connection only if the pool grants the member of the connection to the tunnel.
 * docs/decisions/0006-keep-warm-connections.md gives the reasons.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { LeaseProvider, RoutingOptions, UpcomingMember } from '../pool/lease.ts';
import { isSameLogin } from './credentials.ts';
import type { SourceMemory } from './source-memory.ts';
import {
  type TakenConnection,
  WarmConnection,
  type WarmEnd,
  type WarmOwner,
  type WarmParts,
} from './warm-connection.ts';
import { MIN_GAIN_MS, stockFor, TunnelRate } from './warm-stock.ts';

/** How many warm connections noria keeps. `auto`: noria decides. `off`: none. A number: the maximum for each source. */
export type WarmSetting = 'auto' | 'off' | number;

interface WarmConnectionsParts extends WarmParts {
  readonly pool: LeaseProvider;
  memoryOf(source: string): SourceMemory;
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

export class WarmConnections implements WarmOwner {
  readonly #parts: WarmConnectionsParts;
  readonly #byMember = new Map<string, WarmConnection>();
  readonly #countBySource = new Map<string, number>();
  readonly #streams = new BoundedMap<string, TunnelRate>(MAX_STREAMS);
  /** For each member, when it last closed or refused a warm connection. */
  readonly #failedAt = new BoundedMap<string, number>(MAX_FAILED_MEMBERS);
  /** The balance: how many more warm connections may end unused. At 0, noria opens no further warm connection. */
  #balance = MAX_BALANCE;
  #maxPerSource = 0;

  constructor(parts: WarmConnectionsParts) {
    this.#parts = parts;
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
    const stock = stockFor({ perMs: rate.perMs, openingMs, keepMs: opening.keepMs });
    if (stock === 0 || this.#balance <= 0) return;
    const count = Math.min(stock, this.#maxPerSource);
    for (const member of this.#parts.pool.upcoming({ routing, count, isKnown: this.#isKnown }))
      this.#open(member);
  }

  warmOpened({ member: { source } }: WarmConnection, ms: number): void {
    this.#parts.memoryOf(source).opening.opened(ms);
  }

  warmEnded(connection: WarmConnection, end: WarmEnd, keptMs: number): void {
    const { member, source } = connection.member;
    this.#forget(connection);
    this.#balance -= 1;
    if (end === 'expired') return;
    this.#failedAt.set(member, this.#parts.clock.monotonic());
    if (end === 'closed') this.#parts.memoryOf(source).opening.closedUnused(member, keptMs);
  }

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

  readonly #isKnown = (member: string): boolean => {
    if (this.#byMember.has(member)) return true;
    const at = this.#failedAt.get(member);
    return at !== undefined && this.#parts.clock.monotonic() - at < RETRY_AFTER_MS;
  };

  #open(member: UpcomingMember): void {
    const { source, remainingMs = Number.POSITIVE_INFINITY } = member;
    const count = this.#countBySource.get(source) ?? 0;
    if (count >= this.#maxPerSource || this.#isKnown(member.member)) return;
    const { credentials, opening } = this.#parts.memoryOf(source);
    const keepMs = Math.min(opening.keepMs, remainingMs);
    const connection = new WarmConnection(this.#parts, this, {
      member,
      login: credentials.firstFor(member.login),
      greets: this.#openingRoundTrips(member) > 1,
      keepMs,
    });
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
