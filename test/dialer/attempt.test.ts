/** The clock of one attempt: what connecting may take, what the answer may take, and that both together have an end. */
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { Secret } from '../../src/core/secret.ts';
import { Attempt, type AttemptFailure, type AttemptOwner } from '../../src/dialer/attempt.ts';
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
  waitedMs: 0,
  doubtful: false,
};

/** An attempt over sockets that do nothing by themselves; the test plays the network. */
function makeAttempt(timeoutMs: number) {
  const clock = new ManualClock();
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
  } as const;
  const parts = { clock, deadlines, openSocket, onSourceFault: () => {} };
  const failures: AttemptFailure[] = [];
  const owner: AttemptOwner = {
    attemptAccepted: () => failures.splice(0, failures.length),
    attemptFailed: (_, failure) => failures.push(failure),
  };
  const task = {
    lease: LEASE,
    target: targetOf('target.example:443'),
    use: 'tunnel',
    hedge: false,
    timeoutMs,
  } as const;
  const attempt = new Attempt(new SourceMemory('city', settings, parts), owner, task);
  attempt.start();
  const say = (text: string) => sockets.at(-1)?.emit('data', Buffer.from(text));
  return { clock, deadlines, sockets, failures, attempt, say };
}

test('attempt: connecting takes four fifths of the time at most', () => {
  const { clock, failures, sockets, deadlines } = makeAttempt(5_000);
  clock.advance(3_999);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toMatchObject([
    { fault: 'member-unreachable', phase: 'connect', lost: true, heard: false, ms: 4_000 },
  ]);
  expect([sockets[0]?.destroyed, deadlines.size]).toEqual([true, 0]);
});

test('attempt: the answer may take what is left', () => {
  const { clock, failures, sockets, deadlines } = makeAttempt(5_000);
  clock.advance(1_000);
  sockets[0]?.emit('connect');
  clock.advance(3_999);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toMatchObject([
    { fault: 'member-silent', phase: 'answer', lost: false, heard: true, ms: 5_000 },
  ]);
  expect([sockets[0]?.destroyed, deadlines.size]).toEqual([true, 0]);
});

test('attempt: a second connection to the same member gets no time of its own', () => {
  const { clock, failures, sockets, say, deadlines } = makeAttempt(5_000);
  sockets[0]?.emit('connect');
  clock.advance(3_000);
  say('HTTP/1.1 407 Who\r\n\r\n');
  expect([sockets.length, sockets[0]?.destroyed, deadlines.size]).toEqual([2, true, 1]);
  sockets[1]?.emit('connect');
  clock.advance(1_999);
  expect(failures).toEqual([]);
  clock.advance(1);
  expect(failures).toMatchObject([{ fault: 'member-silent', ms: 5_000 }]);
});

test('attempt: cancelled, it tells nobody and leaves nothing, as often as one likes', () => {
  const { clock, failures, sockets, attempt, deadlines } = makeAttempt(5_000);
  attempt.cancel();
  attempt.cancel();
  clock.advance(10_000);
  expect([failures, sockets[0]?.destroyed, deadlines.size, attempt.takeConnection()]).toEqual([
    [],
    true,
    0,
    undefined,
  ]);
});

test('attempt: an accepted way is handed over once, without listeners of the attempt', () => {
  const { sockets, attempt, say, deadlines } = makeAttempt(5_000);
  sockets[0]?.emit('connect');
  say('HTTP/1.1 200 OK\r\n\r\nhello');
  const way = attempt.takeConnection();
  expect(way).toMatchObject({ forwardMode: 'direct', login: undefined });
  expect(way?.head.toString()).toBe('hello');
  expect([attempt.takeConnection(), deadlines.size, way?.socket.isPaused()]).toEqual([undefined, 0, true]);
  const left = ['data', 'connect', 'secureConnect', 'close'].filter(
    (name) => (way?.socket.listenerCount(name) ?? 0) > 0,
  );
  expect(left).toEqual([]);
});
