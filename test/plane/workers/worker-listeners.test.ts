import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { dialerSettings, poolSettings } from '../../../src/daemon/part-options.ts';
import { boundAddress } from '../../../src/listener/listener.ts';
import { decodeFromIpc, encodeForIpc } from '../../../src/plane/workers/ipc-encoding.ts';
import {
  type PrimaryCalls,
  RemoteCalls,
  type RemoteMessage,
  type UpdateOutcome,
  type WorkerCalls,
} from '../../../src/plane/workers/remote-calls.ts';
import { WorkerSupervisor } from '../../../src/plane/workers/supervisor.ts';
import { type ListeningWorker, WorkerListeners } from '../../../src/plane/workers/worker-listeners.ts';
import { EMPTY_STATE } from '../../fleet/shared-pool-contract.ts';
import { freePort } from '../../support/free-port.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { testConfig } from '../../support/noria.ts';
import { until } from '../../support/until.ts';

/** A worker that answers each update as the test says. With `nothing`, it hangs until it is killed. */
class FakeWorker implements ListeningWorker {
  /** The arguments of each update. */
  readonly received: unknown[][] = [];
  readonly killReasons: string[] = [];
  readonly #answers: (UpdateOutcome | 'nothing')[];
  readonly calls = new RemoteCalls<WorkerCalls, PrimaryCalls>((message) => this.#answer(message));

  constructor(...answers: (UpdateOutcome | 'nothing')[]) {
    this.#answers = answers;
  }

  #answer(message: RemoteMessage): void {
    if (message.kind !== 'call' || message.id === undefined || !('encoded' in message.args)) return;
    this.received.push(decodeFromIpc<unknown[]>(message.args));
    const value = this.#answers.shift() ?? OPENED;
    const { id } = message;
    if (value === 'nothing') return;
    queueMicrotask(() => this.calls.receive({ kind: 'answer', id, value: encodeForIpc({ value }) }));
  }

  killBecause(reason: string): void {
    this.killReasons.push(reason);
    this.calls.close();
  }
}

/** A free address, so that the outcome depends only on the workers' answers. */
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

test('worker listeners: a worker that does not answer an update is killed, and the update goes on without it', async () => {
  const [stuck, other] = [new FakeWorker('nothing'), new FakeWorker()];
  const { clock, listeners } = open(stuck, other);
  const updated = listeners.update(listenersAt(FREE), 0);
  await until('the worker is asked', () => stuck.received.length === 1);
  clock.advance(29_999);
  expect(stuck.killReasons).toEqual([]);
  clock.advance(1);
  await updated;
  expect(stuck.killReasons).toEqual(['the worker did not open its listeners in time']);
  expect(listeners.status().map(({ addresses }) => addresses)).toEqual(OPENED.addresses);
  expect(clock.armedCount).toBe(0);
});

test('worker listeners: when noria closes, a worker that hangs has 1 s left to answer', async () => {
  const stuck = new FakeWorker('nothing');
  const { clock, listeners } = open(stuck, new FakeWorker());
  const updated = listeners.update(listenersAt(FREE), 0);
  await until('the worker is asked', () => stuck.received.length === 1);
  clock.advance(10_000);
  listeners.prepareToClose();
  clock.advance(999);
  expect(stuck.killReasons).toEqual([]);
  clock.advance(1);
  await updated;
  expect(stuck.killReasons).toEqual(['the worker did not open its listeners in time']);
  expect(clock.armedCount).toBe(0);
});

test('worker listeners: a worker that cannot restore its listeners after a failed update is killed', async () => {
  const [first, second] = [new FakeWorker(OPENED, OPENED, TAKEN), new FakeWorker(OPENED, TAKEN)];
  const { listeners } = open(first, second);
  await listeners.update(listenersAt(FREE), 0);
  await expect(listeners.update(listenersAt(FREE_TOO), 0)).rejects.toMatchObject(TAKEN_ERROR);
  expect([first.killReasons, second.killReasons]).toEqual([[TAKEN.message], []]);
  expect(listeners.status().map(({ name }) => name)).toEqual([FREE]);
});

const TAKEN_ERROR = { code: TAKEN.code, message: TAKEN.message };

test('worker listeners: when another program takes the free port first, three ports are tried', async () => {
  const lucky = new FakeWorker(TAKEN, OPENED, TAKEN, OPENED, OPENED);
  await open(lucky).listeners.update(listenersAt('127.0.0.1:0'), 0);
  expect(lucky.received.length).toBe(5); // two failed updates with a restore after each, then a successful update
  const luckless = new FakeWorker(TAKEN, OPENED, TAKEN, OPENED, TAKEN, OPENED);
  await expect(open(luckless).listeners.update(listenersAt('127.0.0.1:0'), 0)).rejects.toMatchObject(
    TAKEN_ERROR,
  );
  const named = new FakeWorker(TAKEN, OPENED);
  await expect(open(named).listeners.update(listenersAt(FREE), 0)).rejects.toMatchObject(TAKEN_ERROR);
  expect([luckless.received.length, named.received.length]).toEqual([6, 2]);
});

test('worker listeners: a taken address is refused before any worker is asked', async () => {
  const program = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void program.close());
  await once(program, 'listening');
  const { port } = boundAddress(program);
  const worker = new FakeWorker();
  const { listeners } = open(worker);
  await expect(listeners.update(listenersAt(`127.0.0.1:${port}`), 0)).rejects.toMatchObject({
    code: 'listen-failed',
    message: `cannot listen on 127.0.0.1:${port}: another program listens there (address in use); stop it, or choose another port`,
  });
  expect(worker.received).toEqual([]);
});

test('worker listeners: a worker that holds an unbound socket is killed, because it can never listen on that port', async () => {
  const unlucky = new FakeWorker(OPENED, { ...TAKEN, holdsUnboundSocket: true });
  const other = new FakeWorker();
  const { listeners } = open(unlucky, other);
  await listeners.update(listenersAt(FREE), 0);
  await expect(listeners.update(listenersAt(FREE_TOO), 0)).rejects.toMatchObject(TAKEN_ERROR);
  expect([unlucky.killReasons, other.killReasons]).toEqual([[TAKEN.message], []]);
});

test('worker: reports that it holds a socket that could not be bound', async () => {
  const program = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void program.close());
  await once(program, 'listening');
  const supervisor = new WorkerSupervisor({
    clock: systemClock,
    entry: join(process.cwd(), 'src/plane/workers/worker.ts'),
    wanted: 1,
    onEvent: () => {},
    prepare: async () => {},
    onLost: () => {},
    onExit: () => {},
    onFailed: () => {},
  });
  onTestFinished(() => supervisor.close());
  await supervisor.open();
  const [worker] = supervisor.ready;
  if (worker === undefined) throw new TypeError('there is one');
  const config = testConfig({ sources: [SOURCE] });
  const context = { sourceNames: ['city'], apiAddresses: [] };
  worker.calls.own.follow = async () => worker.calls.call('receiveState', EMPTY_STATE);
  worker.calls.call('open', {
    replica: 'worker 1',
    settings: { dialer: dialerSettings(config), pool: poolSettings(config) },
    forecasts: [],
    context,
    inheritedFds: [],
    mark: 'noria-0',
  });
  const outcomeAt = (address: string) => worker.calls.ask('update', listenersAt(address), 0, []);
  expect(await outcomeAt(`127.0.0.1:${boundAddress(program).port}`)).toMatchObject({
    code: 'listen-failed',
    holdsUnboundSocket: true,
  });
  expect(await outcomeAt(FREE)).toMatchObject({ ok: true });
});
