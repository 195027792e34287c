/** The interfaces and the settings of refill. Durations are in ms, moments are monotonic ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import type { AddedMembers, Demand, DrawnMember } from '../pool/drawn-member.ts';
import type { SourceCounts } from '../pool/views.ts';
import type { CountlessCall } from '../service/request.ts';
import type { SupplyConnection, UrlConnection } from '../service/supply.ts';
import type { Pace } from './pace.ts';
import type { InstanceReport } from './reaction.ts';
import type { SharedCount } from './source-statistics.ts';

/** What all sources of a refiller share. */
export interface SourceContext {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pool: RefillPool;
  readonly paceOf: (key: string) => Pace;
  readonly extractor: Extractor;
  readonly settings: () => Omit<RefillSettings, 'sources'>;
  /** Whether a source with a smaller priority number can serve the clients, so that this source must not draw. */
  readonly isPreferredServing: (options: DrawSourceOptions) => boolean;
  /** Returns the counter of distinct IPs that all norias of a fleet share for a source. */
  readonly sharedCount?: ((source: string) => SharedCount) | undefined;
  readonly onReport?: ((source: string, report: InstanceReport) => void) | undefined;
  /** What the operator can do while members refuse the credentials of a source. */
  readonly adviceOnBlock?: ((source: string) => string | undefined) | undefined;
  /** Without it, no source has a `whitelist` or `rotate`. */
  readonly urls?: UrlAccess | undefined;
}

export interface UrlAccess {
  /** Opens a connection for one GET of a URL; its placeholders may be replaced later. Fails like `Extractor.connect`. */
  open(url: Secret, signal: AbortSignal): Promise<UrlConnection>;
  /** Returns the IP address that the answer of `url` through a member names; undefined if there is none. */
  exitOf(source: string, member: DrawnMember, url: string, signal: AbortSignal): Promise<string | undefined>;
}

export interface Extractor {
  /**
   * Opens a connection for one call. `signal` cancels the opening and the call.
   *
   * @throws NoriaError if the connection failed. After `signal` has aborted, it may throw any error.
   */
  connect(call: CountlessCall, signal: AbortSignal): Promise<SupplyConnection>;
}

/** What refill needs of the pool: synchronous and fast, because a source calls it each time it checks whether to draw. */
export interface RefillPool {
  /** How many members will be usable at `moment` without a further draw, with those whose quarantine ends before. */
  usableAt(source: string, moment: number): number;
  /** Like `usableAt`, but also counts quarantined members that failed for only one client: no draw replaces them. */
  countedAt(source: string, moment: number): number;
  /** How many members will not have expired at `moment`, with quarantined ones. */
  heldAt(source: string, moment: number): number;
  /** The first moment after `moment` at which a member stops being usable; undefined if there is none. */
  nextLossAt(source: string, moment: number): number | undefined;
  demand(source: string): Demand;
  countsOf(source: string): Pick<SourceCounts, 'ready' | 'joining' | 'used' | 'blocked'> | undefined;
  /** Adds the members of a draw in random order. Waiting clients get them immediately. */
  addMembers(source: string, drawn: readonly DrawnMember[]): AddedMembers;
  /** Drains the members of the source that are not in `drawn`. */
  retainMembers(source: string, drawn: readonly DrawnMember[]): void;
  /** Drains one member. @returns its id if it still has open tunnels, so that it leaves later. */
  drainMember(source: string, drawn: DrawnMember): string | undefined;
  /**
   * Multiplies the limit of the source's open tunnels by `factor`; without a limit, the number of those open now. Used if
   * the service reports too many connections (12008 of operation 1).
   */
  limitTunnels(source: string, factor: number): void;
  unlimitTunnels(source: string): void;
}

export interface RotateOptions {
  /** The URL that changes the exit of a member, with `{host}` and `{port}`. */
  readonly url: Secret;
  readonly everyMs: number;
  /** How long a member needs, in ms, until it has its new exit. */
  readonly settleMs: number;
  /** A URL whose answer names the address of the client. */
  readonly check: string;
}

export interface WhitelistOptions {
  /** The vendor's binding URL, with `{ip}`. */
  readonly url: Secret;
  readonly everyMs: number;
  /** The address of this machine, or a URL that answers it. */
  readonly myIp: string | undefined;
}

export interface DrawSourceOptions {
  readonly name: string;
  readonly call: CountlessCall;
  /** Secrets that noria masks in the service's texts, in addition to the key of the call. */
  readonly secrets: readonly Secret[];
  /** The minimum time in ms between the arrivals of two calls at the service; 0: getting members costs no call. */
  readonly intervalMs: number;
  /** If set, each answer has all members, and noria reads it again after this time, even without demand. */
  readonly refreshMs?: number | undefined;
  readonly rotate?: RotateOptions | undefined;
  readonly whitelist?: WhitelistOptions | undefined;
  /** The most proxies of one call. If undefined, the product's default applies. */
  readonly count: number | undefined;
  /** The most usable members to hold while there is demand. */
  readonly size: number;
  /** A source draws only while no source with a smaller number can serve the clients. */
  readonly priority: number;
  readonly dailyBudget: number | undefined;
  /** The protocol of members for which the answer names no protocol. */
  readonly protocol: MemberProtocol | undefined;
  /** Whether members must pass a probe before their first use (free product). */
  readonly unproven: boolean;
  /** For members for which the answer names no lifetime. If undefined, the pool assumes one. */
  readonly defaultLifetimeMs: number | undefined;
}

/** Settings that a reload may change. */
export interface RefillSettings {
  readonly sources: readonly DrawSourceOptions[];
  /** `demand`: hold as many members as the demand uses; `size`: always `size`. */
  readonly fill: 'demand' | 'size';
  /** Drawing stops if no client has sent a request for this time. With 0, it never stops. */
  readonly idleAfterMs: number;
  readonly callTimeoutMs: number;
}
