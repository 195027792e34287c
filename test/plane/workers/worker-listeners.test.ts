import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { dialerSettings } from '../../../src/daemon/part-options.ts';
import { boundAddress } from '../../../src/listener/bind.ts';
import { encodeForIpc } from '../../../src/plane/workers/ipc-encoding.ts';
import type { FromWorker, ToWorker } from '../../../src/plane/workers/messages.ts';
import { openWorkerSupervisor } from '../../../src/plane/workers/supervisor.ts';
import { type ListeningWorker, WorkerListeners } from '../../../src/plane/workers/worker-listeners.ts';
import { freePort } from '../../support/free-port.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { testConfig } from '../../support/noria.ts';
import { until } from '../../support/until.ts';

type Updated = Extract<FromWorker, { kind: 'updated' }>;

/** A worker that answers what it is told to answer, or nothing until it is ended. */
class FakeWorker implements ListeningWorker {
  readonly said: ToWorker[] = [];
  readonly unfitFor: string[] = [];
  readonly #answers: (Updated['outcome'] | 'nothing')[];
  #end: (() => void) | undefined;

  constructor(...answers: (Updated['outcome'] | 'nothing')[]) {
    this.#answers = answers;
  }

  answer<Kind extends 'loaded' | 'updated' | 'drained'>() {
    const { promise, resolve } = Promise.withResolvers<Extract<FromWorker, { kind: Kind }> | undefined>();
    const outcome = this.#answers.shift() ?? OPENED;
    if (outcome === 'nothing') this.#end = () => resolve(undefined);
    else resolve({ kind: 'updated', outcome } as Extract<FromWorker, { kind: Kind }>); // nothing else is asked for
    return promise;
  }

  readonly say = (message: ToWorker): void => void this.said.push(message);

  unfit(reason: string): void {
    this.unfitFor.push(reason);
    this.#end?.();
  }
}

/** Nobody listens there, so that it is the workers' answers that count. */
const FREE = `127.0.0.1:${await freePort()}`;
const FREE_TOO = `127.0.0.1:${await freePort()}`;
const OPENED = { ok: true, addresses: [[{ host: '127.0.0.1', port: 8_888 }]] } as const;
const TAKEN = { ok: false, code: 'listen-failed', message: 'another program listens there' } as const;
const SOURCE =
  '  - { name: city, product: free, instance: "1", akey: "0123456789abcdef", baseUrl: "http://127.0.0.1:9" }';

const listenersAt = (address: string) =>
  testConfig({ sources: [SOURCE], listeners: `listeners: [{ address: "${address}" }]` }).listeners;

function open(...workers: FakeWorker[]) {
  const clock = new ManualClock();
  return {
    clock,
    listeners: new WorkerListeners(
      clock,
      () => workers,
      () => {},
    ),
  };
}

test('workers: one that does not answer a reload is ended, and the reload goes on without it', async () => {
  const [stuck, other] = [new FakeWorker('nothing'), new FakeWorker()];
  const { clock, listeners } = open(stuck, other);
  const updated = listeners.update(listenersAt(FREE), 0);
  await until('it has been asked', () => stuck.said.length === 1);
  clock.advance(29_999);
  expect(stuck.unfitFor).toEqual([]);
  clock.advance(1);
  await updated;
  expect(stuck.unfitFor).toEqual(['it did not open its listeners in time']);
  expect(listeners.views.map(({ addresses }) => addresses)).toEqual(OPENED.addresses);
  expect(clock.armedCount).toBe(0);
});

test('workers: when noria closes, one that hangs has 1 s left to answer', async () => {
  const stuck = new FakeWorker('nothing');
  const { clock, listeners } = open(stuck, new FakeWorker());
  const updated = listeners.update(listenersAt(FREE), 0);
  await until('it has been asked', () => stuck.said.length === 1);
  clock.advance(10_000);
  listeners.hurry();
  clock.advance(999);
  expect(stuck.unfitFor).toEqual([]);
  clock.advance(1);
  await updated;
  expect(stuck.unfitFor).toEqual(['it did not open its listeners in time']);
  expect(clock.armedCount).toBe(0);
});

