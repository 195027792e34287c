import { describe, expect, test } from 'vitest';
import { runProgram } from '../../src/commands/program.ts';
import { loadConfig } from '../../src/config/load.ts';
import { callOf, fleetInstances } from '../../src/daemon/part-options.ts';
import { paceKey } from '../../src/refill/pace.ts';
import type { InstanceReport } from '../../src/refill/reaction.ts';
import { openStoreStage } from '../fleet/redis/store-stage.ts';
import { Recorder } from '../fleet/shared-pool-contract.ts';
import { testFolder, writeIn } from '../journeys/noria-process.ts';
import { NO_STORE, openStore, type TestStore } from '../support/store-server.ts';
import { until } from '../support/until.ts';
import { fakeTerminal } from './fake-terminal.ts';

const HALTED = {
  phase: 'halted',
  code: '12006',
  summary: 'The instance is frozen or disabled.',
  advice: 'Enable it.',
  limitsConnections: false,
} as const;

function writeConfig(store: TestStore, name: string, more = ''): string {
  const lines = [
    'service: { baseUrl: "http://extract.example" }',
    `sources: [{ name: city, product: shared, instance: "1", akey: 0123456789abcdef${more} }]`,
    `fleet: { url: "${store.url}", name: ${name} }`,
  ];
  return writeIn(testFolder(), 'noria.yaml', `${lines.join('\n')}\n`);
}

const instancesOf = (file: string) => ({ instances: () => fleetInstances(loadConfig(file, { env: {} })) });

function keyOf(file: string): string {
  const config = loadConfig(file, { env: {} });
  const [source] = config.sources;
  if (source === undefined) throw new TypeError('the configuration has no source');
  return paceKey(callOf(config, source));
}

async function run(...args: readonly string[]) {
  const terminal = fakeTerminal();
  const code = await runProgram(args, terminal);
  return { code, printed: terminal.printed(), errors: terminal.errors() };
}

const showFleet = (...args: readonly string[]) => run('fleet', ...args);

