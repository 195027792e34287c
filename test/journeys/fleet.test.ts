/**
 * Two norias that have only `fleet.url` in common behave as one, to their clients and to the service. The sandbox records the
 * calls: the time between two calls is never shorter than the interval.
 */
import { expect, test } from 'vitest';
import { exitOf, expectPace, idsOf, openFleetStage, PATIENT_DIAL } from '../support/fleet-stage.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { NO_STORE, openStore } from '../support/store-server.ts';
import { until } from '../support/until.ts';
import { testFolder } from './noria-process.ts';

const MEMBERS = 6;
const openStage = () => openFleetStage(MEMBERS, [PATIENT_DIAL]);

test.skipIf(NO_STORE)(
  'fleet: two norias draw as one, share members and sessions, and obey one operator',
  async () => {
    const { sandbox, start } = await openStage();
    const one = await start('one');
    // The other noria has another name for the source; the instance is what they share.
    const two = await start('two', { source: 'town' });
    expect(await exitOf(two, sandbox)).toMatch(/^127/); // a client of one noria is demand for all
    await untilReady(one, MEMBERS);
    await untilReady(two, MEMBERS);
    await until('both have the same members', () => idsOf(one).join() === idsOf(two).join());
    expect(idsOf(one)).toHaveLength(MEMBERS);
    expect(sandbox.stats().codes).toEqual({ '10001': MEMBERS / 2 });
    const drawers = new Set(two.control.members().map(({ drawnBy }) => drawnBy));
    expect([...drawers].every((name) => name === 'one' || name === 'two')).toBe(true);

    for (const session of ['a', 'b', 'c', 'd']) {
      // On a busy machine, the store may need longer than a new session waits for it; then one of the two moves, and both agree soon.
      await until('both use the same exit', async () => {
        const exit = await exitOf(two, sandbox, session);
        return (await exitOf(one, sandbox, session)) === exit;
      });
    }

    const figures = [one, two].map(({ control }) => control.status().sources[0]);
    for (const each of figures) expect(each?.used, 'of its own draws').toBeLessThanOrEqual(each?.drawn ?? 0);

    one.control.pauseSource('city');
    await until('the other is paused, too', () => two.control.status().sources[0]?.state === 'paused');
    two.control.resumeSource('town');
    await until('both have resumed', () => one.control.status().sources[0]?.state !== 'paused');

    const [first = ''] = idsOf(one);
    one.control.evictMember(first);
    await until('it has left both', () => !idsOf(two).includes(first));
    await until('it is replaced', () => idsOf(two).length === MEMBERS && idsOf(one).length === MEMBERS);

    // A noria that a busy machine delays is missing from the list for a while.
    await until('the status shows the whole fleet', () => {
      const { fleet } = one.control.status();
      return fleet?.store === 'connected' && fleet.replicas.map(({ name }) => name).join() === 'one,two';
    });
    expect(one.control.status().fleet).toMatchObject({ name: 'noria', replica: 'one', lostForSeconds: 0 });
    expectPace(sandbox);
  },
);

test.skipIf(NO_STORE)('fleet: a new fleet on an empty store makes its first call within 3 s', async () => {
  const store = await openStore();
  const sandbox = await openTestSandbox({ members: 4, instances: [{ product: 'shared' }] });
  const start = (replica: string) =>
    startNoria({
      sources: [
        sourceLine(sandbox, 'city', 'shared', 'interval: 10s, size: 2, params: { count: 2, pro: 1 }'),
      ],
      more: `fleet: { url: "${store.url}", replica: ${replica} }\nstate: { dir: ${testFolder()} }\n${PATIENT_DIAL}`,
    });
  const startedAt = Date.now();
  const [one] = await Promise.all([start('one'), start('two')]);
  expect(await exitOf(one, sandbox)).toMatch(/^127/);
  const [first] = sandbox.calls();
  expect((first?.arrivedAt ?? Infinity) - startedAt, 'ms until the first call').toBeLessThan(3_000);
});
