/**
 * Whole norias of one fleet, with faults of their store. Clients must not notice the faults. The sandbox records the calls: the
 * time between two calls is never shorter than the interval.
 */
import { expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { curl } from '../../support/curl.ts';
import { openCuttingProxy } from '../../support/cutting-proxy.ts';
import { exitOf, expectPace, openFleetStage } from '../../support/fleet-stage.ts';
import { type Noria, untilReady } from '../../support/noria.ts';
import { NO_STORE } from '../../support/store-server.ts';
import { hasCommand } from '../../support/tools.ts';
import { until } from '../../support/until.ts';

const MEMBERS = 4;
/** A client that sent requests without a pause would take a whole core from the norias. */
const CLIENT_PAUSE_MS = 10;
const cannotRun = NO_STORE || !hasCommand('curl');

/** @param waitForMember - how long a client waits at most. */
const openStage = (waitForMember = '60s') =>
  openFleetStage(MEMBERS, [
    'service: { timeout: 1s }',
    `dial: { waitForMember: ${waitForMember}, deadline: 60s }`,
  ]);

/**
 * Sends requests through all norias in turn until the end of the test. Returns the answers that are not an exit of a
 * member.
 */
function keepRequesting(norias: readonly Noria[], sandbox: Sandbox): readonly string[] {
  const failed: string[] = [];
  let isOver = false;
  const ended = (async () => {
    while (!isOver) {
      for (const noria of norias) {
        const exit = await exitOf(noria, sandbox);
        if (!/^127\./.test(exit)) failed.push(exit);
        await new Promise((next) => setTimeout(next, CLIENT_PAUSE_MS));
      }
    }
  })();
  onTestFinished(async () => {
    isOver = true;
    await ended;
  });
  return failed;
}

const idsOf = ({ control }: Noria) =>
  control
    .members()
    .map(({ id }) => id)
    .sort();
const storeOf = ({ control }: Noria) => control.status().fleet?.store;
const untilStore = (norias: readonly Noria[], state: 'connected' | 'lost') =>
  until(`the store is ${state}`, () => norias.every((noria) => storeOf(noria) === state));

/** Evicts a member and waits until all norias have the replacement. */
async function replaceMember(norias: readonly Noria[]): Promise<void> {
  const [first] = norias;
  const [id = ''] = first === undefined ? [] : idsOf(first);
  first?.control.evictMember(id);
  await until('it is replaced', () =>
    norias.every((noria) => !idsOf(noria).includes(id) && idsOf(noria).length >= MEMBERS),
  );
}

test.skipIf(cannotRun)(
  'fleet: a store that hangs, restarts or is emptied fails no client and breaks no pace',
  async () => {
    const { sandbox, store, start } = await openStage();
    const norias = [await start('one'), await start('two')];
    const [one, two] = norias as [Noria, Noria];
    const failed = keepRequesting(norias, sandbox);
    for (const noria of norias) await untilReady(noria, MEMBERS);

    store.signal('SIGSTOP');
    await untilStore(norias, 'lost');
    expect(one.control.status().fleet?.reason).toMatch(/no answer to|no connection within/);
    store.signal('SIGCONT');
    await untilStore(norias, 'connected');
    await replaceMember(norias);

    await store.kill();
    await untilStore(norias, 'lost');
    await store.start();
    await untilStore(norias, 'connected');
    await replaceMember(norias);

    await store.kill();
    await store.start({ empty: true });
    await untilStore(norias, 'connected');
    const late = await start('three');
    await until('members were put back', () => idsOf(late).join() === idsOf(two).join());
    await replaceMember([one, two, late]);
    expect(failed).toEqual([]);
    expectPace(sandbox);
  },
);

test.skipIf(cannotRun)(
  'fleet: a noria that is cut off serves its members, then says why it has none; the others notice',
  async () => {
    const { sandbox, store, start } = await openStage('2s');
    const proxy = await openCuttingProxy(store.port);
    const one = await start('one', { storePort: proxy.port });
    const two = await start('two');
    await until('it serves', async () => /^127\./.test(await exitOf(one, sandbox)));
    await untilReady(one, MEMBERS);
    proxy.stall();
    await untilStore([one], 'lost');
    expect(await exitOf(one, sandbox)).toMatch(/^127\./);
    await until('the other notices', () => two.control.status().fleet?.replicas.length === 1);
    expect(storeOf(two)).toBe('connected');

    for (const id of idsOf(one)) one.control.evictMember(id);
    const { out } = await curl('-i', '-x', `http://${one.proxy}`, `${sandbox.targetUrl}/ip`);
    expect(out).toMatch(/^HTTP\/1\.1 503 /);
    expect(out).toMatch(/^Retry-After: \d+/im);
    expect(out).toContain("noria cannot reach the fleet's store");
    await until('readiness says why', () =>
      one.control.status().problems.some(({ kind }) => kind === 'store-lost'),
    );
    expect(await exitOf(two, sandbox)).toMatch(/^127\./);

    proxy.heal();
    await untilStore([one], 'connected');
    await until('it serves again', async () => /^127\./.test(await exitOf(one, sandbox)));
    expectPace(sandbox);
  },
);

test.skipIf(cannotRun)(
  'fleet: 20 norias that start at once draw only what is missing, at the pace',
  async () => {
    const { sandbox, start } = await openStage();
    const norias = await Promise.all(Array.from({ length: 20 }, (_, index) => start(`noria-${index}`)));
    const [first] = norias as [Noria];
    expect(await exitOf(first, sandbox)).toMatch(/^127\./);
    await until('all have all members', () =>
      norias.every((noria) => idsOf(noria).length === MEMBERS && idsOf(noria).join() === idsOf(first).join()),
    );
    // A noria that a busy machine delays is missing from the list for a while.
    await until('all know all', () =>
      norias.every(({ control }) => control.status().fleet?.replicas.length === 20),
    );
    expect(sandbox.stats().codes).toEqual({ '10001': MEMBERS / 2 });
    expectPace(sandbox);
  },
);
