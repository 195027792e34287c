/**
 * The entry of a worker process: listeners, a dialer, and a copy of the primary's pool. The primary controls the worker
 * through the pipe. A worker ignores signals and writes no output. When the pipe closes, node:cluster ends the process.
 */
import { systemClock } from '../../core/clock.ts';
import { tuneForShortLives } from '../../core/engine.ts';
import { EventBus } from '../../core/events.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import { systemRandom } from '../../core/random.ts';
import { type DialerSettings, MemberDialer } from '../../dialer/dialer.ts';
import { Replica } from '../../fleet/replica.ts';
import type { PoolSettings } from '../../pool/options.ts';
import { Pool } from '../../pool/pool.ts';
import { clientDesk } from '../client-desk.ts';
import type { ListenerSettings } from '../data-plane.ts';
import { ListenerSet } from '../listener-set.ts';
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
  type PlaneCommand,
  type PlaneUpdate,
  SIGNALS_FOR_PRIMARY,
  type ToWorker,
  type UpdateOutcome,
} from './messages.ts';
import { RemoteForecasts } from './remote-forecasts.ts';
import { IpcSharedPool } from './shared-channel.ts';
import { HOW_TO_SHARE, sinceBootMs } from './sharing-options.ts';

interface WorkerPlane {
  readonly listeners: ListenerSet;
  readonly dialer: MemberDialer;
  readonly pool: Pool;
  readonly shared: IpcSharedPool;
  readonly forecasts: RemoteForecasts;
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
let plane: WorkerPlane | undefined;

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
      plane = openPlane(message);
      return;
    case 'permits':
      permits.get(message.listener)?.receive(message.reply);
      return;
    default:
      if (plane === undefined)
        throw new TypeError(`the message ${message.kind} arrived before the message open`);
      receiveOpen(message, plane);
  }
}

function receiveOpen(message: Exclude<ToWorker, { kind: 'open' | 'permits' }>, plane: WorkerPlane): void {
  switch (message.kind) {
    case 'shared.state':
    case 'shared.facts':
    case 'shared.activity':
    case 'shared.bound':
      plane.shared.receive(message);
      break;
    case 'forecasts':
      plane.forecasts.receive(message.forecasts);
      plane.pool.refuseHopeless();
      break;
    default:
      execute(message, plane);
  }
}

function execute(command: PlaneCommand, plane: WorkerPlane): void {
  const { listeners, dialer, pool } = plane;
  switch (command.kind) {
    case 'update':
      void update(command, plane).then((outcome) => send({ kind: 'updated', outcome }));
      break;
    case 'commit':
      listeners.commit();
      pool.reconfigure(decodeFromIpc<PoolSettings>(command.pool));
      dialer.configure(decodeFromIpc<DialerSettings>(command.dialer));
      break;
    case 'set-context':
      listeners.setContext(command.context);
      break;
    case 'reset-refusals':
      dialer.resetRefusals(command.source);
      break;
    case 'close-connections':
      dialer.closeConnections(pool.leasesOf(command.of));
      break;
    case 'network-is-up':
      dialer.answeredElsewhere();
      break;
    case 'wrong-credentials':
      listeners.countWrongCredentials(command.listener, command.attempt);
      break;
    case 'drain':
      void listeners.drain().then(() => send({ kind: 'drained' }));
      break;
    case 'close':
      void close(plane);
      break;
  }
}

function openPlane(message: OpenPlane): WorkerPlane {
  const bus = new EventBus((_name, error) => {
    throw error; // only `forward` subscribes to this bus, so an error of a subscriber is a bug
  });
  for (const name of FORWARDED_EVENTS) forward(bus, name);
  const forecasts = new RemoteForecasts(systemClock);
  forecasts.receive(message.forecasts);
  const pool = new Pool({
    ...decodeFromIpc<PoolSettings>(message.pool),
    clock: systemClock,
    random: systemRandom,
    bus,
    forecasts: () => forecasts.read(),
  });
  const shared = new IpcSharedPool(aheadOfPrimaryMs(message.primaryClock), send);
  const replica = new Replica({
    name: message.replica,
    clock: systemClock,
    bus,
    pool,
    shared,
    servesClients: true,
    ...HOW_TO_SHARE,
  });
  const guard = { mark: message.mark, ownAddresses: () => listeners.guard.ownAddresses() };
  const dialer = new MemberDialer({
    guard,
    ...decodeFromIpc<DialerSettings>(message.dialer),
    clock: systemClock,
    bus,
    pool,
    leases: replica.sessions,
    onSourceFault: (fault) => send({ kind: 'source.fault', fault }),
    onNetwork: (down) => send({ kind: 'network.judged', down }),
  });
  const listeners: ListenerSet = openListeners(message, bus, dialer, pool);
  return { listeners, dialer, pool, shared, forecasts, loaded: replica.open() };
}

function aheadOfPrimaryMs({
  monotonicMs,
  sinceBootMs: primarySinceBootMs,
}: OpenPlane['primaryClock']): number {
  return systemClock.monotonic() - sinceBootMs() - (monotonicMs - primarySinceBootMs);
}

function openListeners(
  { context, inheritedFds, mark }: OpenPlane,
  bus: EventBus,
  dialer: MemberDialer,
  pool: Pool,
): ListenerSet {
  return new ListenerSet({
    clock: systemClock,
    bus,
    dialer,
    desk: clientDesk(pool, dialer),
    context,
    inheritedFds: new Set(inheritedFds),
    mark,
    sharing: {
      connectionLimit: permitsOf,
      onWrongCredentials: (listener, attempt) => send({ kind: 'wrong-credentials', listener, attempt }),
    },
  });
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

async function update(command: PlaneUpdate, { listeners, loaded }: WorkerPlane): Promise<UpdateOutcome> {
  await loaded;
  // Drops the connection permits of the listeners that are not in `permitListeners`. Listeners that this update
  // removes are still in that list: if the update fails, noria opens them again.
  for (const id of permits.keys()) if (!command.permitListeners.includes(id)) permits.delete(id);
  try {
    const settings = decodeFromIpc<readonly ListenerSettings[]>(command.listeners);
    await listeners.update(settings, command.drainTimeoutMs);
    return { ok: true, addresses: listeners.status().map(({ addresses }) => addresses) };
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

async function close({ listeners, dialer, pool }: WorkerPlane): Promise<void> {
  await listeners.close();
  await dialer.close();
  pool.close();
  exitWith(0);
}

function exitWith(code: number): void {
  flush();
  process.send?.([], undefined, undefined, () => process.exit(code));
}

/** ignored: when the pipe breaks, node:cluster ends this process. */
function ignored(): void {}
