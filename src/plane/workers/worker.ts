/**
 * The entry of a worker process: listeners, a dialer, and a copy of the primary's pool. The primary controls the worker
 * through the pipe. A worker ignores signals and writes no output. When the pipe closes, node:cluster ends the process.
 */
import { systemClock } from '../../core/clock.ts';
import { tuneForShortLives } from '../../core/engine.ts';
import { EventBus } from '../../core/events.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import { systemRandom } from '../../core/random.ts';
import { Replica } from '../../fleet/replica.ts';
import type { ClientName, ClientUse } from '../../pool/clients.ts';
import type { SourceForecast } from '../../pool/lease.ts';
import { Pool } from '../../pool/pool.ts';
import type { ListenerSettings, PlaneSettings } from '../data-plane.ts';
import { LocalPlane } from '../local-plane.ts';
import { BatchedChannel } from './batched-channel.ts';
import { ConnectionPermitHolder } from './connection-permits.ts';
import {
  FORWARDED_EVENTS,
  type ForwardedEvent,
  type ForwardedEventName,
  packEvents,
} from './event-columns.ts';
import { decodeFromIpc } from './ipc-encoding.ts';
import {
  type FromWorker,
  type OpenPlane,
  type PlaneUpdate,
  SIGNALS_FOR_PRIMARY,
  type ToWorker,
  type UpdateOutcome,
  type WorkerCalls,
} from './messages.ts';
import { RemoteForecasts } from './remote-forecasts.ts';
import { HOW_TO_SHARE, IpcSharedPool } from './shared-channel.ts';

interface OpenedPlane {
  readonly plane: LocalPlane;
  readonly calls: WorkerCalls;
  readonly pool: Pool;
  readonly shared: IpcSharedPool;
  readonly loaded: Promise<void>;
}

for (const signal of SIGNALS_FOR_PRIMARY) process.on(signal, () => {});
tuneForShortLives();

const { send, sendLater, flush } = new BatchedChannel<FromWorker | ForwardedEvent>(systemClock, (batch) => {
  const events = batch.filter((message) => message.kind === 'event');
  const others = batch.filter((message) => message.kind !== 'event');
  const packed = events.length === 0 ? others : [packEvents(events), ...others];
  process.send?.(packed, undefined, undefined, ignored);
});
const permits = new Map<number, ConnectionPermitHolder>();
let opened: OpenedPlane | undefined;
const questions = new Map<number, (uses: readonly ClientUse[]) => void>();
let lastQuestion = 0;

process.on('uncaughtException', (error) => {
  send({ kind: 'crashed', stack: error.stack ?? describeError(error) });
  exitWith(1);
});
process.on('message', (batch: readonly ToWorker[]) => {
  for (const message of batch) receive(message);
});
send({ kind: 'loaded' });

function receive(message: ToWorker): void {
  switch (message.kind) {
    case 'open':
      opened = openPlane(message);
      return;
    case 'permits':
      permits.get(message.listener)?.receive(message.reply);
      return;
    default:
      if (opened === undefined)
        throw new TypeError(`the message ${message.kind} arrived before the message open`);
      receiveOpen(message, opened);
  }
}

function receiveOpen(message: Exclude<ToWorker, { kind: 'open' | 'permits' }>, opened: OpenedPlane): void {
  const { plane, calls, pool, shared } = opened;
  switch (message.kind) {
    case 'call':
      // The cast is safe because `WorkersPlane` checks the arguments of each call.
      (calls[message.call] as (...args: unknown[]) => void)(...decodeFromIpc<unknown[]>(message.args));
      break;
    case 'uses.asked':
      send({ kind: 'use.found', id: message.id, use: pool.clients.find(message.name) });
      break;
    case 'uses.found':
      questions.get(message.id)?.(message.uses);
      questions.delete(message.id);
      break;
    case 'update':
      void update(message, opened).then((outcome) => send({ kind: 'updated', outcome }));
      break;
    case 'drain':
      void plane.drain().then(() => send({ kind: 'drained' }));
      break;
    case 'close':
      void close(opened);
      break;
    default:
      shared.receive(message);
  }
}

