/** The dialer over real sockets: members that misbehave in many ways, and clients that must not notice it. */
import dns from 'node:dns';
import { isIP, Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { OpenRequest } from '../../src/core/request-record.ts';
import type { DialRequest } from '../../src/dialer/contract.ts';
import { memberSockets } from '../../src/dialer/member-socket.ts';
import {
  closingBehavior,
  endlessBehavior,
  httpBehavior,
  openCanary,
  openMember,
  readUntil,
  refusingMember,
  resettingBehavior,
  sendingBehavior,
  silentBehavior,
  socks4Behavior,
  socks5Behavior,
  type TestMember,
  tricklingBehavior,
} from '../support/bad-members.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { collect, connectionOf, echo, failureOf, makeDialer, start, targetOf } from './make-dialer.ts';

const REQUEST: DialRequest = { target: targetOf('target.example:443'), routing: {}, use: 'tunnel' };

const openMemberSocket = memberSockets();

const lookups = vi.spyOn(dns, 'lookup');
beforeEach(() => void lookups.mockClear());
afterEach(() => {
  const names = lookups.mock.calls.map(([host]) => host).filter((host) => isIP(host) === 0);
  expect(names, 'names that were resolved here').toEqual([]);
});

const GOOD: readonly [string, () => Promise<TestMember>][] = [
  ['http', () => openMember('http', httpBehavior())],
  ['http that answers HTTP/1.0 200', () => openMember('http', httpBehavior('HTTP/1.0 200 OK\r\n\r\n'))],
  [
    'http that answers 204 with lengths',
    () =>
      openMember(
        'http',
        httpBehavior('HTTP/1.1 204 No\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n'),
      ),
  ],
  [
    'http that sends 100 first',
    () => openMember('http', httpBehavior('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n')),
  ],
  ['http byte by byte', () => openMember('http', tricklingBehavior('HTTP/1.1 200 OK\r\nVia: x\r\n\r\n'))],
  ['http inside TLS', () => openMember('https', httpBehavior())],
  ['socks5', () => openMember('socks5', socks5Behavior())],
  [
    'socks5 byte by byte, bound to a name',
    () =>
      openMember(
        'socks5',
        socks5Behavior({ trickle: true, bound: Buffer.from('\x03\x04host\x00\x50', 'latin1') }),
      ),
  ],
  [
    'socks5 bound to IPv6',
    () => openMember('socks5', socks5Behavior({ bound: Buffer.from([4, ...new Array<number>(18).fill(7)]) })),
  ],
  ['socks4', () => openMember('socks4', socks4Behavior())],
];

test.each(GOOD)(
  'dialer: a tunnel through a member that speaks %s carries bytes in both directions',
  async (_, open) => {
    const { dial, pool } = makeDialer([{ id: 'm1', at: await open() }]);
    const connection = connectionOf(await dial('target.example:443'));
    expect(connection).toMatchObject({
      lease: { member: 'm1', source: 'city' },
      forwardMode: 'direct',
      reused: false,
      attempts: 1,
    });
    await echo(connection, 'hello');
    connection.end({ cut: false });
    expect(pool.reports.map(({ kind }) => kind)).toEqual(['accepted', 'closed']);
  },
);

const BAD: readonly [string, () => Promise<TestMember>, fault: string][] = [
  ['refuses the connection', () => refusingMember(), 'member-unreachable'],
  ['closes after the request', () => openMember('http', closingBehavior), 'member-closed'],
  ['resets after the request', () => openMember('http', resettingBehavior), 'member-closed'],
  ['closes at once', () => openMember('http', (socket) => void socket.resume().end()), 'member-closed'],
  ['never answers', () => openMember('http', silentBehavior), 'member-silent'],
  [
    'never finishes its head',
    () => openMember('http', sendingBehavior('HTTP/1.1 200 OK\r\nVia: x\r\n')),
    'member-silent',
  ],
  ['sends an endless head', () => openMember('http', endlessBehavior), 'member-protocol'],
  ['speaks another protocol', () => openMember('http', sendingBehavior('SSH-2.0-x\r\n')), 'member-protocol'],
  [
    'speaks SOCKS instead of HTTP',
    () => openMember('http', sendingBehavior(Buffer.from([5, 0]))),
    'member-protocol',
  ],
  ['speaks no TLS', () => openMember('https', sendingBehavior('SSH-2.0-x\r\n'), false), 'member-protocol'],
  ['closes during the TLS handshake', () => openMember('https', closingBehavior, false), 'member-closed'],
  ['is silent during the TLS handshake', () => openMember('https', silentBehavior, false), 'member-silent'],
  ['is silent inside TLS', () => openMember('https', silentBehavior), 'member-silent'],
  ['answers 403', () => openMember('http', httpBehavior('HTTP/1.1 403 No\r\n\r\n')), 'member-refused'],
  ['answers 407', () => openMember('http', httpBehavior('HTTP/1.1 407 Who\r\n\r\n')), 'member-auth'],
  ['answers 502', () => openMember('http', httpBehavior('HTTP/1.1 502 Bad\r\n\r\n<html>')), 'target-doubted'],
  ['answers 504', () => openMember('http', httpBehavior('HTTP/1.0 504 Late\r\n\r\n')), 'target-doubted'],
  [
    'speaks HTTP instead of SOCKS5',
    () => openMember('socks5', sendingBehavior('HTTP/1.1 400 Bad\r\n\r\n')),
    'member-protocol',
  ],
  [
    'speaks SOCKS4 instead of 5',
    () => openMember('socks5', sendingBehavior(Buffer.from([4, 0x5b]))),
    'member-protocol',
  ],
  [
    'chooses a method that was not offered',
    () => openMember('socks5', sendingBehavior(Buffer.from([5, 1]))),
    'member-protocol',
  ],
  [
    'requires a SOCKS5 login',
    () => openMember('socks5', socks5Behavior({ login: { username: 'a', password: 'b' } })),
    'member-auth',
  ],
  ['replies 1 in SOCKS5', () => openMember('socks5', socks5Behavior({ reply: 1 })), 'member-refused'],
  ['replies 4 in SOCKS5', () => openMember('socks5', socks5Behavior({ reply: 4 })), 'target-doubted'],
  ['never answers in SOCKS5', () => openMember('socks5', silentBehavior), 'member-silent'],
  ['closes in SOCKS5', () => openMember('socks5', closingBehavior), 'member-closed'],
  ['refuses in SOCKS4', () => openMember('socks4', socks4Behavior(0x5b)), 'target-doubted'],
  ['requires identd in SOCKS4', () => openMember('socks4', socks4Behavior(0x5d)), 'member-auth'],
];

/** Failures that no target can cause. */
const OWN = new Set(['member-unreachable', 'member-protocol', 'member-auth']);

test.each(BAD)('dialer: a member that %s is replaced and blamed', async (what, openBad, fault) => {
  const blame = OWN.has(fault) || what.endsWith('TLS handshake') ? 'member' : 'member-for-target';
  const good = await openMember('http', httpBehavior());
  const bad = await openBad();
  const { dial, pool, bus } = makeDialer(
    [
      { id: 'bad', at: bad },
      { id: 'good', at: good },
    ],
    { clock: new LoopClock(), attemptTimeoutMs: 4_000 },
  );
  const attempts = collect(bus, 'dial.attempted');
  const ended = collect(bus, 'dial.ended');
  const connection = connectionOf(await dial('target.example:443'));
  expect(connection).toMatchObject({ lease: { member: 'good' }, attempts: 2 });
  await echo(connection, 'hello');
  expect(pool.blames()).toEqual([`bad ${fault} ${blame}`]);
  expect(attempts.map(({ member, outcome }) => `${member} ${outcome}`).sort()).toEqual(
    [`bad ${fault}`, 'good accepted'].sort(),
  );
  expect(ended).toMatchObject([
    { outcome: 'accepted', attempts: 2, member: 'good', target: 'target.example:443' },
  ]);
  await until('the connection to the bad member is closed', () => bad.open === 0);
});

test('dialer: a member without an answer fails after the connection timeout', async () => {
  const good = await openMember('http', httpBehavior());
  const { dial, pool } = makeDialer(
    [
      { id: 'void', at: { protocol: 'http', host: '192.0.2.1', port: 1 } },
      { id: 'good', at: good },
    ],
    {
      clock: new LoopClock(),
      attemptTimeoutMs: 4_000,
      openSocket: (member, use) => (member.port === 1 ? new Socket() : openMemberSocket(member, use)),
    },
  );
  expect(connectionOf(await dial('target.example:443')).lease.member).toBe('good');
  expect(pool.blames()).toEqual(['void member-unreachable member']);
});

test('dialer: never connects to the target directly when all members fail', async () => {
  const canary = await openCanary();
  const members = [
    { id: 'm1', at: await refusingMember() },
    { id: 'm2', at: await openMember('http', closingBehavior) },
    { id: 'm3', at: await openMember('socks5', socks5Behavior({ reply: 1 })) },
  ];
  const { dial } = makeDialer(members, { waitForMemberMs: 0 });
  const target = `127.0.0.1:${canary.port}`;
  expect(failureOf(await dial(target)).code).toBe('members-failed');
  expect(failureOf(await dial(target, { use: 'forward' })).code).toBe('members-failed');
  expect(canary.reached).toBe(0);
});

test('dialer: fast failures do not count, up to ten attempts', async () => {
  const refusing = await Promise.all(Array.from({ length: 12 }, () => refusingMember()));
  const members = refusing.map((at, index) => ({ id: `m${index}`, at }));
  const good = await openMember('http', httpBehavior());
  const lucky = makeDialer([...members.slice(0, 9), { id: 'good', at: good }]);
  expect(connectionOf(await lucky.dial('target.example:443'))).toMatchObject({
    lease: { member: 'good' },
    attempts: 10,
  });
  const unlucky = makeDialer(members);
  const failure = failureOf(await unlucky.dial('target.example:443'));
  expect(failure).toMatchObject({ code: 'members-failed', attempts: 10 });
  expect(failure.reason).toMatch(/^10 members tried in \d+ ms: 10 could not be reached$/);
});

test('dialer: slow failures are limited by dial.attempts', async () => {
  const silent = await Promise.all(Array.from({ length: 4 }, () => openMember('http', silentBehavior)));
  const members = silent.map((at, index) => ({ id: `m${index}`, at }));
  const { dial } = makeDialer(members, { clock: new LoopClock(), attempts: 2, attemptTimeoutMs: 4_000 });
  expect(failureOf(await dial('target.example:443'))).toMatchObject({ code: 'members-failed', attempts: 2 });
  expect(silent.map(({ accepted }) => accepted)).toEqual([1, 1, 0, 0]);
});

test('dialer: running attempts are limited by dial.attempts', async () => {
  const good = await openMember('http', httpBehavior());
  const members = [
    { id: 'silent', at: await openMember('http', silentBehavior) },
    { id: 'good', at: good },
  ];
  const clock = new LoopClock();
  const { dial } = makeDialer(members, { clock, attempts: 1, hedgeAfter: 40, attemptTimeoutMs: 4_000 });
  expect(failureOf(await dial('target.example:443'))).toMatchObject({ code: 'members-failed', attempts: 1 });
  expect(good.accepted).toBe(0);
});

test.each([
  ['waitForMember', 30_000, 11_000],
  ['the deadline', 5_000, 1_000],
])('dialer: what remains of %s limits the next wait for a member', async (_, deadlineMs, leftMs) => {
  const clock = ManualClock.dayOld();
  const { dial, pool } = makeDialer([], { clock, deadlineMs, waitForMemberMs: 15_000 });
  const result = dial('target.example:443');
  clock.advance(4_000);
  pool.add({ id: 'm1', at: await refusingMember() });
  await until('the dial waits again', () => pool.requests.length === 2);
  clock.advance(30_000);
  expect(failureOf(await result).code).toBe('deadline');
  expect(pool.requests[1]?.waitMs).toBe(leftMs);
});

test('dialer: the deadline ends the dial and blames nobody for the running attempt', async () => {
  const silent = await openMember('http', silentBehavior);
  const { dial, pool } = makeDialer([{ id: 'm1', at: silent }], {
    clock: new LoopClock(),
    deadlineMs: 4_000,
  });
  expect(failureOf(await dial('target.example:443'))).toMatchObject({ code: 'deadline', attempts: 1 });
  expect(pool.blames()).toEqual(['m1 client-gone nobody']);
  await until('the attempt is closed', () => silent.open === 0);
});

test('dialer: cancel ends every attempt at once and blames nobody', async () => {
  const silent = await openMember('http', (socket, record) => void socket.on('data', record));
  const { dialer, pool, bus } = makeDialer([{ id: 'm1', at: silent }]);
  const attempts = collect(bus, 'dial.attempted');
  const record = new OpenRequest(ManualClock.dayOld(), '192.0.2.7');
  const dialing = start(dialer, { ...REQUEST, record });
  await until('the member was asked', () => silent.received.length === 1);
  dialing.cancel();
  dialing.cancel();
  expect(failureOf(await dialing.result).code).toBe('client-gone');
  await until('the attempt is closed', () => silent.open === 0);
  expect(pool.blames()).toEqual(['m1 client-gone nobody']);
  expect(attempts).toMatchObject([{ member: 'm1', outcome: 'cancelled', phase: 'answer', blame: 'nobody' }]);
  expect(record.attempts).toMatchObject([{ member: 'm1', code: 'cancelled', ms: 0 }]);
});

test('dialer: cancel during the wait for a member withdraws the request at the pool', async () => {
  const { dialer, pool } = makeDialer([]);
  const dialing = start(dialer, REQUEST);
  await until('the dial waits', () => pool.waiting === 1);
  dialing.cancel();
  expect(failureOf(await dialing.result).code).toBe('client-gone');
  expect(pool.waiting).toBe(0);
});

test('dialer: a waiting dial uses the member that joins', async () => {
  const { dial, pool } = makeDialer([]);
  const result = dial('target.example:443');
  await until('the dial waits', () => pool.waiting === 1);
  pool.add({ id: 'late', at: await openMember('http', httpBehavior()) });
  expect(connectionOf(await result).lease.member).toBe('late');
});

test("dialer: an empty pool fails the dial with the pool's reason and retry time", async () => {
  const { dial, pool } = makeDialer([]);
  const result = dial('target.example:443');
  await until('the dial waits', () => pool.waiting === 1);
  pool.refuseAll();
  expect(failureOf(await result)).toEqual({
    code: 'pool-empty',
    reason: 'no member',
    attempts: 0,
    retryAfterMs: 4_000,
    sources: [],
  });
});

test("dialer: bytes that follow the member's answer reach the client", async () => {
  const chatty = httpBehavior('HTTP/1.1 200 OK\r\n\r\n220 welcome\r\n');
  const http = makeDialer([{ id: 'm1', at: await openMember('http', chatty) }]);
  await echo(connectionOf(await http.dial('target.example:25')), 'EHLO', '220 welcome\r\nEHLO');
  const socks = await openMember('socks5', socks5Behavior({ early: '220 welcome\r\n' }));
  const socks5 = makeDialer([{ id: 'm1', at: socks }]);
  await echo(connectionOf(await socks5.dial('target.example:25')), 'EHLO', '220 welcome\r\nEHLO');
});

test('dialer: bytes that arrive before the first read are not lost', async () => {
  const at = await openMember('http', async (socket, record) => {
    record(await readUntil(socket, '\r\n\r\n'));
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    setImmediate(() => socket.write('220 late welcome\r\n'));
    socket.pipe(socket);
  });
  const { dial } = makeDialer([{ id: 'm1', at }]);
  const connection = connectionOf(await dial('target.example:25'));
  await until('the welcome is there', () => connection.socket.bytesRead > 'HTTP/1.1 200 OK\r\n\r\n'.length);
  await echo(connection, 'EHLO', '220 late welcome\r\nEHLO');
});

test("dialer: a probe's connection is paused until the probe reads it", async () => {
  const { protocol, host, port } = await openMember('http', httpBehavior());
  const { dialer } = makeDialer([]);
  const address = { protocol, host, port, exit: host };
  const lease = { id: 1, member: 'm1', source: 'city', ...address, waitedMs: 0, doubtful: true };
  const task = { lease, target: targetOf('target.example:25'), use: 'tunnel', timeoutMs: 60_000 } as const;
  const result = await dialer.attempt(task, new AbortController().signal);
  if (result.kind !== 'accepted') throw new Error(`the attempt ${result.kind}`);
  expect(result.connection.socket.isPaused()).toBe(true);
  result.connection.socket.destroy();
});

test("dialer: a connection that the member half-closed still carries the client's bytes", async () => {
  let received = '';
  const at = await openMember('http', async (socket, record) => {
    record(await readUntil(socket, '\r\n\r\n'));
    socket.end('HTTP/1.1 200 OK\r\n\r\n');
    socket.on('data', (bytes) => {
      received += bytes.toString();
    });
  });
  const { dial } = makeDialer([{ id: 'm1', at }]);
  const { socket } = connectionOf(await dial('target.example:443'));
  let ended = false;
  socket.once('end', () => {
    ended = true;
  });
  socket.resume();
  await until('the member has ended', () => ended);
  socket.write('still here');
  await until('the member has received it', () => received === 'still here');
});

test('dialer: close leaves no timer armed', async () => {
  const clock = ManualClock.dayOld();
  const silent = await openMember('http', silentBehavior);
  const { dialer, dial, pool } = makeDialer([{ id: 'good', at: await openMember('http', httpBehavior()) }], {
    clock,
  });
  connectionOf(await dial('target.example:80', { use: 'forward' })).end({ cut: false, keep: true });
  pool.members = [{ id: 'silent', at: silent }];
  const dialing = start(dialer, REQUEST);
  await until('the member was asked', () => silent.open === 1);
  expect(clock.armedCount).toBe(1);
  await dialer.close();
  expect([clock.armedCount, failureOf(await dialing.result).code]).toEqual([0, 'shutting-down']);
});

test('dialer: a successful dial leaves no timer armed', async () => {
  const clock = ManualClock.dayOld();
  const { dial } = makeDialer([{ id: 'm1', at: await openMember('http', httpBehavior()) }], {
    clock,
    hedgeAfter: 500,
  });
  connectionOf(await dial('target.example:443'));
  expect(clock.armedCount).toBe(0);
});

test('dialer: dial.ended reports the wait for a member with every outcome', async () => {
  const clock = ManualClock.dayOld();
  const { dial, pool, bus } = makeDialer([], { clock, deadlineMs: 5_000 });
  const ended = collect(bus, 'dial.ended');
  const served = dial('target.example:443');
  clock.advance(700);
  pool.add({ id: 'late', at: await openMember('http', httpBehavior()), remainingMs: 9_000 });
  connectionOf(await served);
  pool.members = [];
  const refused = dial('target.example:443');
  clock.advance(400);
  pool.refuseAll();
  failureOf(await refused);
  const tooLate = dial('target.example:443');
  clock.advance(6_000);
  expect(failureOf(await tooLate).code).toBe('deadline');
  expect(ended).toMatchObject([
    { outcome: 'accepted', waitedMs: 700, ms: 700, remainingMs: 9_000, source: 'city', member: 'late' },
    { outcome: 'pool-empty', waitedMs: 400, ms: 400, attempts: 0 },
    { outcome: 'deadline', waitedMs: 5_000, ms: 5_000 },
  ]);
});

test('dialer: works with a pool that answers asynchronously', async () => {
  const silent = await openMember('http', silentBehavior);
  const { dial, dialer, pool } = makeDialer(
    [
      { id: 'dead', at: await refusingMember() },
      { id: 'silent', at: silent },
      { id: 'good', at: await openMember('http', httpBehavior()) },
    ],
    { clock: new LoopClock(), hedgeAfter: 40 },
  );
  pool.remote = true;
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'good' },
    attempts: 3,
  });
  const dialing = start(dialer, REQUEST);
  dialing.cancel();
  expect(failureOf(await dialing.result).code).toBe('client-gone');
  await until('the late lease is released', () => pool.blames().includes('dead client-gone nobody'));
});

