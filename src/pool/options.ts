/** The options of a pool: those that a reload may change, and what the pool works with. Durations in ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { LocationParams } from './drawable-locations.ts';
import type { SourceOutlook } from './lease.ts';

/** How the next member is chosen. */
export const STRATEGIES = [
  'round-robin',
  'random',
  'shuffle',
  'least-connections',
  'longest-lived',
  'fastest',
] as const;

export type Strategy = (typeof STRATEGIES)[number];

/** What the pool knows about a source. */
export interface PoolSourceOptions {
  readonly name: string;
  /** 1 is first. A source is used only while no source of an earlier priority can serve. */
  readonly priority: number;
  /** Usable members wanted. */
  readonly size: number;
  /** How long a member of unknown lifetime lives after its last success. */
  readonly unknownLifetimeMs: number;
  /** The protocol of all its members; absent: unknown. */
  readonly protocol?: MemberProtocol;
  /** No member lives longer when it is drawn; absent: unknown. */
  readonly longestLifeMs?: number;
  /** The parameters of its draws that choose locations; absent: unknown. */
  readonly locationParams?: LocationParams;
  /** Its locations are in several languages, so that some of them say nothing about others. */
  readonly mixedLocations?: boolean;
}

/** How members are picked, the maximum load of each, and the lifetime of sessions. */
export interface RotationOptions {
  readonly strategy: Strategy;
  /** 0: no limit. */
  readonly maxTunnelsPerMember: number;
  /** A member is removed after this many uses. 0: never. */
  readonly maxUsesPerMember: number;
  /** Minimum time between two uses of a member for the same target host. Does not apply to sessions. 0: none. */
  readonly perHostSpacingMs: number;
  /** How long an idle session lives when the client sets no TTL. */
  readonly sessionTtlMs: number;
  /** The longest TTL that a client may set. */
  readonly maxSessionTtlMs: number;
  /** Sessions of one user, or of one address whose client has no user. */
  readonly maxSessionsPerClient: number;
}

/** When faults quarantine or evict a member. */
export interface HealthOptions {
  /** Faults in a row that evict a member; at least 1. */
  readonly maxFailures: number;
  /** The first quarantine after a fault. Each further one in a row is twice as long, up to the member's remaining life. */
  readonly quarantineMs: number;
}

/** This process is one of `count` that serve clients from one pool: the one at `index`. */
export interface PoolShare {
  readonly count: number;
  readonly index: number;
  /**
   * How far the monotonic clock of this process is ahead of one that all of them share. Undefined without such a clock: limits
   * that count uses can then be exceeded a little.
   */
  readonly clockAheadMs: number | undefined;
  /** Monotonic moment of the last change of `count`. */
  readonly changedAt: number;
}

/** What a reload may change. */
export interface PoolSettings {
  readonly sources: readonly PoolSourceOptions[];
  readonly rotation: RotationOptions;
  /** A member counts as expired this long before its end of life. */
  readonly safetyMarginMs: number;
  /** Members with less life left are picked only when there is no other. */
  readonly minRemainingMs: number;
  readonly health: HealthOptions;
}

/** Bounds the memory of a pool. */
export interface PoolLimits {
  /** Clients that may wait at a time; the pool refuses further ones at once. */
  readonly waiting: number;
  /** Sessions of all clients. At the limit the client with the most of them loses one. */
  readonly sessions: number;
}

export const DEFAULT_LIMITS: PoolLimits = { waiting: 20_000, sessions: 100_000 };

/** What a source will do, as refill expects it. */
export interface SourceForecast extends SourceOutlook {
  /** Time until a draw can bring a member; absent when none is planned. */
  readonly nextMemberMs?: number;
  /** It draws nothing for this long, even if clients wait; `Infinity`: until the operator acts. 0: it may draw. */
  readonly suspendedMs: number;
}

export interface PoolOptions extends PoolSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  /** Called only for a request that cannot be served at once. A source that is missing may draw. */
  readonly forecasts: () => readonly SourceForecast[];
  readonly limits?: Partial<PoolLimits>;
}
