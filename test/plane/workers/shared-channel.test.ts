import { expect, onTestFinished, test } from 'vitest';
import { Secret } from '../../../src/core/secret.ts';
import { MemorySharedPool } from '../../../src/fleet/memory-shared-pool.ts';
import { IpcSharedPool, SharedPoolServer } from '../../../src/plane/workers/shared-channel.ts';
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
    const server = new SharedPoolServer(
      memory.connect(replica),
      overPipe((message) => worker.receive(message)),
    );
    const worker: IpcSharedPool = new IpcSharedPool(overPipe((message) => server.receive(message)));
    onTestFinished(() => server.close());
    return { worker, server };
  };
  return { clock, memory, connect };
}

testSharedPool('over IPC', () => {
  const { clock, connect } = openStage();
  return { clock, connect: (replica) => withClose(connect(replica)) };
});

function withClose({ worker, server }: ReturnType<ReturnType<typeof openStage>['connect']>) {
  return {
    follow: (follower: Recorder) => worker.follow(follower),
    publish: worker.publish.bind(worker),
    beat: worker.beat.bind(worker),
    bindSession: worker.bindSession.bind(worker),
    findSession: worker.findSession.bind(worker),
    // The primary closes the connection when the process has exited.
    close: async () => {
      await worker.close();
      await server.close();
    },
  };
}

test('over IPC: a worker gets the password that belongs to a member', async () => {
  const stage = openStage();
  const primary = stage.memory.connect('primary');
  await primary.follow(new Recorder());
  const login = { username: 'me', password: new Secret('right-one') };
  primary.publish([{ kind: 'member.joined', member: { ...sharedMember(stage, 'member01'), login } }]);
  const { worker } = stage.connect('worker');
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
