/** Real processes: what they run is in fixtures.ts beside this file, or is noria's own worker. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import type { NoriaError } from '../../../src/core/faults.ts';
import { Secret } from '../../../src/core/secret.ts';
import type { FromWorker } from '../../../src/plane/workers/messages.ts';
import { openWorkerSupervisor, type WorkerSupervisorOptions } from '../../../src/plane/workers/supervisor.ts';
import { type WorkerExit, withoutSecrets } from '../../../src/plane/workers/worker-process.ts';
import { testFolder } from '../../journeys/noria-process.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

const here = (file: string) => join(process.cwd(), 'test/plane/workers', file);

async function open(entry: string, more: Partial<WorkerSupervisorOptions> = {}) {
  const lost: (WorkerExit & { readonly againMs: number })[] = [];
  const failed: NoriaError[] = [];
  const crew = await openWorkerSupervisor({
    clock: systemClock,
    entry: here(entry),
    wanted: 2,
    onReport: () => {},
    prepare: async () => {},
    onLost: (_worker, ending, againMs) => void lost.push({ ...ending, againMs }),
    onGone: () => {},
    onFailed: (error) => void failed.push(error),
    ...more,
  });
  onTestFinished(() => crew.close());
  return { crew, lost, failed };
}

test('crew: one that ends is replaced, and tells why it ended', async () => {
  const { crew, lost } = await open('worker-that-obeys.ts');
  const [first, second] = crew.ready;
  first?.say({ kind: 'forgive', source: 'crash' });
  await until('it is lost', () => lost.length === 1);
  expect(lost[0]).toMatchObject({ how: 'ended with code 1', stack: expect.stringMatching(/told to crash/) });
  await until('another one is there', () => crew.ready.length === 2);
  expect(crew.ready).toContain(second);
  expect(crew.ready).not.toContain(first);
});

test('crew: those that die young are replaced more and more slowly, and at last it is given up', async () => {
  const clock = new ManualClock();
  const { crew, lost, failed } = await open('worker-that-obeys.ts', { clock });
  const kill = async () => {
    const already = lost.length + failed.length;
    for (const worker of crew.ready) worker.kill();
    await until('they are gone', () => lost.length + failed.length > already && crew.ready.length === 0);
  };
  await kill();
  await until('both are lost', () => lost.length === 2);
  expect(lost.map(({ againMs }) => againMs)).toEqual([500, 1_000]);
  for (const againMs of [500, 500]) {
    clock.advance(againMs);
    await until('one is there', () => crew.ready.length === 1);
    await kill();
  }
  expect(lost.map(({ againMs }) => againMs)).toEqual([500, 1_000, 2_000, 4_000]);
  clock.advance(2_000);
  await until('one is there', () => crew.ready.length === 1);
  await kill();
  clock.advance(4_000);
  await until('one is there', () => crew.ready.length === 1);
  await kill();
  expect(failed.map(({ code, message }) => [code, message])).toEqual([
    [
      'workers-failed',
      expect.stringMatching(/the last 6 of them ended within seconds, .* killed by SIGKILL/),
    ],
  ]);
  expect(clock.armedCount).toBe(0);
});

test('crew: one that lived long is replaced at once', async () => {
  const clock = new ManualClock();
  const { crew, lost } = await open('worker-that-obeys.ts', { clock });
  clock.advance(10_000);
  crew.ready[0]?.kill();
  await until('it is lost', () => lost.length === 1);
  expect(lost[0]?.againMs).toBe(0);
});

test('crew: one that cannot be brought to where the others are is none', async () => {
  const { crew, lost } = await open('worker-that-obeys.ts', {
    prepare: () => Promise.reject(new Error('the port is gone')),
  });
  crew.ready[0]?.kill();
  await until('its successor is lost too', () => lost.length === 2);
  expect(lost[1]?.how).toBe('stopped: the port is gone');
  expect(crew.ready.length).toBe(1);
});

test('crew: workers that cannot start fail it, in words, and leave nothing', async () => {
  await expect(open('worker-that-cannot-start.ts')).rejects.toMatchObject({
    code: 'workers-failed',
    message: 'a worker did not start: ended with code 3',
  });
});

test('crew: one that ends while others still start is replaced like any other', async () => {
  const clock = new ManualClock();
  const marks = testFolder();
  vi.stubEnv('NORIA_TEST_MARKS', marks);
  onTestFinished(() => void vi.unstubAllEnvs());
  const lost: string[] = [];
  const opening = open('worker-that-waits.ts', { clock, onLost: (_worker, { how }) => void lost.push(how) });
  await until('the quick one has died', () => lost.length === 1);
  writeFileSync(join(marks, 'go'), '');
  const { crew } = await opening;
  expect([lost, crew.ready.length]).toEqual([['ended with code 4'], 1]);
  clock.advance(500);
  await until('another one is there', () => crew.ready.length === 2);
});

test('crew: a signal that a terminal sends to all processes while they start is no failure of a worker', async () => {
  vi.stubEnv('NORIA_TEST_MARKS', testFolder());
  onTestFinished(() => void vi.unstubAllEnvs());
  const { crew, lost } = await open('worker-that-is-interrupted.ts');
  expect([crew.ready.length, lost]).toEqual([2, []]);
});

test('crew: one that does not close when told to is killed', async () => {
  const clock = new ManualClock();
  const gone: string[] = [];
  const { crew } = await open('worker-that-obeys.ts', { clock });
  for (const worker of crew.ready) void worker.gone.then(({ how }) => gone.push(how));
  crew.ready[0]?.say({ kind: 'forgive', source: 'stay' });
  const closed = crew.close();
  await until('the other one has closed', () => gone.length === 1);
  clock.advance(2_000);
  await closed;
  expect(gone).toEqual(['ended with code 0', 'killed by SIGKILL']);
  expect(clock.armedCount).toBe(0);
});

test('crew: what is told of an ending holds no secret', () => {
  const secrets = [new Secret('city+pass/word')];
  const ending = { how: 'stopped: city+pass/word is wrong', stack: 'Error: city%2Bpass%2Fword\n at here' };
  expect(withoutSecrets(ending, secrets)).toEqual({
    how: 'stopped: [secret] is wrong',
    stack: 'Error: [secret]\n at here',
  });
  expect(withoutSecrets({ how: 'killed by SIGKILL' }, secrets)).toEqual({ how: 'killed by SIGKILL' });
});

test('worker: what nobody catches ends it with its stack in the last thing it says', async () => {
  const child = fork(join(process.cwd(), 'src/plane/workers/worker.ts'), {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const said: FromWorker[] = [];
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => (printed += chunk));
  child.on('message', (batch: FromWorker[]) => {
    said.push(...batch);
    if (said.length === 1) child.send([{ kind: 'drain' }]); // before anything else: noria never does
  });
  const [code] = await once(child, 'close');
  expect(code).toBe(1);
  expect(said.map(({ kind }) => kind)).toEqual(['loaded', 'crashed']);
  expect(said[1]).toMatchObject({
    stack: expect.stringMatching(/^TypeError: drain came before begin\n +at /),
  });
  expect(printed).toBe('');
});
