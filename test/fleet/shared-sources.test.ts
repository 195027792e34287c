import { expect, test } from 'vitest';
import type { Fact, SharedState, SourceCommand } from '../../src/fleet/schemas.ts';
import { openFleet, type ReplicaKit, settled } from './replica-kit.ts';
import { EMPTY_STATE, Recorder, siteBan } from './shared-pool-contract.ts';

const commanded = (command: SourceCommand['command']): SourceCommand => ({
  kind: 'source.commanded',
  source: 'city',
  command,
});
const FROZEN = {
  phase: 'halted',
  code: '12006',
  summary: 'The instance is frozen or disabled.',
  advice: 'Enable it.',
  limitsConnections: false,
} as const;

async function openPair() {
  const fleet = openFleet();
  const [a, b] = [await fleet.open('a'), await fleet.open('b')];
  /** Returns the state that a replica loads now. */
  const read = async (): Promise<SharedState> => {
    const reader = fleet.memory.connect('reader', { servesClients: false });
    const seen = new Recorder();
    await reader.follow(seen);
    await reader.close();
    return seen.loads[0] ?? EMPTY_STATE;
  };
  return { fleet, a, b, read };
}

const last = ({ commands }: ReplicaKit) => commands.at(-1);

test('shared sources: a command that a replica missed reaches it when it loads the state again', async () => {
  const { a, b, read } = await openPair();
  a.replica.commandSource('city', 'pause');
  await settled();
  b.replica.receiveState({ ...(await read()), paused: [], resumed: ['city'] });
  expect(last(b)).toEqual(commanded('resume'));
  b.replica.receiveState({ ...EMPTY_STATE, paused: ['city'] });
  expect(last(b)).toEqual(commanded('pause'));
});

test('shared sources: a command that did not reach the others is published again', async () => {
  const { a, b, read } = await openPair();
  a.replica.commandSource('city', 'pause');
  await settled();
  const paused = await read();
  a.replica.commandSource('city', 'resume');
  a.replica.receiveState(paused); // the connection was lost before the command was in the log
  await settled();
  expect(a.commands, 'the older pause does not apply').toEqual([]);
  expect(last(b)).toEqual(commanded('resume'));
  expect((await read()).paused).toEqual([]);
});

test('shared sources: a shared state that was emptied gets the pauses and the reports back', async () => {
  const { fleet, a, b, read } = await openPair();
  a.replica.commandSource('city', 'pause');
  b.replica.reportSource('harbor', { quota: { remaining: 3 }, suspension: FROZEN });
  await settled();
  expect(await read()).toMatchObject({
    paused: ['city'],
    reports: [{ source: 'harbor', suspension: FROZEN }],
  });
  const published: unknown[] = [];
  const d = await fleet.open('d', {
    wrap: (shared) => ({ ...shared, publish: (facts) => void published.push(...facts) }),
  });
  d.replica.receiveState(EMPTY_STATE);
  await settled();
  expect(published).toEqual([
    commanded('pause'),
    { kind: 'source.reported', source: 'harbor', quota: { remaining: 3 }, suspension: FROZEN },
  ]);
});

test('shared sources: a loaded state without a ban, or with an older one, gets it back', async () => {
  const fleet = openFleet();
  const published: Fact[] = [];
  const { replica } = await fleet.open('a', {
    wrap: (shared) => ({ ...shared, publish: (facts) => void published.push(...facts) }),
  });
  fleet.clock.advance(5_000);
  const ban = siteBan(fleet, 'shop.test');
  replica.receiveFacts([{ by: 'b', fact: ban }]);
  const publishedFor = async (bans: SharedState['bans']) => {
    published.length = 0;
    replica.receiveState({ ...EMPTY_STATE, bans });
    await settled();
    replica.receiveFacts(published.map((fact) => ({ by: 'a', fact })));
    return published.length;
  };
  const since = (ms: number) => ({ ...ban, sinceAt: ban.sinceAt + ms });
  expect(await publishedFor([])).toBe(1);
  expect(published).toEqual([ban]);
  expect(await publishedFor([since(-1_001)])).toBe(1);
  expect(await publishedFor([since(-1_000)]), 'the same moment by another clock').toBe(0);
  expect(await publishedFor([ban])).toBe(0);
});

test('shared sources: a replica that starts gets the last report about each source', async () => {
  const { fleet, a, b } = await openPair();
  a.replica.reportSource('city', { quota: {}, suspension: FROZEN });
  a.replica.reportSource('harbor', {
    quota: {},
    suspension: { ...FROZEN, code: '12001' },
  });
  await settled();
  expect(b.reports.map(({ source }) => source)).toEqual(['city', 'harbor']);
  const late = await fleet.open('late');
  expect(late.reports).toMatchObject([
    { source: 'city', suspension: { code: '12006' } },
    { source: 'harbor', suspension: { code: '12001' } },
  ]);
});

test('shared sources: a report that a replica knows does not suspend its source again', async () => {
  const { b, a, read } = await openPair();
  a.replica.reportSource('city', { quota: {}, suspension: FROZEN });
  await settled();
  b.replica.receiveState(await read());
  expect(b.reports).toHaveLength(1);
});

test('shared sources: an own report that the loaded state lacks is published again', async () => {
  const fleet = openFleet();
  const published: Fact[] = [];
  const { replica } = await fleet.open('a', {
    wrap: (shared) => ({ ...shared, publish: (facts) => void published.push(...facts) }),
  });
  replica.reportSource('city', { quota: { remaining: 2 } });
  await settled();
  const report = { kind: 'source.reported', source: 'city', quota: { remaining: 2 } };
  replica.receiveState(EMPTY_STATE);
  await settled();
  expect(published).toEqual([report, report]);
});

const suspended = (changes: object) => ({ suspension: { ...FROZEN, ...changes } });

test.each<[string, object, object, boolean]>([
  ['the same', suspended({}), suspended({}), true],
  ['the same end', suspended({ untilAt: 9_000 }), suspended({ untilAt: 9_000 }), true],
  ['the same end by another clock', suspended({ untilAt: 9_000 }), suspended({ untilAt: 9_999 }), true],
  ['an end a second later', suspended({ untilAt: 9_000 }), suspended({ untilAt: 10_000 }), false],
  ['an end where there was none', suspended({}), suspended({ untilAt: 9_000 }), false],
  ['another code', suspended({}), suspended({ code: '12001' }), false],
  ['no suspension any more', suspended({}), {}, false],
  ['none as before', {}, {}, true],
])('shared sources: a loaded report with %s is news or not', async (_, before, loaded, isKnown) => {
  const { b } = await openPair();
  const report = (content: object) =>
    ({ kind: 'source.reported', source: 'city', quota: {}, ...content }) as SharedState['reports'][number];
  b.replica.receiveFacts([{ by: 'a', fact: report(before) }]);
  b.replica.receiveState({ ...EMPTY_STATE, reports: [report(loaded)] });
  expect(b.reports).toEqual(isKnown ? [report(before)] : [report(before), report(loaded)]);
});
