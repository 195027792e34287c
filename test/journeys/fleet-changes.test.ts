/** What the other norias of a fleet do when one of them, the store or the service changes. */
import { expect, test } from 'vitest';
import { runProgram } from '../../src/commands/program.ts';
import { fakeTerminal } from '../commands/fake-terminal.ts';
import { exitOf, expectPace, idsOf, openFleetStage, PATIENT_DIAL } from '../support/fleet-stage.ts';
import { type Noria, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { NO_STORE, openStore } from '../support/store-server.ts';
import { until } from '../support/until.ts';
import { testFolder, writeIn } from './noria-process.ts';

const INTERVAL_MS = 1_000;
const MEMBERS = 6;
const openStage = () => openFleetStage(MEMBERS, [PATIENT_DIAL]);

test.skipIf(NO_STORE)(
  'fleet: what stops the draws of one stops those of all, also of a noria that starts later',
  async () => {
    const { sandbox, start } = await openStage();
    const { id } = sandbox.instance('shared');
    const one = await start('one');
    await exitOf(one, sandbox); // the request of a client causes demand
    await untilReady(one, MEMBERS);
    const stateOf = ({ control }: Noria) => control.status().sources[0]?.state;
    const evictOne = () => {
      const [first = ''] = idsOf(one);
      one.control.evictMember(first);
      return first;
    };
    const untilReplaced = (noria: Noria, id: string) =>
      until(`${id} is replaced`, () => idsOf(noria).length === MEMBERS && !idsOf(noria).includes(id));

    one.control.pauseSource('city');
    const two = await start('two');
    const evicted = evictOne();
    await until('the other noria is paused', () => stateOf(two) === 'paused');
    one.control.resumeSource('city');
    await untilReplaced(two, evicted);

    sandbox.setCondition(id, { frozen: true });
    const last = evictOne();
    await until('both are halted', () => [one, two].every((noria) => stateOf(noria) === 'halted'));
    const three = await start('three');
    await until('the new noria is halted', () => stateOf(three) === 'halted');
    expect(three.control.status().sources[0]).toMatchObject({
      code: '12006',
      reason: '12006: The instance is frozen or disabled. Another noria of the fleet got this answer.',
    });
    expect(sandbox.stats().codes['12006']).toBe(1);

    sandbox.setCondition(id, { frozen: false });
    two.control.resumeSource('city');
    await untilReplaced(three, last);
    await until('no noria is halted', () => [one, two, three].every((noria) => stateOf(noria) !== 'halted'));
    expectPace(sandbox);
  },
);

test.skipIf(NO_STORE)('fleet: noria fleet, check and extract use the store', async () => {
  const { sandbox, store, start } = await openStage();
  const one = await start('one');
  await until('it has drawn', () => idsOf(one).length > 0);
  const file = writeIn(
    testFolder(),
    'noria.yaml',
    [
      'sources:',
      sourceLine(sandbox, 'harbor', 'shared', `interval: ${INTERVAL_MS}ms`),
      'pool: { fill: size, allowPrivateAddresses: true }',
      `fleet: { url: "${store.url}" }`,
      'state: off',
    ].join('\n'),
  );
  const run = async (...args: string[]) => {
    const terminal = fakeTerminal();
    const exitCode = await runProgram([...args, '-c', file], terminal);
    return { exitCode, out: terminal.printed(), err: terminal.errors() };
  };
  const shown = await run('fleet', '--json');
  expect({ ...shown, out: JSON.parse(shown.out) }).toMatchObject({
    exitCode: 0,
    out: {
      name: 'noria',
      replicas: [{ name: 'one', drew: idsOf(one).length }],
      sources: [{ name: 'harbor', members: idsOf(one).length, paused: false, waiting: 0 }],
    },
  });
  expect((await run('fleet')).out).toMatch(/^fleet noria: 1 noria, 0 sessions\n\nNORIA/);
  const checked = await run('check');
  expect(checked).toMatchObject({
    exitCode: 0,
    out: expect.stringMatching(/\n# fleet: \S+ [\d.]+ at \S+ is ready/),
  });
  expect((await run('extract', 'harbor', '--json')).exitCode).toBe(0);
  expect((await run('extract', 'harbor', '--json')).exitCode).toBe(0);
  expectPace(sandbox);
  await store.kill();
  expect(await run('fleet')).toMatchObject({ exitCode: 3, err: expect.stringContaining('ECONNREFUSED') });
  expect(await run('check')).toMatchObject({ exitCode: 3, err: expect.stringContaining('ECONNREFUSED') });
  expect((await run('extract', 'harbor')).exitCode).toBe(3);
});

test.skipIf(NO_STORE)('fleet: the norias put their members back into a store that was emptied', async () => {
  const { sandbox, store, start } = await openStage();
  const one = await start('one');
  await exitOf(one, sandbox); // the request of a client causes demand
  await untilReady(one, MEMBERS);
  const [first = ''] = idsOf(one);
  one.control.pauseSource('city'); // so that no draw replaces the member
  await store.command('FLUSHALL');
  const two = await start('two');
  await until('the other noria has the members', () => idsOf(two).includes(first));
  expect(idsOf(two)).toEqual(idsOf(one));
  expectPace(sandbox);
});

test.skipIf(NO_STORE)(
  'fleet: a noria that leaves the fleet and joins it again makes no early call',
  async () => {
    const store = await openStore();
    const sandbox = await openTestSandbox({
      members: 100,
      lifetimeMs: 600_000,
      instances: [{ product: 'shared' }],
    });
    const keys = `interval: ${INTERVAL_MS}ms, size: 40, params: { count: 2, pro: 1 }`;
    const state = `state: { dir: "${testFolder()}" }`;
    const fleet = `fleet: { url: "${store.url}", name: crawl }`;
    for (const more of [[state, fleet], [state], [state, fleet]]) {
      const calls = sandbox.calls().length;
      const noria = await startNoria({
        sources: [sourceLine(sandbox, 'city', 'shared', keys)],
        more: more.join('\n'),
      });
      await until('it has called the service', () => sandbox.calls().length > calls);
      const warned = noria.lines.filter((line) => line.includes('noria has left the fleet crawl'));
      expect(warned).toHaveLength(more.includes(fleet) ? 0 : 1);
      await noria.close();
    }
    expectPace(sandbox);
  },
);