test('dialer: nothing is proven about a member that fails and then succeeds in the same dial', async () => {
  let asked = 0;
  const at = await openMember('http', async (socket, record) => {
    asked += 1;
    await httpBehavior(asked === 1 ? 'HTTP/1.1 502 Bad\r\n\r\n' : undefined)(socket, record);
  });
  const { dial, pool } = makeDialer([{ id: 'm1', at }]);
  pool.repeatsMembers = true;
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'm1' },
    attempts: 2,
  });
  expect(pool.blames()).toEqual(['m1 target-doubted unclear']);
});

test('dialer: close ends running dials and fails later ones', async () => {
  const silent = await openMember('http', silentBehavior);
  const { dialer, pool } = makeDialer([{ id: 'm1', at: silent }]);
  const dialing = start(dialer, REQUEST);
  await until('the member was asked', () => silent.open === 1);
  await dialer.close();
  await dialer.close();
  expect(failureOf(await dialing.result).code).toBe('shutting-down');
  expect(failureOf(await start(dialer, REQUEST).result).code).toBe('shutting-down');
  expect([dialer.openCount, pool.openLeases]).toEqual([0, 0]);
  await until('the attempt is closed', () => silent.open === 0);
});

test('dialer: a member whose protocol cannot address the target is skipped without blame', async () => {
  const socks4 = await openMember('socks4', socks4Behavior());
  const http = await openMember('http', httpBehavior());
  const { dial, pool } = makeDialer([
    { id: 'm4', at: socks4 },
    { id: 'm1', at: http },
  ]);
  const connection = connectionOf(await dial('[2001:db8::1]:443'));
  expect(connection.lease.member).toBe('m1');
  expect(pool.blames()).toEqual(['m4 member-incapable nobody']);
  expect(socks4.accepted).toBe(0);
  expect(http.received.toString()).toBe(
    'CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n',
  );
});

test('dialer: closeConnections closes only the connections of these leases', async () => {
  const at = await openMember('http', httpBehavior());
  const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
  const first = connectionOf(await dial('target.example:443'));
  const second = connectionOf(await dial('target.example:443'));
  dialer.closeConnections([1, 77]);
  expect([first.socket.destroyed, second.socket.destroyed]).toEqual([true, false]);
  second.end({ cut: false });
  dialer.closeConnections([2]);
  expect(second.socket.destroyed, 'an ended connection is its holder’s').toBe(false);
});

test('dialer: attempts for all clients raise the budget of one whose requests fail', async () => {
  const { dial, connections } = makeDialer([{ id: 'm1', at: await openMember('http', httpBehavior()) }]);
  const forward = { use: 'forward', routing: { client: 'mallory' } } as const;
  const mayRetry = async () => (await dial('target.example:80', { ...forward, avoid: ['m0'] })).ok;
  let cuts = 0;
  for (; await mayRetry(); cuts += 1) connections.at(-1)?.end({ cut: true });
  expect(cuts, 'a burst of 100, and a tenth of the attempts').toBe(110);
  for (let dials = 0; dials < 10; dials += 1) await dial('target.example:80');
  expect(await mayRetry()).toBe(true);
});
