/** What a simulation assumes: who comes, what the service gives, what goes wrong. Durations in ms. */
import type { Random } from '../../core/random.ts';
import type { PoolSettings } from '../../pool/options.ts';
import type { Product } from '../../service/operations.ts';
import type { RefillSettings } from '../options.ts';

export interface SimulationOptions {
  readonly refill: RefillSettings;
  readonly pool: PoolSettings;
  /** How long a client waits for a member. */
  readonly waitForMemberMs: number;
  readonly days: number;
  /** The same seed gives the same days. */
  readonly seed: number;
  readonly load: SimulatedLoad;
  readonly world?: Partial<SimulatedWorld>;
}

/** The clients. */
export interface SimulatedLoad {
  /** While they come, on average; at random moments. */
  readonly requestsPerMinute: number;
  /** Hours of the service's day from and to which they come; from 0 to 24: always. */
  readonly activeHours: readonly [from: number, to: number];
  /** How long a tunnel lasts on average. */
  readonly tunnelMs: number;
}

/** The service and everything around noria. */
export interface SimulatedWorld {
  /** How long the members of a product live when they are drawn. */
  readonly lifetimeMs: (product: Product, timespan: number | undefined) => Range;
  /** Members that never work. */
  readonly deadShare: number;
  /** Members of an answer that were given before and still live. */
  readonly repeatShare: number;
  /** How long a call takes. */
  readonly callMs: Range;
  /** The single-pull limit: asking for more is refused with 12003. */
  readonly pullLimit: number;
  /** When the service does not do what it should. */
  readonly troubles: readonly Trouble[];
  /** How often noria is killed, and started again a little later. */
  readonly crashesPerDay: number;
  /** How often the wall clock is set, by up to two hours either way. */
  readonly clockStepsPerDay: number;
}

/** From one moment to another, on monotonic time since the start. */
export interface Trouble {
  readonly kind: TroubleKind;
  readonly fromMs: number;
  readonly toMs: number;
}

/** `outage`: no answer. `blocked`: something else answers. Or each call is answered with that code. */
export type TroubleKind = 'outage' | 'blocked' | '12002' | '12009' | '12010' | '12012';

export type Range = readonly [from: number, to: number];

const MINUTE_MS = 60_000;

/** A world in which everything goes well. */
export const CALM_WORLD: SimulatedWorld = {
  lifetimeMs: typicalLifetime,
  deadShare: 0,
  repeatShare: 0,
  callMs: [100, 1_200],
  pullLimit: Number.POSITIVE_INFINITY,
  troubles: [],
  crashesPerDay: 0,
  clockStepsPerDay: 0,
};

/** The lifetimes that the specification names for a product and its `timespan`, in minutes; guesses where it names none. */
function typicalLifetime(product: Product, timespan = 1): Range {
  switch (product) {
    case 'long-residential':
    case 'residential-socks5':
      return [timespan * MINUTE_MS, 30 * MINUTE_MS];
    case 'shared':
      return [Math.max(1, timespan) * MINUTE_MS, 10 * MINUTE_MS];
    case 'short-socks5':
    case 'short-classic':
    case 'short-pure':
      return [Math.max(1, timespan) * MINUTE_MS, 6 * MINUTE_MS];
    case 'exclusive':
      return [MINUTE_MS, 10 * MINUTE_MS];
    case 'free':
      return [MINUTE_MS, 10 * MINUTE_MS];
  }
}

/** A number of the range. */
export function within([from, to]: Range, random: Random): number {
  return from + (to - from) * random();
}
