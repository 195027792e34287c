/** The wall clocks of two machines of a fleet differ by an hour: nothing changes for clients, sessions, lifetimes or the pace. */
import { expect, test } from 'vitest';
import { runNoria, testFolder, writeIn } from '../../journeys/noria-process.ts';
import { curl } from '../../support/curl.ts';
import { exitOf, expectPace, openFleetStage } from '../../support/fleet-stage.ts';
import { NO_HEDGE, sourceLine, untilReady } from '../../support/noria.ts';
import { NO_STORE } from '../../support/store-server.ts';
import { FAKE_CLOCK, hasCommand } from '../../support/tools.ts';
import { until } from '../../support/until.ts';

const MEMBERS = 4;
const HOUR_MS = 3_600_000;
const AHEAD = { LD_PRELOAD: FAKE_CLOCK ?? '', DONT_FAKE_MONOTONIC: '1', FAKETIME: '+3600s' };
/** The tolerance for times in the lists of two norias, which are read one after the other, on a busy machine. */
const NEAR_SECONDS = 120;

test.skipIf(NO_STORE || !hasCommand('curl') || FAKE_CLOCK === undefined)(
  'fleet: norias whose clocks differ by an hour share members, lifetimes, sessions and the pace',
  async () => {
    const { sandbox, store, start } = await openFleetStage(MEMBERS, [
      `dial: { waitForMember: 60s, deadline: 60s, ${NO_HEDGE} }`,
    ]);
    const one = await start('one');
    const file = writeIn(
      testFolder(),
      'noria.yaml',
      [
        'sources:',
        sourceLine(sandbox, 'city', 'shared', `interval: 1s, size: ${MEMBERS}, params: { count: 2, pro: 1 }`),
        'pool: { fill: size, allowPrivateAddresses: true, safetyMargin: 200ms, minRemaining: 0s }',
        'listeners: [{ address: "127.0.0.1:0", denyTargets: [] }]',
        'admin: { address: "127.0.0.1:0" }',
        `fleet: { url: "${store.url}", replica: two }`,
        `dial: { waitForMember: 60s, deadline: 60s, ${NO_HEDGE} }`,
        'log: { format: json }',
        'state: off',
      ].join('\n'),
    );
    const two = runNoria(['run', '-c', file], { env: AHEAD });
    const running = await two.line('noria is running');
    expect(Math.round((Number(new Date(String(running['time']))) - Date.now()) / HOUR_MS)).toBe(1);
    const admin = `http://${running['admin']}`;
    const proxy = String(running['listeners']).replace(/,.*/, '');
    const read = async (path: string) => JSON.parse((await curl(`${admin}/api/${path}`)).out);

    expect((await curl('-x', `http://${proxy}`, `${sandbox.targetUrl}/ip`)).out).toMatch(/^127\./);
    await untilReady(one, MEMBERS);
    const own = () =>
      new Map(one.control.members().map(({ id, remainingSeconds }) => [id, remainingSeconds]));
    await until('both have the same members', async () => {
      const members: { id: string }[] = await read('members');
      return members.length === MEMBERS && members.every(({ id }) => own().has(id));
    });
    for (const { id, remainingSeconds } of await read('members'))
      expect(Math.abs(remainingSeconds - (own().get(id) ?? 0))).toBeLessThan(NEAR_SECONDS);

    const exit = await exitOf(one, sandbox, 'a');
    const ofOther = async () =>
      (await curl('-x', `http://me-session-a:x@${proxy}`, `${sandbox.targetUrl}/ip`)).out.trim();
    await until('the other uses the same exit', async () => (await ofOther()) === exit);

    for (const evicted of [...own().keys()].slice(0, 2)) one.control.evictMember(evicted);
    await untilReady(one, MEMBERS);
    const { fleet } = await read('status');
    expect(fleet).toMatchObject({ store: 'connected', lostForSeconds: 0 });
    expect(fleet.replicas.map(({ name }: { name: string }) => name)).toEqual(['one', 'two']);
    expectPace(sandbox);
  },
);
