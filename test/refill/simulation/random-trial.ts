/** Random trials from a seed: products, sizes, clients, failures, crashes and clock steps. */

import { DAY_MS, MINUTE_MS } from '../../../src/core/duration.ts';
import { type Random, randomBelow, seededRandom, shuffled } from '../../../src/core/random.ts';
import { Secret } from '../../../src/core/secret.ts';
import { STRATEGIES } from '../../../src/pool/options.ts';
import type { DrawSourceOptions } from '../../../src/refill/options.ts';
import { rateInHours } from '../../../src/refill/simulation/clients.ts';
import { OPERATIONS, PRODUCTS } from '../../../src/service/operations.ts';
import type { TrialOptions, Trouble, TroubleKind } from './world.ts';

const TROUBLES: readonly TroubleKind[] = ['outage', 'blocked', '12002', '12009', '12010', '12012'];

export function randomTrial(seed: number, days: number): TrialOptions {
  const random = seededRandom(seed);
  const sources = Array.from({ length: 1 + randomBelow(random, 3) }, (_, index) =>
    randomSource(random, index),
  );
  const activeFrom = randomBelow(random, 12);
  const idleAfterMs = pick(random, [0, MINUTE_MS, 5 * MINUTE_MS]);
  return {
    days,
    seed,
    refill: { sources, fill: 'size', idleAfterMs, callTimeoutMs: 10_000 },
    pool: {
      sources: sources.map(({ name, priority, size }) => ({
        name,
        priority,
        size,
        unknownLifetimeMs: 10 * MINUTE_MS,
      })),
      rotation: {
        strategy: pick(random, STRATEGIES),
        maxTunnelsPerMember: pick(random, [0, 0, 10]),
        maxUsesPerMember: pick(random, [0, 0, 5]),
        perHostSpacingMs: 0,
        sessionTtlMs: 10 * MINUTE_MS,
        maxSessionTtlMs: 86_400_000,
        maxSessionsPerClient: 1_000,
      },
      safetyMarginMs: 3_000,
      minRemainingMs: 10_000,
      health: { maxFailures: 1 + randomBelow(random, 3), quarantineMs: 10_000 },
    },
    waitForMemberMs: 15_000,
    load: {
      ratesByHour: rateInHours(
        pick(random, [0.2, 2, 8]),
        pick(random, [
          [0, 24],
          [activeFrom, activeFrom + 12],
        ] as const),
      ),
      tunnelMs: pick(random, [500, 5_000, 60_000]),
    },
    world: {
      deadShare: pick(random, [0, 0.1, 0.3]),
      repeatShare: pick(random, [0, 0.2]),
      connectMs: [5, pick(random, [50, 4_000])],
      diskMs: [0, pick(random, [0, 20, 1_100])], // the longest of these delays exceeds the life of a permit
      callMs: [50, pick(random, [300, 1_200, 5_000])],
      maxCount: pick(random, [Number.POSITIVE_INFINITY, 3]),
      troubles: randomTroubles(random, days),
      crashesPerDay: pick(random, [0, 8]),
      stopShare: pick(random, [0, 0.02]),
      killShare: pick(random, [0, 0.01]),
      extractsPerDay: pick(random, [0, 200]),
      clockStepsPerDay: pick(random, [0, 8]),
    },
  };
}

function randomSource(random: Random, index: number): DrawSourceOptions {
  const product = pick(random, PRODUCTS);
  const { minIntervalMs, params } = OPERATIONS[product];
  const timespan = params['timespan'];
  const from = timespan?.kind === 'whole' ? timespan.from : undefined;
  return {
    name: `source${index}`,
    call: {
      product,
      method: 'GET',
      format: 'json',
      baseUrl: 'http://service.test',
      instance: pick(random, ['shared', `own${index}`]), // sources of one instance share its pace
      key: new Secret('0123456789abcdef'),
      params: from === undefined ? {} : { timespan: from + randomBelow(random, 4) },
    },
    secrets: [],
    intervalMs: Math.max(minIntervalMs, pick(random, [1_000, 10_000, 30_000])),
    count: pick(random, [undefined, 1, 5, 10]),
    size: 1 + randomBelow(random, 12),
    priority: index === 0 ? 1 : 1 + randomBelow(random, 2),
    dailyBudget: undefined,
    protocol: 'http',
    unproven: false,
    defaultLifetimeMs: MINUTE_MS,
  };
}

function randomTroubles(random: Random, days: number): Trouble[] {
  return shuffled(random, TROUBLES)
    .slice(0, randomBelow(random, TROUBLES.length + 1))
    .map((kind) => {
      const fromMs = random() * days * DAY_MS;
      return { kind, fromMs, toMs: fromMs + (1 + random() * 30) * MINUTE_MS };
    });
}

function pick<T>(random: Random, items: readonly T[]): T {
  const item = items[randomBelow(random, items.length)];
  if (item === undefined && !items.includes(item as T)) throw new TypeError('nothing to pick from');
  return item as T;
}
