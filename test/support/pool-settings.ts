/** The settings of a pool with one source, as tests use them: the defaults of the configuration, for five members. */
import type { PoolSettings, PoolSourceOptions } from '../../src/pool/options.ts';
import type { Pool } from '../../src/pool/pool.ts';

export type PoolChanges = Omit<Partial<ConstructorParameters<typeof Pool>[0]>, 'rotation' | 'clock'> & {
  readonly rotation?: Partial<PoolSettings['rotation']> | undefined;
};

export const CITY: PoolSourceOptions = { name: 'city', priority: 1, size: 5, unknownLifetimeMs: 600_000 };

export function poolSettings(changes: PoolChanges = {}) {
  const { rotation, ...others } = changes;
  return {
    sources: [CITY],
    safetyMarginMs: 3_000,
    minRemainingMs: 10_000,
    health: { maxFailures: 2, quarantineMs: 10_000 },
    ...others,
    rotation: {
      strategy: 'round-robin',
      maxTunnelsPerMember: 0,
      maxUsesPerMember: 0,
      perHostSpacingMs: 0,
      sessionTtlMs: 600_000,
      maxSessionTtlMs: 86_400_000,
      maxSessionsPerClient: 1_000,
      ...rotation,
    },
  } as const;
}
