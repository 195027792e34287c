import { expect, onTestFinished, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { systemClock } from '../../src/core/clock.ts';
import { EventBus } from '../../src/core/events.ts';
import { systemRandom } from '../../src/core/random.ts';
import { refusalsOf, storeConnector } from '../../src/daemon/fleet.ts';
import { Recorder } from '../fleet/shared-pool-contract.ts';
import { openRig, pass } from '../refill/rig.ts';
import { NO_STORE, openStore, type TestStore } from '../support/store-server.ts';
import { until } from '../support/until.ts';

/** A noria's connection to its fleet, and the events about the store. */
async function join({ url }: TestStore) {
  const lines = [
    'service: { baseUrl: "http://extract.example" }',
    'sources: [{ name: city, product: shared, instance: "1", akey: 0123456789abcdef }]',
    `fleet: { url: "${url}" }`,
  ];
  const { fleet } = parseConfig(lines.join('\n'), 'test.yaml', { env: {} });
  if (fleet === undefined) throw new TypeError('the configuration has no fleet');
  const bus = new EventBus((_, error) => {
    throw error;
  });
  const events: string[] = [];
  bus.on('fleet.store', ({ up, code }) => void events.push(up ? 'connected' : `${code}`));
  const options = {
    restored: undefined,
    clients: () => 0,
    refusals: () => [],
    instances: () => [],
    refuses: () => undefined,
    callTimeoutMs: () => 10_000,
  };
  const pool = await storeConnector(fleet).open({
    ...options,
    clock: systemClock,
    random: systemRandom,
    bus,
  });
  onTestFinished(() => pool.close());
  await pool.follow(new Recorder());
  return { pool, events };
}

test.skipIf(NO_STORE)('fleet: reports each loss of the store once, although the reason changes', async () => {
  const store = await openStore();
  const { pool, events } = await join(store);
  const connects = () => events.filter((event) => event === 'connected').length;
  for (let loss = 1; loss <= 2; loss += 1) {
    await store.kill();
    await until('an attempt to reconnect fails', () => /ECONNREFUSED/.test(pool.fault?.message ?? ''));
    await store.start();
    await until('it is connected', () => connects() > loss);
  }
  const once = ['fleet-store-lost', 'connected'];
  expect(events).toEqual(['connected', ...once, ...once]);
});

test.skipIf(NO_STORE)('fleet: reports once that the store refuses noria after a loss', async () => {
  const store = await openStore();
  const { pool, events } = await join(store);
  await store.kill();
  const locked = await openStore({ port: store.port, password: 'another-one' });
  await until('the store refuses noria', () => pool.fault?.code === 'fleet-store-unusable');
  await locked.command('CONFIG', 'SET', 'requirepass', '');
  await until('it is connected', () => events.at(-1) === 'connected' && pool.fault === undefined);
  expect(events).toEqual(['connected', 'fleet-store-lost', 'fleet-store-unusable', 'connected']);
});

test('fleet: a noria names the sources that stop because of its own last call', async () => {
  const rig = openRig();
  let code = '12001';
  rig.service.reply = () => ({ code });
  const keys = { keyOf: (source: string) => `key of ${source}`, sourceOf: () => undefined };
  const refusals = () => refusalsOf(rig.refiller.sources(), keys);
  expect(refusals()).toEqual([]);
  await pass(rig.clock, 1_000);
  expect(refusals()).toMatchObject([{ source: 'key of city', reason: '12001: The key is wrong.' }]);
  rig.refiller.pause('city');
  await pass(rig.clock, 1_000);
  expect(refusals(), 'the operator paused the source').toEqual([]);
  code = '10001';
  rig.refiller.resume('city');
  rig.refiller.refill('city');
  await pass(rig.clock, 20_000);
  expect(rig.status().lastDraw, 'a draw').toMatchObject({ result: 'succeeded' });
  expect(refusals()).toEqual([]);
  const suspension = {
    code: '12006',
    summary: 'The instance is frozen.',
    advice: '',
    limitsConnections: false,
  };
  rig.refiller.receiveReport('city', { quota: {}, suspension: { ...suspension, phase: 'halted' } });
  await pass(rig.clock, 1_000);
  expect(rig.status().state, 'because of the call of another noria').toBe('halted');
  expect(refusals()).toEqual([]);
});
