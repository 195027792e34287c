/** What goes wrong in a trial. */
import type { Range, SimulatedServiceOptions } from '../../../src/refill/simulation/service.ts';
import type { SimulationOptions } from '../../../src/refill/simulation/simulate.ts';

export interface TrialOptions extends SimulationOptions {
  readonly world?: Partial<World>;
}

export interface World extends Pick<SimulatedServiceOptions, 'connectMs' | 'callMs' | 'lifetimeMs'> {
  /** How long the disk takes before and after each change of the pace. */
  readonly diskMs: Range;
  /** The share of members that never work. */
  readonly deadShare: number;
  /** The share of members in an answer that were returned before and have not expired. */
  readonly repeatShare: number;
  /** The service refuses a larger count with 12003. */
  readonly maxCount: number;
  readonly troubles: readonly Trouble[];
  /** How often per day noria is killed and started again soon. */
  readonly crashesPerDay: number;
  /** The share of changes of the pace, and of sent calls, after which the process is stopped (SIGSTOP) for up to a minute. */
  readonly stopShare: number;
  /** The share of changes of the pace, and of sent calls, after which the process is killed. */
  readonly killShare: number;
  /** How often per day another process on the same state folder makes one call. */
  readonly extractsPerDay: number;
  /** How often per day the wall clock is set, by up to two hours in either direction. */
  readonly clockStepsPerDay: number;
}

/** A period in which the service fails, in monotonic ms since the start. */
export interface Trouble {
  readonly kind: TroubleKind;
  readonly fromMs: number;
  readonly toMs: number;
}

/** `outage`: no answer. `blocked`: something other than the service answers. Otherwise the service answers with that code. */
export type TroubleKind = 'outage' | 'blocked' | '12002' | '12009' | '12010' | '12012';

/** A world without failures. */
export const CALM_WORLD: World = {
  deadShare: 0,
  repeatShare: 0,
  maxCount: Number.POSITIVE_INFINITY,
  troubles: [],
  diskMs: [0, 0],
  crashesPerDay: 0,
  stopShare: 0,
  killShare: 0,
  extractsPerDay: 0,
  clockStepsPerDay: 0,
};
