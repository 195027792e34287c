/** The options of a pool: options that a reload may change, and fixed options. Durations are in ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { SourceForecast } from './lease.ts';
import type { LocationParams } from './locations.ts';

export const STRATEGIES = [
  'round-robin',
  'random',
  'shuffle',
  'least-connections',
  'longest-lived',
  'fastest',
] as const;

export type Strategy = (typeof STRATEGIES)[number];

export interface PoolSourceOptions {
  readonly name: string;
  /**
   * The priority of the source: 1 is the highest. A source serves clients only if no source of a higher priority can serve them.
   */
  readonly priority: number;
  /** The number of usable members that the source should have. */
  readonly size: number;
  /** How long a member with unknown lifetime lives after it joined or last had a success. */
  readonly unknownLifetimeMs: number;
  /** The protocol of all members of the source; absent if unknown. */
  readonly protocol?: MemberProtocol;
  /** The longest life of a newly drawn member; absent if unknown. */
  readonly maxLifetimeMs?: number;
  /** The draw parameters that select locations; absent if unknown. */
  readonly locationParams?: LocationParams;
  /**
   * True if the source reports locations in several languages. Even if all its locations so far are Chinese, the next
   * one may be in Latin letters.
   */
  readonly mixedLocations?: boolean;
}

/** How the pool picks members, the maximum load of each member, and the lifetime of sessions. */
export interface RotationOptions {
  readonly strategy: Strategy;
  /** Maximum number of open leases per member. 0: no limit. */
  readonly maxTunnelsPerMember: number;
  /** Number of uses after which a member is removed. 0: no limit. */
  readonly maxUsesPerMember: number;
  /** Minimum time between two uses of a member for the same target host. Does not apply to sessions. 0: no spacing. */
  readonly perHostSpacingMs: number;
  /** Idle time after which a session ends, if the client sets no TTL. */
  readonly sessionTtlMs: number;
  /** The longest TTL that a client may set. */
  readonly maxSessionTtlMs: number;
  /** Maximum number of sessions of one user or, without users, of one client network. */
  readonly maxSessionsPerClient: number;
}

export interface HealthOptions {
  /** Number of consecutive faults after which a member is evicted; at least 1. */
  readonly maxFailures: number;
  /**
   * Duration of the first quarantine. Each consecutive quarantine is twice as long as the one before, up to the
   * member's remaining life.
   */
  readonly quarantineMs: number;
}

/**
 * A part of a limit. The limit is divided into `count` parts of about equal size. `index` is the number of this part,
 * from 0.
 */
export interface LimitPart {
  readonly count: number;
  readonly index: number;
}

/**
 * This process's share of the limits that apply to several processes together. `count` is the number of processes
 * that serve clients from one pool, and `index` is the number of this process, from 0.
 */
export interface ProcessPart extends LimitPart {
  /** In a fleet: this machine's part of the limits. The processes of the machine divide this part. */
  readonly machine?: LimitPart | undefined;
  /**
   * How far the monotonic clock of this process is ahead of a clock that all processes share. Undefined if there is no shared
   * clock; limits on uses may then be slightly exceeded.
   */
  readonly clockAheadMs: number | undefined;
  /** Monotonic moment of the last change of `count`. */
  readonly changedAt: number;
}

/** The settings that a reload may change. */
export interface PoolSettings {
  readonly sources: readonly PoolSourceOptions[];
  readonly rotation: RotationOptions;
  /** The pool treats a member as expired this long before the member's real end of life. */
  readonly safetyMarginMs: number;
  /** The pool picks a member with less remaining life than this only if no other member fits. */
  readonly minRemainingMs: number;
  readonly health: HealthOptions;
}

/** Limits that bound the pool's memory. */
interface PoolLimits {
  /** The maximum number of clients that may wait at once. The pool refuses further clients. */
  readonly waiting: number;
  /**
   * Maximum number of sessions of all clients together. At the limit, a new session replaces a session of the client with the
   * most sessions.
   */
  readonly sessions: number;
}

export const DEFAULT_LIMITS: PoolLimits = { waiting: 20_000, sessions: 100_000 };

export interface PoolOptions extends PoolSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  /**
   * Called only for requests that cannot be served at once. If the result contains no forecast for a source, this
   * source may draw at any time.
   */
  readonly forecasts: () => readonly SourceForecast[];
  readonly limits?: Partial<PoolLimits>;
}
