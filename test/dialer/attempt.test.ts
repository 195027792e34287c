/** The timeouts of one attempt: for the connection, for the answer, and for both together. */
import { Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { Secret } from '../../src/core/secret.ts';
import { Attempt, type AttemptFailure, type RawConnection } from '../../src/dialer/attempt.ts';
import { Socks5Handshake } from '../../src/dialer/handshake.ts';
import { SourceMemory } from '../../src/dialer/source-memory.ts';
import type { WarmConnection } from '../../src/dialer/warm-connections.ts';
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
function makeAttempt(
  timeoutMs: number,
  given: {
    readonly protocol?: Lease['protocol'];
    readonly use?: 'tunnel' | 'forward';
    readonly forwardMode?: 'direct' | 'absolute';
    readonly prepare?: (memory: SourceMemory) => void;
    /** A connection that noria opened before, and what its handshake waits for. */
    readonly warm?: Partial<Pick<WarmConnection, 'isConnected' | 'handshake'>>;
    readonly isConnecting?: boolean;
  } = {},
) {
  const clock = ManualClock.dayOld();
  const deadlines = new Deadlines(clock, 10);
  const sockets: Socket[] = [];
  const written: string[] = [];
  const openSocket = () => {
    const socket = new Socket();
    if (given.isConnecting) Object.defineProperty(socket, 'connecting', { value: true });
    socket.write = (bytes: unknown) => written.push(String(bytes)) > 0;
    sockets.push(socket);
    return socket;
  };
  const settings = {
    auth: 'auto',
    instance: 'i',
    password: new Secret('12345678'),
    neverInstance: false,
    forwardMode: given.forwardMode ?? 'direct',
    handshake: 'auto',
  } as const;
  const memory = new SourceMemory('city', settings, clock, () => {});
  given.prepare?.(memory);
  const parts = { clock, deadlines, openSocket, memoryOf: () => memory };
  const failures: AttemptFailure[] = [];
  const connections: RawConnection[] = [];
  const task = {
    lease: { ...LEASE, ...(given.protocol && { protocol: given.protocol }) },
    request: { target: targetOf('target.example:443'), use: given.use ?? 'tunnel' },
    hedge: false,
    timeoutMs,
    ...(given.warm && { warm: { socket: openSocket(), ...given.warm } as WarmConnection }),
  } as const;
  const attempt = new Attempt(parts, task, (_, result) => {
    if (result.kind === 'accepted') connections.push(result);
    else failures.push(result);
  });
  attempt.start();
  const receive = (text: string) => sockets.at(-1)?.emit('data', Buffer.from(text, 'latin1'));
  return { clock, deadlines, sockets, written, failures, connections, attempt, receive, memory };
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

test.each(['http', 'https', 'socks5', 'socks4'] as const)(
  'attempt: leaves no listener on a socket of %s',
  (protocol) => {
    const names = ['data', 'end', 'close', 'connect', 'secureConnect'];
    const listeners = (socket: Socket | undefined) => names.map((name) => socket?.listenerCount(name));
    const before = listeners(new Socket());
    const { sockets, attempt } = makeAttempt(5_000, { protocol });
    sockets[0]?.emit(protocol === 'https' ? 'secureConnect' : 'connect');
    expect(listeners(sockets[0])).not.toEqual(before);
    attempt.cancel();
    expect(listeners(sockets[0])).toEqual(before);
  },
);

const acceptsPipelining = ({ pipelining }: SourceMemory) => {
  pipelining.accepted('m1', 'plain', 10);
  pipelining.accepted('m1', 'trial', 10);
};
const afterPlain = ({ pipelining }: SourceMemory) => pipelining.accepted('m0', 'plain', 10);
const ACCEPTED = '\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00';

test('attempt: a failed pipelined handshake makes the next one a trial, a failed connection does not', () => {
  for (const [isConnected, mode] of [
    [true, 'trial'],
    [false, 'pipelined'],
  ] as const) {
    const { sockets, failures, memory, deadlines, attempt } = makeAttempt(5_000, {
      protocol: 'socks5',
      prepare: acceptsPipelining,
    });
    if (isConnected) sockets[0]?.emit('connect');
    sockets[0]?.emit('close');
    expect(failures).toHaveLength(1);
    expect(memory.pipelining.modeFor('m1', false)).toBe(mode);
    expect([attempt.phase, deadlines.size]).toEqual(['done', 0]);
  }
});

test('attempt: a trial that ends is repeated in plain at once, and one that is accepted leaves no deadline', () => {
  const ended = makeAttempt(5_000, { protocol: 'socks5', prepare: afterPlain });
  ended.sockets[0]?.emit('connect');
  ended.sockets[0]?.emit('end');
  expect([ended.sockets.length, ended.failures]).toEqual([2, []]);
  ended.sockets[1]?.emit('connect');
  expect(
    ended.written.map((text) => text.length),
    'the second one sends only the greeting',
  ).toEqual([24, 3]);
  const accepted = makeAttempt(5_000, { protocol: 'socks5', prepare: afterPlain });
  accepted.sockets[0]?.emit('connect');
  accepted.clock.advance(30);
  accepted.receive(ACCEPTED);
  expect([accepted.connections.length, accepted.deadlines.size]).toEqual([1, 0]);
  expect(accepted.memory.pipelining.silenceMs, 'at least').toBe(100);
});

test('attempt: the handshake teaches how long a trial may take', () => {
  const { sockets, clock, receive, memory } = makeAttempt(5_000, { protocol: 'socks5' });
  clock.advance(1_000);
  sockets[0]?.emit('connect');
  clock.advance(300);
  receive(ACCEPTED.slice(0, 2));
  receive(ACCEPTED.slice(2));
  expect(memory.pipelining.silenceMs).toBe(600);
});

test('attempt: absolute form needs no handshake, also inside TLS, and only a forward may use it', () => {
  for (const [use, expected] of [
    ['forward', 'absolute'],
    ['tunnel', undefined],
  ] as const) {
    const { sockets, connections } = makeAttempt(5_000, { protocol: 'https', use, forwardMode: 'absolute' });
    sockets[0]?.emit('secureConnect');
    expect(connections[0]?.forwardMode).toBe(expected);
  }
});

test('attempt: only a target that is unreachable for CONNECT is tried in absolute form', () => {
  for (const [status, count] of [
    [403, 2],
    [502, 1],
    [429, 1],
  ]) {
    const { sockets, receive } = makeAttempt(5_000, { use: 'forward' });
    sockets[0]?.emit('connect');
    receive(`HTTP/1.1 ${status} No\r\n\r\n`);
    expect(sockets.length, `status ${status}`).toBe(count);
  }
});

test('attempt: a tunnel that CONNECT opens teaches nothing about forwards', () => {
  for (const [use, first] of [
    ['tunnel', 'absolute'],
    ['forward', 'direct'],
  ] as const) {
    const { sockets, receive, memory } = makeAttempt(5_000, {
      use,
      prepare: ({ forwardMode }) => {
        forwardMode.answered('other:80', { status: 200, fields: [], isRead: true }, 403);
      },
    });
    sockets[0]?.emit('connect');
    receive('HTTP/1.1 200 OK\r\n\r\n');
    expect(memory.forwardMode.first('other:80')).toBe(first);
  }
});

test('attempt: a warm connection that is not established yet has the rest of the time for it', () => {
  const slow = makeAttempt(5_000, { warm: { isConnected: false }, isConnecting: true });
  expect([slow.sockets.length, slow.written]).toEqual([1, []]);
  slow.clock.advance(4_000);
  expect(slow.failures).toMatchObject([{ fault: 'member-unreachable', phase: 'connect', ms: 4_000 }]);
  const tls = makeAttempt(5_000, { protocol: 'https', warm: { isConnected: false } });
  tls.clock.advance(4_000);
  expect(tls.failures, 'TCP was established before').toMatchObject([{ fault: 'member-silent' }]);
  const ready = makeAttempt(5_000, { warm: { isConnected: false } });
  ready.sockets[0]?.emit('connect');
  expect(ready.written).toHaveLength(1);
});

test('attempt: a warm connection sends its request at once, or when the member has answered the greeting', () => {
  const http = makeAttempt(5_000, { warm: { isConnected: true } });
  expect(http.written).toHaveLength(1);
  http.clock.advance(5_000);
  expect(http.failures).toMatchObject([{ fault: 'member-silent', phase: 'answer', ms: 5_000 }]);
  const handshake = new Socks5Handshake(undefined, undefined);
  const early = makeAttempt(5_000, { protocol: 'socks5', warm: { isConnected: true, handshake } });
  expect(early.written).toEqual([]);
  early.receive('\x05\x00');
  expect(early.written).toHaveLength(1);
  early.receive(ACCEPTED.slice(2));
  expect([early.connections.length, early.deadlines.size]).toEqual([1, 0]);
});

test.each(['tunnel', 'forward'] as const)('attempt: TCP keep-alive of a warm connection for a %s', (use) => {
  const keepAlive = vi.spyOn(Socket.prototype, 'setKeepAlive');
  makeAttempt(5_000, { use, warm: { isConnected: true } });
  expect(keepAlive.mock.calls).toEqual(use === 'forward' ? [[true, 30_000]] : []);
  keepAlive.mockRestore();
});

test('attempt: a trial waits for its replies twice as long as the slowest handshake took, then a plain one decides', () => {
  for (const [plainMs, mode] of [
    [99, 'plain'],
    [100, 'trial'],
  ] as const) {
    const { sockets, clock, receive, memory, connections, deadlines } = makeAttempt(5_000, {
      protocol: 'socks5',
      prepare: ({ pipelining }) => pipelining.accepted('m0', 'plain', 50),
    });
    clock.advance(40);
    sockets[0]?.emit('connect');
    clock.advance(90);
    expect([sockets.length, deadlines.size]).toEqual([1, 1]);
    clock.advance(10);
    expect([sockets.length, sockets[0]?.destroyed, deadlines.size]).toEqual([2, true, 1]);
    sockets[1]?.emit('connect');
    clock.advance(plainMs);
    receive(ACCEPTED.slice(0, 2));
    receive(ACCEPTED.slice(2));
    expect([connections.length, deadlines.size]).toEqual([1, 0]);
    clock.advance(1_000);
    expect(memory.pipelining.modeFor('m1', false), `a plain one took ${plainMs} ms`).toBe(mode);
  }
});

test('attempt: a trial has the time of its attempt, and a plain handshake after it is not limited like a trial', () => {
  const { sockets, clock, failures } = makeAttempt(1_000, { protocol: 'socks5', prepare: afterPlain });
  clock.advance(790);
  sockets[0]?.emit('connect');
  clock.advance(100);
  expect(sockets).toHaveLength(2);
  sockets[1]?.emit('connect');
  clock.advance(100);
  expect(failures).toEqual([]);
  clock.advance(10);
  expect(failures).toMatchObject([{ fault: 'member-silent', detail: 'answer timed out', ms: 1_000 }]);
  const short = makeAttempt(100, { protocol: 'socks5', prepare: afterPlain });
  short.clock.advance(70);
  short.sockets[0]?.emit('connect');
  short.clock.advance(30);
  expect([short.sockets.length, short.failures[0]?.ms]).toEqual([1, 100]);
});

test.each<[string, login: boolean, replies: string[], sockets: number, fault: string | undefined]>([
  ['an invalid reply', false, ['HTTP/1.1 400 Bad'], 2, undefined],
  ['a refused method without a login', false, ['\x05\xff'], 1, 'member-auth'],
  ['a refused login', true, ['\x05\x02\x01\x01'], 2, undefined],
  ['a refused request', false, ['\x05\x00\x05\x02'], 1, 'member-refused'],
  ['an unreachable target', false, ['\x05\x00\x05\x04'], 1, 'target-doubted'],
])('attempt: whether a trial is repeated in plain after %s', (_, login, replies, count, fault) => {
  const { sockets, receive, failures } = makeAttempt(5_000, {
    protocol: 'socks5',
    prepare: ({ pipelining, credentials }) => {
      const own = login ? { username: 'u', password: new Secret('p') } : undefined;
      if (own !== undefined) credentials.current = credentials.firstFor(own);
      pipelining.accepted('m0', 'plain', 10, login);
    },
  });
  sockets[0]?.emit('connect');
  for (const reply of replies) receive(reply);
  expect([sockets.length, failures[0]?.fault]).toEqual([count, fault]);
});

test('attempt: a warm connection that its member has closed is replaced once, one that has answered is not', () => {
  for (const event of ['end', 'close']) {
    const { sockets, failures } = makeAttempt(5_000, { warm: { isConnected: true } });
    sockets[0]?.emit(event);
    expect([sockets.length, sockets[0]?.destroyed, failures]).toEqual([2, true, []]);
    sockets[1]?.emit('connect');
    sockets[1]?.emit(event);
    expect([sockets.length, failures[0]?.fault]).toEqual([2, 'member-closed']);
    const answered = makeAttempt(5_000, { warm: { isConnected: true } });
    answered.receive('HTTP/1.1 ');
    answered.sockets[0]?.emit(event);
    expect([answered.sockets.length, answered.failures[0]?.fault]).toEqual([1, 'member-closed']);
  }
});

test('attempt: how long a new connection took to open is learned, that of a warm one is not', () => {
  const fresh = makeAttempt(5_000);
  fresh.clock.advance(30);
  fresh.sockets[0]?.emit('connect');
  fresh.clock.advance(50);
  fresh.receive('HTTP/1.1 200 OK\r\n\r\n');
  expect([fresh.memory.opening.averageMs, fresh.memory.pipelining.silenceMs]).toEqual([30, 100]);
  const warm = makeAttempt(5_000, { warm: { isConnected: false }, isConnecting: true });
  warm.clock.advance(30);
  warm.sockets[0]?.emit('connect');
  expect(warm.memory.opening.averageMs).toBeUndefined();
});

test('attempt: only an accepted CONNECT shows that members work with these credentials', () => {
  for (const forwardMode of ['direct', 'absolute'] as const) {
    const { sockets, receive, memory, connections } = makeAttempt(5_000, { use: 'forward', forwardMode });
    sockets[0]?.emit('connect');
    if (forwardMode === 'direct') receive('HTTP/1.1 200 OK\r\n\r\n');
    expect(connections).toMatchObject([{ forwardMode, isWarm: false, at: expect.any(Number) }]);
    expect(memory.credentials.isFaultOfMember(undefined)).toBe(forwardMode === 'direct');
  }
});

test('attempt: what is known of a connection in absolute form: the refused CONNECT, and whether it was warm', () => {
  const refused = makeAttempt(5_000, { use: 'forward' });
  refused.sockets[0]?.emit('connect');
  refused.receive('HTTP/1.1 405 No\r\n\r\n');
  refused.sockets[1]?.emit('connect');
  expect(refused.connections).toMatchObject([{ forwardMode: 'absolute', connectStatus: 405, isWarm: false }]);
  const warm = makeAttempt(5_000, { use: 'forward', forwardMode: 'absolute', warm: { isConnected: true } });
  expect(warm.connections).toMatchObject([
    { forwardMode: 'absolute', connectStatus: undefined, isWarm: true },
  ]);
  const tunnel = makeAttempt(5_000, { warm: { isConnected: true } });
  tunnel.receive('HTTP/1.1 200 OK\r\n\r\n');
  expect(tunnel.connections).toMatchObject([{ forwardMode: 'direct', isWarm: false }]);
});

test('attempt: how TLS to a member fails, by when TCP is established and how the connection closes', () => {
  for (const [isTcp, code, fault] of [
    [false, 'ECONNREFUSED', 'member-unreachable'],
    [false, 'EPROTO', 'member-unreachable'],
    [true, 'ECONNRESET', 'member-closed'],
    [true, 'EPROTO', 'member-protocol'],
    [true, 'closed', 'member-protocol'],
  ] as const) {
    const { sockets, failures } = makeAttempt(5_000, { protocol: 'https' });
    if (isTcp) sockets[0]?.emit('connect');
    if (code !== 'closed')
      Object.defineProperty(sockets[0], 'errored', { value: Object.assign(new Error(code), { code }) });
    sockets[0]?.emit('close');
    expect(failures).toEqual([
      { kind: 'failed', fault, phase: 'connect', detail: code, ms: 0, targetRefused: false, withheld: false },
    ]);
  }
  for (const [isTcp, fault, detail] of [
    [false, 'member-unreachable', 'connection timed out'],
    [true, 'member-silent', 'TLS handshake timed out'],
  ] as const) {
    const { sockets, failures, clock } = makeAttempt(5_000, { protocol: 'https' });
    if (isTcp) sockets[0]?.emit('connect');
    clock.advance(4_000);
    expect(failures).toMatchObject([{ fault, detail, phase: 'connect' }]);
  }
});

test('attempt: after its end, no event of its sockets has an effect', () => {
  const { sockets, failures, connections, clock, memory } = makeAttempt(5_000, { use: 'forward' });
  sockets[0]?.emit('connect');
  sockets[0]?.emit('close');
  for (const event of ['connect', 'end', 'close']) sockets[0]?.emit(event);
  sockets[0]?.emit('data', Buffer.from('HTTP/1.1 200 OK\r\n\r\n'));
  clock.advance(5_000);
  expect([failures.length, connections.length]).toEqual([1, 0]);
  expect(memory.credentials.isFaultOfMember(undefined)).toBe(false);
});

test('attempt: a handshake without a login does not show that members ask for one', () => {
  for (const hasLogin of [false, true]) {
    const { sockets, receive, memory, clock } = makeAttempt(5_000, {
      protocol: 'socks5',
      prepare: ({ credentials }) => {
        if (hasLogin)
          credentials.current = credentials.firstFor({ username: 'u', password: new Secret('p') });
      },
    });
    sockets[0]?.emit('connect');
    for (const reply of hasLogin ? ['\x05\x02', '\x01\x00'] : ['\x05\x00']) receive(reply);
    receive(ACCEPTED.slice(2));
    clock.advance(1_000);
    expect(memory.pipelining.modeFor('m1', true)).toBe(hasLogin ? 'trial' : 'plain');
  }
});
