/**
 * A dialer over a fake pool. When its test ends, it is closed and must leave nothing open. Unless the test brings a clock, no
 * time passes: no timeout ends a step that a busy machine delays, and every failure is a fast one.
 */
import { expect, onTestFinished } from 'vitest';
import { EventBus, type EventName, type NoriaEvents } from '../../src/core/events.ts';
import { makeMark } from '../../src/core/front-proxy.ts';
import { type HostPort, parseHostPort } from '../../src/core/host-port.ts';
import type {
  Dialer,
  DialFailure,
  Dialing,
  DialRequest,
  DialResult,
  MemberConnection,
} from '../../src/dialer/contract.ts';
import { type DialerOptions, MemberDialer } from '../../src/dialer/dialer.ts';
import type { SourceFault } from '../../src/dialer/source-memory.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { FakePool, type FakePoolMember } from './fake-pool.ts';

export function makeDialer(members: readonly FakePoolMember[], settings: Partial<DialerOptions> = {}) {
  const pool = new FakePool(members);
  const bus = new EventBus((name, error) => {
    throw new Error(`observer of ${name} failed`, { cause: error });
  });
  const sourceFaults: SourceFault[] = [];
  const networkDown: boolean[] = [];
  const dialer = new MemberDialer({
    clock: ManualClock.dayOld(),
    bus,
    pool,
    guard: { mark: makeMark(), ownAddresses: () => [] },
    attempts: 3,
    attemptTimeoutMs: 60_000,
    hedgeAfter: 'off',
    warm: 'off',
    deadlineMs: 60_000,
    waitForMemberMs: 60_000,
    sources: new Map(),
    onSourceFault: (fault) => sourceFaults.push(fault),
    onNetwork: (down) => networkDown.push(down),
    ...settings,
  });
  const connections: MemberConnection[] = [];
  onTestFinished(async () => {
    await dialer.close();
    for (const { socket } of connections) socket.destroy();
    expect(dialer.openCount, 'attempts and idle connections after close').toBe(0);
    expect(bus.hasSubscribers('draw.done'), 'observers after close').toBe(false);
    for (const connection of connections) connection.end({ cut: false });
    expect(pool.openLeases, 'leases without a report').toBe(0);
  });
  const dial = async (target: string, request: Partial<Parameters<typeof dialer.dial>[0]> = {}) => {
    const result = await start(dialer, { target: targetOf(target), routing: {}, use: 'tunnel', ...request })
      .result;
    if (result.ok) connections.push(result.connection);
    return result;
  };
  return { dialer, dial, pool, bus, sourceFaults, networkDown, connections };
}

/** Starts a dial and returns it with its result as a promise. */
export function start(
  dialer: Dialer,
  request: DialRequest,
): Dialing & { readonly result: Promise<DialResult> } {
  const { promise: result, resolve } = Promise.withResolvers<DialResult>();
  let results = 0;
  const dialing = dialer.dial(request, (answer) => {
    results += 1;
    expect(results, 'results of one dial').toBe(1);
    if (answer.ok) answer.connection.socket.pause(); // the test adds its listeners later
    resolve(answer);
  });
  return { result, cancel: () => dialing.cancel() };
}

export function targetOf(text: string): HostPort {
  const target = parseHostPort(text);
  if (target === undefined) throw new TypeError(`not a target: ${text}`);
  return target;
}

/** Collects all events with this name from now on. */
export function collect<Name extends EventName>(bus: EventBus, name: Name): NoriaEvents[Name][] {
  const events: NoriaEvents[Name][] = [];
  bus.on(name, (event) => events.push(event));
  return events;
}

export function connectionOf(result: DialResult): MemberConnection {
  if (!result.ok) throw new Error(`no connection: ${result.failure.code}: ${result.failure.reason}`);
  return result.connection;
}

export function failureOf(result: DialResult): DialFailure {
  if (result.ok) throw new Error('connected, but a failure was expected');
  return result.failure;
}

/** Sends a word and reads its echo, which proves that the connection carries bytes in both directions. */
export async function echo(
  { socket, early }: MemberConnection,
  word: string,
  expected = word,
): Promise<void> {
  let got = early.toString('latin1');
  const done = new Promise<void>((resolve, reject) => {
    const look = () => got.length >= expected.length && resolve();
    socket.on('data', (bytes) => {
      got += bytes.toString('latin1');
      look();
    });
    socket.on('close', () => reject(new Error(`closed after ${JSON.stringify(got)}`)));
    look();
  });
  socket.write(word);
  socket.resume();
  await done;
  socket.pause();
  expect(got).toBe(expected);
}
