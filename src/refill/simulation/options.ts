/** The options of a simulation. Durations are in ms. */
import type { Random } from '../../core/random.ts';
import type { PoolSettings } from '../../pool/options.ts';
import type { RefillSettings } from '../options.ts';

export interface SimulationOptions {
  readonly refill: RefillSettings;
  readonly pool: PoolSettings;
  /** The maximum time in ms for which a client waits for a member. */
  readonly waitForMemberMs: number;
  readonly days: number;
  /** The same seed gives the same result. */
  readonly seed: number;
  readonly load: SimulatedLoad;
}

export interface SimulatedLoad {
  /** The average number of client requests per minute in the active hours. */
  readonly requestsPerMinute: number;
  /** The hours of the service's day in which clients arrive; 0 to 24 is the whole day. */
  readonly activeHours: readonly [from: number, to: number];
  /** The average duration of a tunnel in ms. */
  readonly tunnelMs: number;
}

export type Range = readonly [from: number, to: number];

export function randomIn([from, to]: Range, random: Random): number {
  return from + (to - from) * random();
}
