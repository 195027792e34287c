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
