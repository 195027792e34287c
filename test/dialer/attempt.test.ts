/** The timeouts of one attempt: for the connection, for the answer, and for both together. */
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { Secret } from '../../src/core/secret.ts';
import { Attempt, type AttemptFailure, type RawConnection } from '../../src/dialer/attempt.ts';
import { SourceMemory } from '../../src/dialer/source-memory.ts';
import type { Lease } from '../../src/pool/lease.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { targetOf } from './make-dialer.ts';

const LEASE: Lease = {
  id: 1,
  member: 'm1',
  source: 'city',
  protocol: 'http',
  host: '192.0.2.1',
  port: 8000,
  exit: '192.0.2.1',
  waitedMs: 0,
  doubtful: false,
};

/** An attempt on sockets without a network. The test emits the events of the sockets. */
function makeAttempt(timeoutMs: number) {
  const clock = ManualClock.dayOld();
  const deadlines = new Deadlines(clock, 10);
  const sockets: Socket[] = [];
  const openSocket = () => {
    const socket = new Socket();
    socket.write = () => true;
    sockets.push(socket);
    return socket;
  };
  const settings = {
    auth: 'auto',
    instance: 'i',
    password: new Secret('12345678'),
    neverInstance: false,
    forwardMode: 'direct',
    handshake: 'auto',
  } as const;
  const memory = new SourceMemory('city', settings, clock, () => {});
  const parts = { clock, deadlines, openSocket, memoryOf: () => memory };
  const failures: AttemptFailure[] = [];
  const connections: RawConnection[] = [];
  const task = {
    lease: LEASE,
    request: { target: targetOf('target.example:443'), use: 'tunnel' },
    hedge: false,
    timeoutMs,
  } as const;
  const attempt = new Attempt(parts, task, (_, result) => {
    if (result.kind === 'accepted') connections.push(result);
    else failures.push(result);
  });
  attempt.start();
  const receive = (text: string) => sockets.at(-1)?.emit('data', Buffer.from(text));
  return { clock, deadlines, sockets, failures, connections, attempt, receive, memory };
}

test('attempt: a connection fails after four fifths of the timeout', () => {
  const { clock, failures, sockets, deadlines } = makeAttempt(5_000);
  clock.advance(3_999);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toMatchObject([{ fault: 'member-unreachable', phase: 'connect', ms: 4_000 }]);
  expect([sockets[0]?.destroyed, deadlines.size]).toEqual([true, 0]);
});

test('attempt: the answer may take the rest of the timeout', () => {
  const { clock, failures, sockets, deadlines } = makeAttempt(5_000);
  clock.advance(1_000);
  sockets[0]?.emit('connect');
  clock.advance(3_999);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toMatchObject([{ fault: 'member-silent', phase: 'answer', ms: 5_000 }]);
  expect([sockets[0]?.destroyed, deadlines.size]).toEqual([true, 0]);
});

test('attempt: a second connection to the same member shares the timeout of the first', () => {
  const { clock, failures, sockets, receive, deadlines, memory } = makeAttempt(5_000);
  memory.credentials.refused('m1', undefined); // the member requires credentials a second time
  sockets[0]?.emit('connect');
  clock.advance(3_000);
  receive('HTTP/1.1 407 Who\r\n\r\n');
  expect([sockets.length, sockets[0]?.destroyed, deadlines.size]).toEqual([2, true, 1]);
  sockets[1]?.emit('connect');
  clock.advance(1_999);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toMatchObject([{ fault: 'member-silent', ms: 5_000 }]);
});

test('attempt: cancel closes everything without a call to the owner, and is idempotent', () => {
  const { clock, failures, connections, sockets, attempt, deadlines } = makeAttempt(5_000);
  attempt.cancel();
  attempt.cancel();
  clock.advance(10_000);
  expect([failures, connections, sockets[0]?.destroyed, deadlines.size]).toEqual([[], [], true, 0]);
});

test('attempt: an accepted connection is handed over once, without listeners of the attempt', () => {
  const { connections, sockets, attempt, receive, deadlines } = makeAttempt(5_000);
  sockets[0]?.emit('connect');
  receive('HTTP/1.1 200 OK\r\n\r\nhello');
  attempt.cancel();
  expect(connections).toHaveLength(1);
  const [connection] = connections;
  expect(connection).toMatchObject({ forwardMode: 'direct', login: undefined });
  expect(connection?.early.toString()).toBe('hello');
  expect([deadlines.size, connection?.socket.destroyed]).toEqual([0, false]);
  const left = ['data', 'connect', 'secureConnect', 'close'].filter(
    (name) => (connection?.socket.listenerCount(name) ?? 0) > 0,
  );
  expect(left).toEqual([]);
});
