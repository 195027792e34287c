import { expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../../src/core/secret.ts';
import { MemorySharedPool } from '../../../src/fleet/memory-shared-pool.ts';
import {
  followerIn,
  type PrimaryCalls,
  RemoteCalls,
  sharedPoolOf,
  type WorkerCalls,
} from '../../../src/plane/workers/remote-calls.ts';
import { Recorder, sharedMember, testSharedPool } from '../../fleet/shared-pool-contract.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

/** Delivers a message as a pipe does: later, and only what JSON can express. */
function overPipe<Message>(receive: (message: Message) => void): (message: Message) => void {
  return (message) => {
    const text = JSON.stringify(message);
    setImmediate(() => receive(JSON.parse(text)));
  };
}

function openStage() {
  const clock = new ManualClock();
  const memory = new MemorySharedPool({ clock });
  const connect = (replica: string) => {
    const shared = memory.connect(replica);
    const primary: RemoteCalls<PrimaryCalls, WorkerCalls> = new RemoteCalls(
      overPipe((message) => worker.receive(message)),
    );
    const worker: RemoteCalls<WorkerCalls, PrimaryCalls> = new RemoteCalls(
      overPipe((message) => primary.receive(message)),
    );
    worker.own = { ...shared, follow: () => shared.follow(followerIn(worker)) };
    const close = async () => {
      await shared.close();
      worker.close();
      primary.close();
    };
    onTestFinished(close);
    return { ...sharedPoolOf(primary), close }; // the primary closes the connection when the process has exited
  };
  return { clock, memory, connect };
}

testSharedPool('over IPC', () => openStage());

test('remote calls: questions to a process that ends get no answer', async () => {
  const calls = new RemoteCalls<WorkerCalls, PrimaryCalls>(() => {});
  const asked = calls.ask('drain');
  calls.close();
  expect(await asked).toBeUndefined();
  expect(await calls.ask('drain')).toBeUndefined();
});

test('over IPC: a worker gets the password that belongs to a member', async () => {
  const stage = openStage();
  const primary = stage.memory.connect('primary');
  await primary.follow(new Recorder());
  const login = { username: 'me', password: new Secret('right-one') };
  primary.publish([{ kind: 'member.joined', member: { ...sharedMember(stage, 'member01'), login } }]);
  const worker = stage.connect('worker');
  const seen = new Recorder();
  await worker.follow(seen);
  primary.publish([{ kind: 'member.joined', member: { ...sharedMember(stage, 'member02'), login } }]);
  await until('the second one has arrived', () => seen.facts.length === 1);
  const members = [
    seen.loads[0]?.members[0]?.member,
    seen.facts.map(({ fact }) => 'member' in fact && fact.member)[0],
  ];
  for (const member of members) {
    const found = typeof member === 'object' ? member.login : undefined;
    expect([found?.username, found?.password.reveal()]).toEqual(['me', 'right-one']);
  }
});
