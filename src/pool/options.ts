/** What a pool is told when it opens, and again at a reload. Durations in ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { Random } from '../core/random.ts';
import type { SourceOutlook } from './lease.ts';

/** How a member is chosen among those that fit. */
export const STRATEGIES = [
  'round-robin',
  'random',
  'shuffle',
  'least-connections',
  'longest-lived',
  'fastest',
] as const;

/** One of them. */
export type Strategy = (typeof STRATEGIES)[number];

/** What the pool has to know of one source. */
export interface PoolSourceOptions {
  readonly name: string;
  /** 1 is first: a later priority serves only while no earlier one can. */
  readonly priority: number;
  /** Usable members wanted; the pool only shows it. */
  readonly size: number;
  /** How long a member lives whose lifetime nobody knows, counted from its last success. */
  readonly unknownLifetimeMs: number;
  /** Whether a member drawn later could have this keyword in its location. Absent: anything but a country code. */
  readonly couldHaveLocation?: (keyword: string) => boolean;
}

/** How members are picked, how much each may carry, how long sessions last. */
export interface RotationOptions {
  readonly strategy: Strategy;
  /** 0: no limit. */
  readonly maxTunnelsPerMember: number;
  /** A member retires after so many uses. 0: never. */
  readonly maxUsesPerMember: number;
  /** Least time between two uses of one member for one target host; sessions are exempt. 0: none. */
  readonly perHostSpacingMs: number;
  /** Idle life of a session that does not name its own. */
  readonly sessionTtlMs: number;
}

/** What faults cost a member. */
export interface HealthOptions {
  /** Faults in a row before a member is evicted; at least 1. */
  readonly maxFailures: number;
  /** The first rest after a fault; each further one is twice as long, up to the member's life. */
  readonly quarantineMs: number;
}

/** What a reload may change. */
export interface PoolSettings {
  readonly sources: readonly PoolSourceOptions[];
  readonly rotation: RotationOptions;
  /** A member counts as expired this long before it does. */
  readonly safetyMarginMs: number;
  /** Members with less life left are picked only when no other is there. */
  readonly minRemainingMs: number;
  readonly health: HealthOptions;
}

/** What bounds the memory of a pool. */
export interface PoolLimits {
  /** Clients that may wait at one time; further ones are refused at once. */
  readonly waiting: number;
  /** Sessions remembered; beyond it the one that would end first goes. */
  readonly sessions: number;
}

/** When the next draw can bring a member, and what each source waits for: told to clients that find the pool empty. */
export interface Outlook {
  readonly retryAfterMs?: number;
  readonly sources: readonly SourceOutlook[];
}

/** Settings, and what the pool is handed to work with. */
export interface PoolOptions extends PoolSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  /** Asked only when a client is refused. */
  readonly outlook: () => Outlook;
  readonly limits?: Partial<PoolLimits>;
}

/** Where nothing else is said. */
export const DEFAULT_LIMITS: PoolLimits = { waiting: 20_000, sessions: 100_000 };
