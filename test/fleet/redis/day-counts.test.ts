import { expect, test } from 'vitest';
import { DayCounts } from '../../../src/fleet/redis/pace-store.ts';
import { DailyBudget } from '../../../src/refill/source-statistics.ts';
import { NO_STORE, openStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { openStoreStage } from './store-stage.ts';

test.skipIf(NO_STORE)('daily budget: counts each IP once a day for all norias of a fleet', async () => {
  const server = await openStore();
  const stage = openStoreStage(server);
  const budgets = await Promise.all(
    [1, 2].map(async () => {
      const store = stage.store();
      await until('it is connected', () => store.connection.fault === undefined);
      const counts = new DayCounts(store);
      const shared = {
        add: (ips: readonly string[]) => counts.add('city', ips),
        used: () => counts.used('city'),
      };
      return { counts, budget: new DailyBudget(Date.now(), undefined, shared) };
    }),
  );
  const [one, two] = budgets as [(typeof budgets)[number], (typeof budgets)[number]];
  one.budget.add(['203.0.113.1', '203.0.113.2'], Date.now());
  two.budget.add(['203.0.113.2', '203.0.113.3'], Date.now());
  for (const { counts, budget } of budgets) {
    await until('it knows all', () => {
      counts.refresh();
      return budget.used(Date.now()) === 3;
    });
  }
  await server.command('FLUSHALL');
  for (const { budget } of budgets) budget.shareAgain(Date.now());
  const late = new DayCounts(stage.store());
  await until('the store knows all again', () => {
    late.refresh();
    return late.used('city') === 3;
  });
  const keys = (await server.command('KEYS', '*:day:*')) as string[];
  const stored = JSON.stringify(await server.command('SMEMBERS', keys[0] ?? ''));
  expect(keys).toHaveLength(1);
  expect(stored).not.toContain('203.0.113');
});
