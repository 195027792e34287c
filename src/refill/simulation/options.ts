/** The options of a simulation. Durations are in ms. */
import type { Random } from '../../core/random.ts';
import type { PoolSettings } from '../../pool/options.ts';
import type { RefillSettings } from '../options.ts';

export interface SimulationOptions {
  readonly refill: RefillSettings;
  readonly pool: PoolSettings;
  readonly waitForMemberMs: number;
  readonly days: number;
  /** The same seed gives the same result. */
  readonly seed: number;
  readonly load: SimulatedLoad;
  /** What the service's members are like. Default: all work until their promised end. */
  readonly vendor?: SimulatedVendor;
  /** Norias that share one pool. Default 1. */
  readonly replicas?: number;
  /** The price of one drawn IP by the name of the source. */
  readonly prices?: ReadonlyMap<string, number>;
}

/** The shares of members that never work, that accept a tunnel only after two seconds, and that die after a third of their life. */
export interface SimulatedVendor {
  readonly dead: number;
  readonly slow: number;
  readonly early: number;
  /** The lifetimes of members in ms. Default: those of the product. */
  readonly lifetimeMs?: Range;
}

export interface SimulatedLoad {
  /** The average number of client requests per minute in each of the 24 hours of the service's day. */
  readonly ratesByHour: readonly number[];
  /** The ms after the start at which requests come, instead of `ratesByHour`. They come again after each `everyMs`. */
  readonly log?: { readonly moments: readonly number[]; readonly everyMs: number } | undefined;
  /** The number of sessions at a time that share the requests, and how long each keeps its name, in ms. */
  readonly sessions?: { readonly count: number; readonly lengthMs: number };
  /** The site bans an exit for ten minutes after this number of pages in a minute. */
  readonly pagesPerExit?: number;
  /** The average duration of a tunnel in ms. */
  readonly tunnelMs: number;
}

/** The rates of a day with requests in these hours only. */
export function rateInHours(perMinute: number, [from, to]: Range = [0, 24]): number[] {
  return Array.from({ length: 24 }, (_, hour) => (from <= hour && hour < to ? perMinute : 0));
}

export type Range = readonly [from: number, to: number];

export function randomIn([from, to]: Range, random: Random): number {
  return from + (to - from) * random();
}
