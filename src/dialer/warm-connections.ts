/**
 * Connections opened ahead of the tunnels that need them, so that a tunnel costs one round trip to its member.
 *
 * Owns them. After each tunnel it asks the pool which members come next, and opens as many connections as tunnels come while
 * one is opened; to a session's own member at most one. They hold no lease: a tunnel uses one only if the pool gives it that
 * member. docs/decisions/0006-open-connections-ahead.md has the reasons.
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
import { LEAST_GAIN_MS, stockFor, TunnelRate } from './warm-stock.ts';

/** `auto`: as many as help. A number: at most this many for each source. */
export type WarmSetting = 'auto' | 'off' | number;

export interface WarmConnectionsParts extends WarmParts {
  readonly pool: LeaseProvider;
  memoryOf(source: string): SourceMemory;
}

/** With `auto`, at most this many for each source. */
const AUTO_MOST = 128;
/** Streams of tunnels whose rate is known: one for each session and each set of routing options. */
const MAX_STREAMS = 1_024;
/** A member that did not keep its connection gets no other one ahead for this long. */
const REST_MS = 10_000;
const MAX_RESTING = 1_024;
/** Unused connections that each tunnel pays for. */
const EARNED_PER_TUNNEL = 0.04;
const MAX_BALANCE = 10;

export class WarmConnections implements WarmOwner {
  readonly #parts: WarmConnectionsParts;
  readonly #byMember = new Map<string, WarmConnection>();
  readonly #countBySource = new Map<string, number>();
  readonly #streams = new BoundedMap<string, TunnelRate>(MAX_STREAMS);
  /** When each of these members did not keep its connection. */
  readonly #resting = new BoundedMap<string, number>(MAX_RESTING);
  /** Unused connections that it may still cost. */
  #balance = MAX_BALANCE;
  #most = 0;

  constructor(parts: WarmConnectionsParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#byMember.size;
  }

  /** Applies the setting and closes all connections: they may have an old login. */
  configure(setting: WarmSetting): void {
    this.close();
    this.#most = setting === 'auto' ? AUTO_MOST : setting === 'off' ? 0 : setting;
  }

  /** The connection to the member, if there is one with the login that it gets now. The caller owns it. */
  take({ member, source, login }: UpcomingMember): TakenConnection | undefined {
    const connection = this.#byMember.size === 0 ? undefined : this.#byMember.get(member);
    if (connection === undefined) return undefined;
    this.#forget(connection);
    const current = login ?? this.#parts.memoryOf(source).credentials.current;
    if (isSameLogin(connection.login, current)) return connection.take();
    connection.close();
    return undefined;
  }

  /** A tunnel or request with these routing options has opened or taken a connection to the member: opens others ahead. */
  used(routing: RoutingOptions, next: UpcomingMember): void {
    if (this.#most === 0) return;
    const { opening } = this.#parts.memoryOf(next.source);
    if (opening.averageMs === undefined || opening.leastMs < LEAST_GAIN_MS) return;
    this.#balance = Math.min(MAX_BALANCE, this.#balance + EARNED_PER_TUNNEL);
    const rate = this.#rateOf(routing);
    rate.add(this.#parts.clock.monotonic());
    const openingMs = opening.averageMs * this.#openingFlights(next);
    const stock = stockFor({ perMs: rate.perMs, openingMs, keepMs: opening.keepMs });
    if (stock === 0 || this.#balance <= 0) return;
    const count = Math.min(stock, this.#most);
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
    this.#resting.set(member, this.#parts.clock.monotonic());
    if (end === 'closed') this.#parts.memoryOf(source).opening.closedUnused(member, keptMs);
  }

  /** Closes all. */
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
    const at = this.#resting.get(member);
    return at !== undefined && this.#parts.clock.monotonic() - at < REST_MS;
  };

  #open(member: UpcomingMember): void {
    const { source, remainingMs = Number.POSITIVE_INFINITY } = member;
    const count = this.#countBySource.get(source) ?? 0;
    if (count >= this.#most || this.#isKnown(member.member)) return;
    const { credentials, opening } = this.#parts.memoryOf(source);
    const keepMs = Math.min(opening.keepMs, remainingMs);
    const connection = new WarmConnection(this.#parts, this, {
      member,
      login: credentials.firstFor(member.login),
      greets: this.#openingFlights(member) > 1,
      keepMs,
    });
    this.#byMember.set(member.member, connection);
    this.#countBySource.set(source, count + 1);
  }

  /** Round trips until a connection waits for a request. More than one: with greeting and login. */
  #openingFlights({ member, source, protocol, login }: UpcomingMember): number {
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
