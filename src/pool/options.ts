/** The options of a pool: those that a reload may change, and fixed ones. Durations are in ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { LocationParams } from './drawable-locations.ts';
import type { SourceOutlook } from './lease.ts';

/** How the pool chooses the next member. */
export const STRATEGIES = [
  'round-robin',
  'random',
  'shuffle',
  'least-connections',
  'longest-lived',
  'fastest',
] as const;

export type Strategy = (typeof STRATEGIES)[number];

/** A source, as the pool sees it. */
export interface PoolSourceOptions {
  readonly name: string;
  /** 1 is the highest priority. A source serves clients only if no source of a higher priority can. */
  readonly priority: number;
  /** The number of usable members that the source should have. */
  readonly size: number;
  /** How long a member with unknown lifetime lives after its last success. */
  readonly unknownLifetimeMs: number;
  /** The protocol of all its members; absent: unknown. */
  readonly protocol?: MemberProtocol;
  /** The longest life of a newly drawn member; absent: unknown. */
  readonly longestLifeMs?: number;
  /** The draw parameters that select locations; absent: unknown. */
  readonly locationParams?: LocationParams;
  /** Locations may be in several languages, so the language of known locations says nothing about others. */
  readonly mixedLocations?: boolean;
}

/** How members are picked, the maximum load of each, and the lifetime of sessions. */
export interface RotationOptions {
  readonly strategy: Strategy;
  /** Most open leases per member. 0: no limit. */
  readonly maxTunnelsPerMember: number;
  /** A member is removed after this many uses. 0: never. */
  readonly maxUsesPerMember: number;
  /** Least time between two uses of a member for the same target host. Does not apply to sessions. 0: no spacing. */
  readonly perHostSpacingMs: number;
  /** How long an idle session lives when the client sets no TTL. */
  readonly sessionTtlMs: number;
  /** The longest TTL that a client may set. */
  readonly maxSessionTtlMs: number;
  /** Most sessions of one user or, without users, of one client address. */
  readonly maxSessionsPerClient: number;
}

/** When faults quarantine or evict a member. */
export interface HealthOptions {
  /** A member is evicted after this many faults in a row; at least 1. */
  readonly maxFailures: number;
  /** Duration of the first quarantine. Each further one in a row is twice as long, up to the member's remaining life. */
  readonly quarantineMs: number;
}

/** The share of this process in the limits: `count` processes serve clients from one pool, and this one has number `index`. */
export interface PoolShare {
  readonly count: number;
  readonly index: number;
  /**
   * How far the monotonic clock of this process is ahead of a clock that all processes share. Undefined without such a clock:
   * limits that count uses may then be slightly exceeded.
   */
  readonly clockAheadMs: number | undefined;
  /** Monotonic moment of the last change of `count`. */
  readonly changedAt: number;
}

/** What a reload may change. */
export interface PoolSettings {
  readonly sources: readonly PoolSourceOptions[];
  readonly rotation: RotationOptions;
  /** A member counts as expired this long before its real end of life. */
  readonly safetyMarginMs: number;
  /** A member with less life left is picked only if no other member fits. */
  readonly minRemainingMs: number;
  readonly health: HealthOptions;
}

/** Limits that bound the pool's memory. */
export interface PoolLimits {
  /** The maximum number of clients that may wait at once. The pool refuses further ones. */
  readonly waiting: number;
  /** The maximum number of sessions, all clients together. At the limit, the client with the most sessions loses one. */
  readonly sessions: number;
}

export const DEFAULT_LIMITS: PoolLimits = { waiting: 20_000, sessions: 100_000 };

/** What a source is expected to do next, according to refill. */
export interface SourceForecast extends SourceOutlook {
  /** Time until a draw can bring a member; absent if no draw is planned. */
  readonly nextMemberMs?: number;
  /** The source draws nothing for this long, even if clients wait. `Infinity`: until the operator acts. 0: it may draw. */
  readonly suspendedMs: number;
}

export interface PoolOptions extends PoolSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  /** Called only for requests that cannot be served at once. A source that is missing from the result may draw. */
  readonly forecasts: () => readonly SourceForecast[];
  readonly limits?: Partial<PoolLimits>;
}
