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
import { Pool } from '../../pool/pool.ts';
import { LocalPlane } from '../local-plane.ts';
import { BatchedChannel } from './batched-channel.ts';
import { ConnectionPermitHolder } from './connection-permits.ts';
import {
  FORWARDED_EVENTS,
  type ForwardedEvent,
  type ForwardedEventName,
  packEvents,
} from './event-columns.ts';
import {
  type FromWorker,
  HOW_TO_SHARE,
  type PrimaryCalls,
  RemoteCalls,
  type RemoteMessage,
  SIGNALS_FOR_PRIMARY,
  sharedPoolOf,
  type UpdateOutcome,
  type WorkerCalls,
} from './remote-calls.ts';
import { RemoteForecasts } from './remote-forecasts.ts';

for (const signal of SIGNALS_FOR_PRIMARY) process.on(signal, () => {});
tuneForShortLives();

const { send, sendLater, flush } = new BatchedChannel<FromWorker | ForwardedEvent>(systemClock, (batch) => {
  const events = batch.filter((message) => message.kind === 'event');
  const others = batch.filter((message) => message.kind !== 'event');
  const packed = events.length === 0 ? others : [packEvents(events), ...others];
  process.send?.(packed, undefined, undefined, ignored);
});
const permits = new Map<number, ConnectionPermitHolder>();
const primary = new RemoteCalls<PrimaryCalls, WorkerCalls>(send);
primary.own.open = open;

process.on('uncaughtException', (error) => {
  send({ kind: 'crashed', stack: error.stack ?? describeError(error) });
  exitWith(1);
});
process.on('message', (batch: readonly RemoteMessage[]) => {
  for (const message of batch) primary.receive(message);
});
send({ kind: 'loaded' });

function open({ replica: name, ...opening }: Parameters<WorkerCalls['open']>[0]): void {
  const bus = new EventBus((_name, error) => {
    throw error; // only `forward` subscribes to this bus, so an error of a subscriber is a bug
  });
  for (const event of FORWARDED_EVENTS) forward(bus, event);
  const forecasts = new RemoteForecasts(systemClock);
  forecasts.receive(opening.forecasts);
  const { settings, context, inheritedFds, mark } = opening;
  const common = { clock: systemClock, bus };
  const pool = new Pool({
    ...settings.pool,
    ...common,
    random: systemRandom,
    forecasts: () => forecasts.read(),
  });
  const shared = sharedPoolOf(primary);
  const replica = new Replica({ ...common, name, pool, shared, servesClients: true, ...HOW_TO_SHARE });
  const plane = new LocalPlane({
    ...common,
    pool,
    dialer: settings.dialer,
    leases: replica,
    onSourceFault: (fault) => primary.call('onSourceFault', fault),
    onNetwork: (down) => primary.call('onNetwork', down),
    context,
    inheritedFds: new Set(inheritedFds),
    mark,
    sharing: {
      connectionLimit: permitsOf,
      onWrongCredentials: (listener, attempt) => primary.call('countWrongCredentials', listener, attempt),
    },
    elsewhere: {
      findSession: (session) => replica.findSession(session),
      lastUses: async (client) => (await primary.ask('lastUses', client)) ?? [],
      closeTunnels: (client, host) => primary.call('closeTunnels', client, host),
    },
  });
  const loaded = replica.open();
  Object.assign(primary.own, {
    commit(settings) {
      plane.commit(settings);
      pool.reconfigure(settings.pool);
    },
    setContext: (context) => plane.setContext(context),
    resetRefusals: (source) => plane.resetRefusals(source),
    closeConnections: (of) => plane.closeConnections(of),
    closeTunnels: (client, host) => plane.closeTunnels(client, host),
    countWrongCredentials: (listener, attempt) => plane.countWrongCredentials(listener, attempt),
    answeredElsewhere: () => plane.dialer.answeredElsewhere(),
    receiveForecasts(received) {
      forecasts.receive(received);
      pool.refuseHopeless();
    },
    receivePermits: (listener, reply) => permits.get(listener)?.receive(reply),
    findUse: (client) => pool.leases.lastUse(client),
    async update(...update) {
      await loaded;
      return updatePlane(plane, update);
    },
    drain: () => plane.drain(),
    async close() {
      await plane.close();
      pool.close();
      exitWith(0);
    },
  } satisfies Partial<WorkerCalls>);
}

function forward<Name extends ForwardedEventName>(bus: EventBus, name: Name): void {
  bus.on(name, (event) => sendLater({ kind: 'event', name, event }));
}

function permitsOf(listener: number): ConnectionPermitHolder {
  const known = permits.get(listener);
  if (known !== undefined) return known;
  const holder = new ConnectionPermitHolder((request) => primary.call('receivePermits', listener, request));
  permits.set(listener, holder);
  return holder;
}

async function updatePlane(
  plane: LocalPlane,
  [settings, drainTimeoutMs, permitListeners]: Parameters<WorkerCalls['update']>,
): Promise<UpdateOutcome> {
  // Drops the connection permits of the listeners that are not in `permitListeners`. Listeners that this update
  // removes are still in that list: if the update fails, noria opens them again.
  for (const id of permits.keys()) if (!permitListeners.includes(id)) permits.delete(id);
  try {
    await plane.update(settings, drainTimeoutMs);
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

function exitWith(code: number): void {
  flush();
  process.send?.([], undefined, undefined, () => process.exit(code));
}

/** ignored: when the pipe breaks, node:cluster ends this process. */
function ignored(): void {}
