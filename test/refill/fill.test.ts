/** A source with `fill: demand`: what it draws over time. The service and the clock are the rig's. */
import { expect, test } from 'vitest';
import { MINUTE_MS } from '../../src/core/duration.ts';
import { openRig, pass, type Rig, settle, sourceOptions } from './rig.ts';

const NO_CLIENT = { lastWantedAt: Number.NEGATIVE_INFINITY };

function openDemand(size = 20): Rig {
  const rig = openRig({
    fill: 'demand',
    sources: [sourceOptions({ size, count: 20 })],
    prepare: ({ pool }) => pool.want('city', NO_CLIENT),
  });
  return rig;
}

const drawn = ({ service }: Rig) => service.calls.reduce((sum, { count }) => sum + count, 0);

/** Clients come at this rate for this time. They wait only while no member is usable. */
async function load(rig: Rig, requestsPerMinute: number, ms: number): Promise<void> {
  const endsAt = rig.clock.monotonic() + ms;
  while (rig.clock.monotonic() < endsAt) {
    const now = rig.clock.monotonic();
    const waiting = rig.pool.usableAt('city', now) === 0 ? 1 : 0;
    rig.pool.want('city', { lastWantedAt: now, perSecond: requestsPerMinute / 60, waiting });
    rig.bus.emit('demand.rose', { sources: ['city'] });
    await pass(rig.clock, 1_000, 250);
  }
}

test('fill demand: the start-up draw takes two members', async () => {
  const rig = openDemand();
  await pass(rig.clock, MINUTE_MS);
  expect(rig.service.calls.map(({ at, count }) => [at, count])).toEqual([[0, 2]]);
  const small = openDemand(1);
  await pass(small.clock, MINUTE_MS);
  expect(drawn(small)).toBe(1);
});

test('fill demand: two requests a minute for ten minutes cost at most six members of three minutes', async () => {
  const rig = openDemand();
  await load(rig, 2, 10 * MINUTE_MS);
  expect(drawn(rig)).toBeLessThanOrEqual(6);
  expect(rig.status().reason).toBe('holds 1 of at most 20: 2 requests a minute, members live 3 min');
});

test('fill demand: heavy load fills the pool, and light load lets it end', async () => {
  const rig = openDemand();
  await load(rig, 2_400, 2 * MINUTE_MS);
  expect(rig.pool.usableAt('city', rig.clock.monotonic())).toBe(20);
  const before = drawn(rig);
  await load(rig, 2, 10 * MINUTE_MS);
  expect(drawn(rig) - before).toBeLessThanOrEqual(4);
});

test('fill demand: after idle time one client costs one member', async () => {
  const rig = openDemand();
  await pass(rig.clock, 20 * MINUTE_MS, 10_000);
  expect(rig.status()).toMatchObject({ state: 'idle' });
  const before = drawn(rig);
  rig.pool.want('city', { lastWantedAt: rig.clock.monotonic(), waiting: 1 });
  rig.bus.emit('demand.rose', { sources: ['city'] });
  await pass(rig.clock, 2_000, 50);
  rig.pool.want('city', { waiting: 0 });
  await pass(rig.clock, 2 * MINUTE_MS);
  expect(drawn(rig) - before).toBe(1);
});

test('fill demand: a draw for a client waits a tenth of a second for those that come with it', async () => {
  const rig = openDemand();
  await pass(rig.clock, 20 * MINUTE_MS, 10_000);
  const calls = rig.service.calls.length;
  rig.pool.want('city', { lastWantedAt: rig.clock.monotonic(), waiting: 1 });
  rig.bus.emit('demand.rose', { sources: ['city'] });
  await settle();
  expect(rig.service.calls).toHaveLength(calls);
  rig.pool.want('city', { waiting: 4 });
  await pass(rig.clock, 100, 50);
  expect(rig.service.calls.slice(calls).map(({ count }) => count)).toEqual([4]);
});

test('fill demand: a refill that the operator requests fills the pool', async () => {
  const rig = openDemand();
  await pass(rig.clock, MINUTE_MS);
  rig.refiller.refill('city');
  await pass(rig.clock, MINUTE_MS);
  expect(rig.pool.usableAt('city', rig.clock.monotonic())).toBe(20);
});
