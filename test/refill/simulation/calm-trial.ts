/** One source and steady clients for a day, without failures. */
import { rateInHours } from '../../../src/refill/simulation/clients.ts';
import { CITY, poolSettings } from '../../support/pool-settings.ts';
import { sourceOptions } from '../rig.ts';
import type { TrialOptions, World } from './world.ts';

export function calmTrial(world: Partial<World> = {}): TrialOptions {
  return {
    days: 1,
    seed: 1,
    refill: {
      sources: [sourceOptions({ size: 10 })],
      fill: 'size',
      idleAfterMs: 300_000,
      callTimeoutMs: 10_000,
    },
    pool: poolSettings({ sources: [{ ...CITY, size: 10 }] }),
    waitForMemberMs: 15_000,
    load: { ratesByHour: rateInHours(5), tunnelMs: 5_000 },
    world,
  };
}