test('workers: one that cannot go back after a reload that failed is ended', async () => {
  const [first, second] = [new FakeWorker(OPENED, OPENED, TAKEN), new FakeWorker(OPENED, TAKEN)];
  const { listeners } = open(first, second);
  await listeners.update(listenersAt(FREE), 0);
  await expect(listeners.update(listenersAt(FREE_TOO), 0)).rejects.toMatchObject(TAKEN_ERROR);
  expect([first.unfitFor, second.unfitFor]).toEqual([[TAKEN.message], []]);
  expect(listeners.views.map(({ name }) => name)).toEqual([FREE]);
});

const TAKEN_ERROR = { code: TAKEN.code, message: TAKEN.message };

test('workers: a port that another program was quicker to take is looked for anew, three times', async () => {
  const lucky = new FakeWorker(TAKEN, OPENED, TAKEN, OPENED, OPENED);
  await open(lucky).listeners.update(listenersAt('127.0.0.1:0'), 0);
  expect(lucky.said.length).toBe(5); // opened and gone back twice, then opened
  const luckless = new FakeWorker(TAKEN, OPENED, TAKEN, OPENED, TAKEN, OPENED);
  await expect(open(luckless).listeners.update(listenersAt('127.0.0.1:0'), 0)).rejects.toMatchObject(
    TAKEN_ERROR,
  );
  const named = new FakeWorker(TAKEN, OPENED);
  await expect(open(named).listeners.update(listenersAt(FREE), 0)).rejects.toMatchObject(TAKEN_ERROR);
  expect([luckless.said.length, named.said.length]).toEqual([6, 2]);
});

test('workers: what cannot be had is refused before any worker is asked', async () => {
  const program = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void program.close());
  await once(program, 'listening');
  const { port } = boundAddress(program);
  const worker = new FakeWorker();
  const { listeners } = open(worker);
  await expect(listeners.update(listenersAt(`127.0.0.1:${port}`), 0)).rejects.toMatchObject({
    code: 'listen-failed',
    message: `cannot listen on 127.0.0.1:${port}: another program listens there`,
  });
  expect(worker.said).toEqual([]);
});

test('workers: one whom another program was quicker than is ended, since it can never name that port again', async () => {
  const spoilt = new FakeWorker(OPENED, { ...TAKEN, spoilt: true });
  const other = new FakeWorker();
  const { listeners } = open(spoilt, other);
  await listeners.update(listenersAt(FREE), 0);
  await expect(listeners.update(listenersAt(FREE_TOO), 0)).rejects.toMatchObject(TAKEN_ERROR);
  expect([spoilt.unfitFor, other.unfitFor]).toEqual([[TAKEN.message], []]);
});

test('worker: it tells that it holds a socket that could not be bound', async () => {
  const program = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void program.close());
  await once(program, 'listening');
  const crew = await openWorkerSupervisor({
    clock: systemClock,
    entry: join(process.cwd(), 'src/plane/workers/worker.ts'),
    wanted: 1,
    onReport: () => {},
    prepare: async () => {},
    onLost: () => {},
    onGone: () => {},
    onFailed: () => {},
  });
  onTestFinished(() => crew.close());
  const [worker] = crew.ready;
  if (worker === undefined) throw new TypeError('there is one');
  const config = testConfig({ sources: [SOURCE] });
  const surroundings = { sources: ['city'], own: [] };
  worker.say({ kind: 'begin', dialer: encodeForIpc(dialerSettings(config)), surroundings, handedOver: [] });
  const outcomeAt = async (address: string) => {
    const answer = worker.answer('updated');
    const listeners = encodeForIpc(listenersAt(address));
    worker.say({ kind: 'update', listeners, drainTimeoutMs: 0, counted: [] });
    return (await answer)?.outcome;
  };
  expect(await outcomeAt(`127.0.0.1:${boundAddress(program).port}`)).toMatchObject({
    code: 'listen-failed',
    spoilt: true,
  });
  expect(await outcomeAt(FREE)).toMatchObject({ ok: true });
});
