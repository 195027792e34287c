/**
 * What a worker process runs: the data plane on a pool that is elsewhere, steered through the pipe to the primary.
 *
 * It takes no signal, writes nothing, and has no life of its own: when the pipe breaks, node:cluster ends it at once.
 */
import { systemClock } from '../../core/clock.ts';
import { tuneForShortLives } from '../../core/engine.ts';
import { EventBus } from '../../core/events.ts';
import { describeError, NoriaError } from '../../core/faults.ts';
import type { DialerSettings } from '../../dialer/dialer.ts';
import { LocalPlane } from '../data-plane.ts';
import type { PlacedListener } from '../listener-set.ts';
import { BatchedChannel } from './batched-channel.ts';
import { PermitHolder } from './connection-permits.ts';
import { decodeFromIpc } from './ipc-encoding.ts';
import { connectLending } from './lease-channel.ts';
import {
  type Begin,
  FORWARDED_EVENTS,
  type ForwardedEventName,
  type FromWorker,
  type PlaneCommand,
  SIGNALS_OF_THE_PRIMARY,
  type ToWorker,
  type Update,
  type UpdateOutcome,
} from './messages.ts';

for (const signal of SIGNALS_OF_THE_PRIMARY) process.on(signal, () => {});
tuneForShortLives();

const { say, mention, flush } = openLink();
const permits = new Map<number, PermitHolder>();
const lending = connectLending((message) => {
  if (message.kind === 'report' && message.report.kind !== 'failed') mention(message);
  else say(message);
});
let plane: LocalPlane | undefined;

process.on('uncaughtException', (error) => {
  say({ kind: 'crashed', stack: error.stack ?? describeError(error) });
  endWith(1);
});
process.on('message', (batch: readonly ToWorker[]) => {
  for (const message of batch) hear(message);
});
say({ kind: 'loaded' });

function hear(message: ToWorker): void {
  switch (message.kind) {
    case 'answer':
      lending.hear(message);
      return;
    case 'begin':
      plane = openPlane(message);
      return;
    case 'permits':
      permits.get(message.listener)?.hear(message.order);
      return;
    default:
      if (plane === undefined) throw new TypeError(`${message.kind} came before begin`);
      steer(plane, message);
  }
}

function steer(plane: LocalPlane, message: PlaneCommand): void {
  switch (message.kind) {
    case 'update':
      void update(plane, message).then((outcome) => say({ kind: 'updated', outcome }));
      break;
    case 'configure':
      plane.configure(decodeFromIpc<DialerSettings>(message.dialer));
      break;
    case 'surroundings':
      plane.surround(message.surroundings);
      break;
    case 'forgive':
      plane.resetRefusals(message.source);
      break;
    case 'cut':
      plane.closeConnections(message.leases);
      break;
    case 'answered':
      plane.answeredElsewhere();
      break;
    case 'client.failed':
      plane.failedElsewhere(message.listener, message.address);
      break;
    case 'drain':
      void plane.drain().then(() => say({ kind: 'drained' }));
      break;
    case 'close':
      void plane.close().then(() => endWith(0));
      break;
  }
}

function openPlane({ dialer, surroundings, handedOver }: Begin): LocalPlane {
  const bus = new EventBus((_name, error) => {
    throw error; // the observers are those below, which do nothing that may fail
  });
  for (const name of FORWARDED_EVENTS) forward(bus, name);
  return new LocalPlane({
    clock: systemClock,
    bus,
    pool: lending,
    dialer: decodeFromIpc<DialerSettings>(dialer),
    surroundings,
    handedOver: new Set(handedOver),
    sharing: {
      roomOf,
      failed: (listener, address) => say({ kind: 'client.failed', listener, address }),
    },
    onSourceFault: (fault) => say({ kind: 'source.fault', fault }),
    onNetwork: (down) => say({ kind: 'network.judged', down }),
  });
}

function forward<Name extends ForwardedEventName>(bus: EventBus, name: Name): void {
  bus.on(name, (event) => mention({ kind: 'told', name, event }));
}

function roomOf(listener: number): PermitHolder {
  const known = permits.get(listener);
  if (known !== undefined) return known;
  const stock = new PermitHolder((request) => say({ kind: 'permits', listener, request }));
  permits.set(listener, stock);
  return stock;
}

async function update(plane: LocalPlane, message: Update): Promise<UpdateOutcome> {
  const { listeners, drainTimeoutMs, counted } = message;
  // Not those that go now: when the update is refused they come back, with the permits that they have.
  for (const id of permits.keys()) if (!counted.includes(id)) permits.delete(id);
  try {
    await plane.update(decodeFromIpc<readonly PlacedListener[]>(listeners), drainTimeoutMs);
    return { ok: true, addresses: plane.listeners.map(({ addresses }) => addresses) };
  } catch (error) {
    const code = error instanceof NoriaError ? error.code : 'internal';
    return { ok: false, code, message: describeError(error), spoilt: isSpoiltBy(error) };
  }
}

/** Whether the primary found the address taken when it bound it, and node:cluster handed the socket over all the same. */
function isSpoiltBy(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const isThat =
    'syscall' in error && error.syscall === 'bind' && 'code' in error && error.code === 'EADDRINUSE';
  return isThat || isSpoiltBy(error.cause);
}

function openLink(): BatchedChannel<FromWorker> {
  return new BatchedChannel(systemClock, (batch) => {
    process.send?.(batch, undefined, undefined, ignored);
  });
}

/** Says what is still to be said, then ends. */
function endWith(code: number): void {
  flush();
  process.send?.([], undefined, undefined, () => process.exit(code));
}

/** ignored: without the pipe there is no worker either. */
function ignored(): void {}
