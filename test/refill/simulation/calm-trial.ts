/** One source and steady clients for a day, without failures. */
import { sourceOptions } from '../rig.ts';
import type { TrialOptions, World } from './world.ts';

export function calmTrial(world: Partial<World> = {}): TrialOptions {
  return {
    days: 1,
    seed: 1,
    refill: { sources: [sourceOptions({ size: 10 })], idleAfterMs: 300_000, callTimeoutMs: 10_000 },
    pool: {
      sources: [{ name: 'city', priority: 1, size: 10, unknownLifetimeMs: 600_000 }],
      rotation: {
        strategy: 'round-robin',
        maxTunnelsPerMember: 0,
        maxUsesPerMember: 0,
        perHostSpacingMs: 0,
        sessionTtlMs: 600_000,
        maxSessionTtlMs: 86_400_000,
        maxSessionsPerClient: 1_000,
      },
      safetyMarginMs: 3_000,
      minRemainingMs: 10_000,
      health: { maxFailures: 2, quarantineMs: 10_000 },
    },
    waitForMemberMs: 15_000,
    load: { requestsPerMinute: 5, activeHours: [0, 24], tunnelMs: 5_000 },
    world,
  };
}
