/** The tests start real processes, which run the fixtures in this folder or noria's own worker. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import type { NoriaError } from '../../../src/core/faults.ts';
import { Secret } from '../../../src/core/secret.ts';
import type { FromWorker } from '../../../src/plane/workers/remote-calls.ts';
import { WorkerSupervisor, type WorkerSupervisorOptions } from '../../../src/plane/workers/supervisor.ts';
import {
  type WorkerExit,
  type WorkerProcess,
  withoutSecrets,
} from '../../../src/plane/workers/worker-process.ts';
import { testFolder } from '../../journeys/noria-process.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

const here = (file: string) => join(process.cwd(), 'test/plane/workers', file);

async function open(entry: string, more: Partial<WorkerSupervisorOptions> = {}) {
  const lost: (WorkerExit & { readonly restartMs: number })[] = [];
  const failed: NoriaError[] = [];
  const supervisor = new WorkerSupervisor({
    clock: systemClock,
    entry: here(entry),
    wanted: 2,
    onEvent: () => {},
    prepare: async () => {},
    onLost: (_worker, exit, restartMs) => void lost.push({ ...exit, restartMs }),
    onExit: () => {},
    onFailed: (error) => void failed.push(error),
    ...more,
  });
  onTestFinished(() => supervisor.close());
  await supervisor.open();
  return { supervisor, lost, failed };
}

/** Gives an order to `worker-that-obeys.ts`. */
const order = (worker: WorkerProcess | undefined, what: 'crash' | 'stay') =>
  worker?.calls.call('resetRefusals', what);

test('supervisor: a worker that exits is replaced, and the exit says why', async () => {
  const { supervisor, lost } = await open('worker-that-obeys.ts');
  const [first, second] = supervisor.ready;
  order(first, 'crash');
  await until('it is lost', () => lost.length === 1);
  expect(lost[0]).toMatchObject({ how: 'ended with code 1', stack: expect.stringMatching(/told to crash/) });
  await until('a replacement is ready', () => supervisor.ready.length === 2);
  expect(supervisor.ready).toContain(second);
  expect(supervisor.ready).not.toContain(first);
});

test('supervisor: workers that exit early are replaced with growing delays, until it gives up', async () => {
  const clock = new ManualClock();
  const { supervisor, lost, failed } = await open('worker-that-obeys.ts', { clock });
  const kill = async () => {
    const already = lost.length + failed.length;
    for (const worker of supervisor.ready) worker.kill();
    await until(
      'they have exited',
      () => lost.length + failed.length > already && supervisor.ready.length === 0,
    );
  };
  await kill();
  await until('both are lost', () => lost.length === 2);
  expect(lost.map(({ restartMs }) => restartMs)).toEqual([500, 1_000]);
  for (const restartMs of [500, 500]) {
    clock.advance(restartMs);
    await until('one is ready', () => supervisor.ready.length === 1);
    await kill();
  }
  expect(lost.map(({ restartMs }) => restartMs)).toEqual([500, 1_000, 2_000, 4_000]);
  clock.advance(2_000);
  await until('one is ready', () => supervisor.ready.length === 1);
  await kill();
  clock.advance(4_000);
  await until('one is ready', () => supervisor.ready.length === 1);
  await kill();
  expect(failed.map(({ code, message }) => [code, message])).toEqual([
    [
      'workers-failed',
      expect.stringMatching(
        /the last 6 workers exited within 10 s of their start; reason of the last exit: killed by SIGKILL/,
      ),
    ],
  ]);
  expect(clock.armedCount).toBe(0);
});

test('supervisor: a worker that ran for long is replaced at once', async () => {
  const clock = new ManualClock();
  const { supervisor, lost } = await open('worker-that-obeys.ts', { clock });
  clock.advance(10_000);
  supervisor.ready[0]?.kill();
  await until('it is lost', () => lost.length === 1);
  expect(lost[0]?.restartMs).toBe(0);
});

test('supervisor: a replacement that cannot be prepared is killed', async () => {
  const { supervisor, lost } = await open('worker-that-obeys.ts', {
    prepare: () => Promise.reject(new Error('the port is taken')),
  });
  supervisor.ready[0]?.kill();
  await until('its replacement is lost too', () => lost.length === 2);
  expect(lost[1]?.how).toBe('stopped: the port is taken');
  expect(supervisor.ready.length).toBe(1);
});

test('supervisor: opening fails when a worker cannot start', async () => {
  await expect(open('worker-that-cannot-start.ts')).rejects.toMatchObject({
    code: 'workers-failed',
    message: 'a worker did not start: ended with code 3',
  });
});

test('supervisor: a worker that exits while others start is replaced', async () => {
  const clock = new ManualClock();
  const marks = testFolder();
  vi.stubEnv('NORIA_TEST_MARKS', marks);
  onTestFinished(() => void vi.unstubAllEnvs());
  const lost: string[] = [];
  const opening = open('worker-that-waits.ts', { clock, onLost: (_worker, { how }) => void lost.push(how) });
  await until('the first worker has exited', () => lost.length === 1);
  writeFileSync(join(marks, 'go'), '');
  const { supervisor } = await opening;
  expect([lost, supervisor.ready.length]).toEqual([['ended with code 4'], 1]);
  clock.advance(500);
  await until('a replacement is ready', () => supervisor.ready.length === 2);
});

test('supervisor: a signal sent to all processes during the start is no failure', async () => {
  vi.stubEnv('NORIA_TEST_MARKS', testFolder());
  onTestFinished(() => void vi.unstubAllEnvs());
  const { supervisor, lost } = await open('worker-that-is-interrupted.ts');
  expect([supervisor.ready.length, lost]).toEqual([2, []]);
});

test('supervisor: a worker that does not close in time is killed', async () => {
  const clock = new ManualClock();
  const exits: string[] = [];
  const { supervisor } = await open('worker-that-obeys.ts', { clock });
  for (const worker of supervisor.ready) void worker.exited.then(({ how }) => exits.push(how));
  order(supervisor.ready[0], 'stay');
  const closed = supervisor.close();
  await until('the other worker has closed', () => exits.length === 1);
  clock.advance(2_000);
  await closed;
  expect(exits).toEqual(['ended with code 0', 'killed by SIGKILL']);
  expect(clock.armedCount).toBe(0);
});

test('supervisor: an exit is logged without secrets', () => {
  const secrets = [new Secret('city+pass/word')];
  const exit = { how: 'stopped: city+pass/word is wrong', stack: 'Error: city%2Bpass%2Fword\n at here' };
  expect(withoutSecrets(exit, secrets)).toEqual({
    how: 'stopped: [secret] is wrong',
    stack: 'Error: [secret]\n at here',
  });
  expect(withoutSecrets({ how: 'killed by SIGKILL' }, secrets)).toEqual({ how: 'killed by SIGKILL' });
});

test('worker: an uncaught error ends it, and its last message holds the stack', async () => {
  const child = fork(join(process.cwd(), 'src/plane/workers/worker.ts'), {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const received: FromWorker[] = [];
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (printed += chunk));
  child.on('message', (batch: FromWorker[]) => {
    received.push(...batch);
    if (received.length === 1) child.send([{ kind: 'call', call: 'drain', args: [] }]); // the first message is noria's `open`
  });
  const [code] = await once(child, 'close');
  expect(code).toBe(1);
  expect(received.map(({ kind }) => kind)).toEqual(['loaded', 'crashed']);
  expect(received[1]).toMatchObject({
    stack: expect.stringMatching(/^TypeError: the call drain arrived before the call open\n +at /),
  });
  expect(printed).toBe('');
});
