import { expect, test } from 'vitest';
import { MemoryFleet } from '../../src/fleet/memory-fleet.ts';
import { MemorySharedPool } from '../../src/fleet/memory-shared-pool.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { Recorder, sharedMember, testSharedPool, timekeeperOf } from './shared-pool-contract.ts';

function openStage() {
  const clock = new ManualClock();
  const pool = new MemorySharedPool({ clock });
  return { clock, pool, connect: (replica: string) => pool.connect(replica) };
}

testSharedPool('in memory', openStage);

test('in memory: all replicas share one pace', async () => {
  const clock = new ManualClock();
  const fleet = new MemoryFleet('crawl', '1.0.0', clock, timekeeperOf(clock));
  const open = (replica: string) => fleet.connector(replica).open({ clients: () => 0 });
  const [a, b] = [await open('a'), await open('b')];
  const call = { queue: [] };
  await a.pace.change('city', () => ({ newEntry: call, result: undefined }));
  expect(await b.pace.change('city', (entry) => ({ result: entry }))).toEqual(call);
});

test('in memory: a new replica does not load what has ended', async () => {
  const stage = openStage();
  const a = stage.connect('a');
  await a.follow(new Recorder());
  a.publish([
    { kind: 'member.joined', member: sharedMember(stage, 'short', 5_000) },
    { kind: 'member.joined', member: sharedMember(stage, 'long', 60_000) },
  ]);
  stage.clock.advance(5_000);
  const late = new Recorder();
  await stage.connect('b').follow(late);
  expect(late.loads[0]?.members.map(({ member }) => member.id)).toEqual(['long']);
});

test('in memory: a fleet lists its norias, and counts the distinct IPs of a day of the service together', async () => {
  const clock = new ManualClock(Date.UTC(2030, 0, 1, 15, 59)); // a minute before midnight in UTC+8
  const fleet = new MemoryFleet('crawl', '1.0.0', clock, timekeeperOf(clock));
  const connector = fleet.connector('a');
  expect([connector.name, connector.replica]).toEqual(['crawl', 'a']);
  const [a, b] = [
    await connector.open({ clients: () => 3 }),
    await fleet.connector('b').open({ clients: () => 0 }),
  ];
  expect(a.replicas).toEqual([
    { name: 'a', version: '1.0.0', clients: 3, lastSeenSeconds: 0 },
    { name: 'b', version: '1.0.0', clients: 0, lastSeenSeconds: 0 },
  ]);
  a.dayCounts.add('city', ['1', '2']);
  b.dayCounts.add('city', ['2', '3']);
  b.dayCounts.add('town', ['1']);
  expect([a.dayCounts.used('city'), a.dayCounts.used('town')]).toEqual([3, 1]);
  clock.advance(60_000);
  expect(b.dayCounts.used('city')).toBe(0);
  const seen = new Recorder();
  await a.follow(seen);
  await b.follow(new Recorder());
  b.publish([{ kind: 'member.joined', member: sharedMember({ clock }, 'member01') }]);
  expect([a.drawnBy('member01'), a.drawnBy('member02')]).toEqual(['b', undefined]);
  a.reload();
  await Promise.resolve();
  expect(seen.loads.map(({ members }) => members.length)).toEqual([0, 1]);
  await b.close();
  expect(a.replicas.map(({ name }) => name)).toEqual(['a']);
  expect(seen.replicas).toEqual(['a']);
});

test('in memory: a connection that does not follow neither says nor gets anything', async () => {
  const stage = openStage();
  const [a, b] = [stage.connect('a'), stage.connect('b')];
  const seen = new Recorder();
  await a.follow(seen);
  const views = seen.views.length;
  const session = { name: 's1', owner: { user: '', address: '' }, ttlMs: 60_000, usedAt: 0, uses: 0 };
  b.publish([{ kind: 'session.ended', name: 's1' }]);
  b.beat({ waiting: 1, demand: {}, members: [], sessions: [] });
  expect(await b.bindSession(session, undefined)).toBeUndefined();
  expect(await b.findSession('s1')).toBeUndefined();
  await b.close();
  await Promise.resolve();
  expect([seen.facts, seen.views.length]).toEqual([[], views]);
  await expect(stage.connect('a').follow(new Recorder())).rejects.toThrow('already receives the log');
  await a.close();
  await a.close();
  await stage.connect('a').follow(new Recorder());
});

test('in memory: uses are added up for all, and told to all but a replica that had none', async () => {
  const stage = openStage();
  const [a, b] = [stage.connect('a'), stage.connect('b')];
  const [seenByA, seenByB] = [new Recorder(), new Recorder()];
  await a.follow(seenByA);
  await b.follow(seenByB);
  a.publish([{ kind: 'member.joined', member: sharedMember(stage, 'member01') }]);
  const use = (uses: number, member = 'member01') => ({
    ...{ waiting: 0, demand: {}, sessions: [], members: [{ member, uses, openLeases: 1 }] },
  });
  a.beat(use(2));
  b.beat(use(3));
  await Promise.resolve();
  expect([seenByA, seenByB].map(({ views }) => views.at(-1)?.uses)).toEqual([
    { member01: 5 },
    { member01: 5 },
  ]);
  const before = seenByA.views.length;
  a.beat(use(0));
  a.beat(use(1, 'unknown1'));
  await Promise.resolve();
  expect(seenByA.views, 'nothing new for itself').toHaveLength(before);
  expect(seenByB.views.slice(-2)).toMatchObject([
    { uses: {}, beats: [{ by: 'a', beat: use(0) }] },
    { uses: {}, beats: [{ by: 'a', beat: use(1, 'unknown1') }] },
  ]);
});