describe.skipIf(NO_STORE)('with a store', () => {
  test('fleet: shows whether the service has halted the instance for all norias', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const file = writeConfig(store, stage.name);
    const source = keyOf(file);
    const pool = stage.connect('a', instancesOf(file));
    const seen = new Recorder();
    await pool.follow(seen);
    const report = async (fact: { suspension?: NonNullable<InstanceReport['suspension']> }) => {
      const before = seen.facts.length;
      pool.publish([{ kind: 'source.reported', source, quota: {}, ...fact }]);
      await until('the log has the report', () => seen.facts.length > before);
      return JSON.parse((await showFleet('-c', file, '--json')).printed).sources[0];
    };
    expect(await report({ suspension: HALTED })).toMatchObject({ name: 'city', halted: true });
    const { printed } = await showFleet('-c', file);
    expect(printed).toMatch(/^city .* halted /m);
    const frozen =
      'source city: 12006: The instance is frozen or disabled. Enable it. Then run noria resume city.';
    expect(printed).toContain(`\n${frozen}`);
    const past = { ...HALTED, untilAt: stage.clock.monotonic() - 60_000 };
    expect(await report({ suspension: past }), 'noria tries again').toMatchObject({
      halted: false,
      refusal: null,
    });
    expect(await report({ suspension: HALTED })).toMatchObject({ halted: true });
    const paused = { ...HALTED, phase: 'paused' as const, untilAt: stage.clock.monotonic() + 600_000 };
    expect(await report({ suspension: paused })).toMatchObject({ paused: true, halted: false });
    expect(await report({}), 'the service accepted a call').toMatchObject({ halted: false });
    expect((await showFleet('-c', file)).printed).toMatch(/^city .* when needed /m);
  });

  test('fleet: shows the noria whose own call the service has refused, also after a call of another noria', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const file = writeConfig(store, stage.name);
    const source = keyOf(file);
    const wrongKey = { source, reason: '12001: The key is wrong.', advice: 'Set akey.' };
    let refusals = [wrongKey];
    const [a, b] = [
      stage.connect('a', { refusals: () => refusals, ...instancesOf(file) }),
      stage.connect('b', instancesOf(file)),
    ];
    for (const pool of [a, b]) await pool.follow(new Recorder());
    b.publish([{ kind: 'source.reported', source, quota: {} }]);
    // Every check waits, because the store forgets a noria whose beats a busy machine delays for some seconds.
    const seen = async () => JSON.parse((await showFleet('-c', file, '--json')).printed).sources[0];
    let shown: unknown;
    await until('the command shows the refusal', async () => {
      shown = await seen();
      return JSON.stringify(shown).includes(wrongKey.reason);
    });
    const { reason, advice } = wrongKey;
    expect(shown).toMatchObject({
      halted: false,
      refusal: null,
      refusedReplicas: [{ replica: 'a', reason, advice }],
    });
    const line =
      '\nsource city: noria a does not draw; the other norias continue. 12001: The key is wrong. Set akey.';
    await until('the text has the refusal', async () => (await showFleet('-c', file)).printed.includes(line));
    refusals = [{ ...wrongKey, source: 'another instance' }];
    await until('the noria has sent its next record', async () => {
      const { refusedReplicas } = await seen();
      return refusedReplicas.length === 0;
    });
  });

  test('fleet, check: name the noria that has another configuration of the same instance', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const file = writeConfig(store, stage.name);
    const other = writeConfig(store, stage.name, ', interval: 17s, size: 7, params: { adr: 广东 }');
    expect(keyOf(other), 'the same instance').toBe(keyOf(file));
    const [a, b] = [stage.connect('a', instancesOf(file)), stage.connect('b', instancesOf(other))];
    for (const pool of [a, b]) await pool.follow(new Recorder());
    // The command waits for both records, because the store forgets a noria whose beats a busy machine delays.
    const json = async () => JSON.parse((await showFleet('-c', file, '--json')).printed);
    let report = await json();
    await until('the store has both records', async () => {
      report = await json();
      return report.replicas.length === 2 && report.differences.length > 0;
    });
    const [own] = fleetInstances(loadConfig(file, { env: {} }));
    const difference = `interval 17000 ms instead of ${own?.settings.intervalMs} ms and size 7 instead of ${own?.settings.size} and other params for the instance ${keyOf(file)}`;
    expect(report.differences).toEqual([{ replica: 'b', difference }]);
    const line = `noria b has ${difference}; give all norias of the fleet the same configuration`;
    await until('the text has the line', async () => (await showFleet('-c', file)).printed.includes(line));
    await until('the check has the line', async () => (await run('check', '-c', file)).errors.includes(line));
  });

  test('fleet: a differing params.count is another configuration of the same instance', async () => {
    const store = await openStore();
    const stage = openStoreStage(store);
    const file = writeConfig(store, stage.name);
    const other = writeConfig(store, stage.name, ', params: { count: 5 }');
    const [a, b] = [stage.connect('a', instancesOf(file)), stage.connect('b', instancesOf(other))];
    for (const pool of [a, b]) await pool.follow(new Recorder());
    let report = { replicas: [], differences: [] };
    await until('the store has both records', async () => {
      report = JSON.parse((await showFleet('-c', file, '--json')).printed);
      return report.replicas.length === 2;
    });
    const difference = `other params for the instance ${keyOf(file)}`;
    expect(report.differences).toEqual([{ replica: 'b', difference }]);
  });

  test('fleet: says that a hung store does not answer, and what to check', async () => {
    const store = await openStore();
    const file = writeConfig(store, 'crawl');
    store.signal('SIGSTOP');
    const { code, errors } = await showFleet('-c', file);
    expect(code).toBe(3);
    expect(errors).toMatch(
      /no (?:connection|answer to \w+) within \d+ ms\n {2}Check fleet\.url, that the store runs/,
    );
    expect(errors).not.toContain('reconnects');
  });

  test('fleet, check: the exit code is 3 for an unreachable store, and 1 for a store that refuses noria', async () => {
    const store = await openStore();
    const file = writeConfig(store, 'crawl');
    const codes = () =>
      Promise.all(['fleet', 'check'].map(async (command) => (await run(command, '-c', file)).code));
    expect(await codes()).toEqual([0, 0]);
    await store.command('CONFIG', 'SET', 'requirepass', 'another-one');
    expect(await codes(), 'a wrong password').toEqual([1, 1]);
    await store.kill();
    expect(await codes(), 'no store').toEqual([3, 3]);
  });
});