function openPlane(message: OpenPlane): OpenedPlane {
  const bus = new EventBus((_name, error) => {
    throw error; // only `forward` subscribes to this bus, so an error of a subscriber is a bug
  });
  for (const name of FORWARDED_EVENTS) forward(bus, name);
  const forecasts = new RemoteForecasts(systemClock);
  forecasts.receive(decodeFromIpc<readonly SourceForecast[]>(message.forecasts));
  const settings = decodeFromIpc<PlaneSettings>(message.settings);
  const common = { clock: systemClock, bus };
  const pool = new Pool({
    ...settings.pool,
    ...common,
    random: systemRandom,
    forecasts: () => forecasts.read(),
  });
  const shared = new IpcSharedPool(send);
  const replica = new Replica({
    ...common,
    name: message.replica,
    pool,
    shared,
    servesClients: true,
    ...HOW_TO_SHARE,
  });
  const { context, inheritedFds, mark } = message;
  const plane = new LocalPlane({
    ...common,
    pool,
    dialer: settings.dialer,
    leases: replica,
    onSourceFault: (fault) => send({ kind: 'source.fault', fault }),
    onNetwork: (down) => send({ kind: 'network.judged', down }),
    context,
    inheritedFds: new Set(inheritedFds),
    mark,
    sharing: {
      connectionLimit: permitsOf,
      onWrongCredentials: (listener, attempt) => send({ kind: 'wrong-credentials', listener, attempt }),
    },
    elsewhere: {
      findSession: (name) => replica.findSession(name),
      lastUses: askOthers,
      closeTunnels: (name, host) => send({ kind: 'tunnels.unwanted', name, host }),
    },
  });
  return { plane, calls: callsOf(plane, pool, forecasts), pool, shared, loaded: replica.open() };
}

function callsOf(plane: LocalPlane, pool: Pool, forecasts: RemoteForecasts): WorkerCalls {
  return {
    commit(settings) {
      plane.commit(settings);
      pool.reconfigure(settings.pool);
    },
    setContext: (context) => plane.setContext(context),
    resetRefusals: (source) => plane.resetRefusals(source),
    closeConnections: (of) => plane.closeConnections(of),
    closeTunnels: (name, host) => plane.closeTunnels(name, host),
    countWrongCredentials: (listener, attempt) => plane.countWrongCredentials(listener, attempt),
    answeredElsewhere: () => plane.dialer.answeredElsewhere(),
    receiveForecasts(received) {
      forecasts.receive(received);
      pool.refuseHopeless();
    },
  };
}

function askOthers(name: ClientName): Promise<readonly ClientUse[]> {
  lastQuestion += 1;
  const { promise, resolve } = Promise.withResolvers<readonly ClientUse[]>();
  questions.set(lastQuestion, resolve);
  send({ kind: 'uses.asked', id: lastQuestion, name });
  return promise;
}

function forward<Name extends ForwardedEventName>(bus: EventBus, name: Name): void {
  bus.on(name, (event) => sendLater({ kind: 'event', name, event }));
}

function permitsOf(listener: number): ConnectionPermitHolder {
  const known = permits.get(listener);
  if (known !== undefined) return known;
  const holder = new ConnectionPermitHolder((request) => send({ kind: 'permits', listener, request }));
  permits.set(listener, holder);
  return holder;
}

async function update(command: PlaneUpdate, { plane, loaded }: OpenedPlane): Promise<UpdateOutcome> {
  await loaded;
  // Drops the connection permits of the listeners that are not in `permitListeners`. Listeners that this update
  // removes are still in that list: if the update fails, noria opens them again.
  for (const id of permits.keys()) if (!command.permitListeners.includes(id)) permits.delete(id);
  try {
    const settings = decodeFromIpc<readonly ListenerSettings[]>(command.listeners);
    await plane.update(settings, command.drainTimeoutMs);
    return { ok: true, addresses: plane.listeners.map(({ addresses }) => addresses) };
  } catch (error) {
    const code = error instanceof NoriaError ? error.code : 'internal';
    const message = describeError(error);
    return { ok: false, code, message, holdsUnboundSocket: leavesUnboundSocket(error) };
  }
}

/** True if another program uses the address. In this case, node:cluster has passed an unbound socket to the worker. */
function leavesUnboundSocket(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const failedToBind =
    'syscall' in error && error.syscall === 'bind' && 'code' in error && error.code === 'EADDRINUSE';
  return failedToBind || leavesUnboundSocket(error.cause);
}

async function close({ plane, pool }: OpenedPlane): Promise<void> {
  await plane.close();
  pool.close();
  exitWith(0);
}

function exitWith(code: number): void {
  flush();
  process.send?.([], undefined, undefined, () => process.exit(code));
}

/** ignored: when the pipe breaks, node:cluster ends this process. */
function ignored(): void {}
