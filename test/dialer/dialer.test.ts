/**
 * The dialer over real sockets: members that misbehave in every way there is, and clients that must not notice.
 */
import dns from 'node:dns';
import { isIP, Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { DialRequest } from '../../src/dialer/dial.ts';
import { memberSockets } from '../../src/dialer/member-socket.ts';
import {
  closingManner,
  endlessManner,
  httpManner,
  openCanary,
  openMember,
  readUntil,
  refusingMember,
  resettingManner,
  sayingManner,
  silentManner,
  socks4Manner,
  socks5Manner,
  type TestMember,
  tricklingManner,
} from '../support/bad-members.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { collect, echo, failureOf, makeDialer, start, targetOf, wayOf } from './make-dialer.ts';

const REQUEST: DialRequest = { target: targetOf('target.example:443'), routing: {}, use: 'tunnel' };

const openMemberSocket = memberSockets();

const lookups = vi.spyOn(dns, 'lookup');
beforeEach(() => void lookups.mockClear());
afterEach(() => {
  const names = lookups.mock.calls.map(([host]) => host).filter((host) => isIP(host) === 0);
  expect(names, 'names that were resolved here').toEqual([]);
});

const GOOD: readonly [string, () => Promise<TestMember>][] = [
  ['http', () => openMember('http', httpManner())],
  ['http that answers HTTP/1.0 200', () => openMember('http', httpManner('HTTP/1.0 200 OK\r\n\r\n'))],
  [
    'http that answers 204 with lengths',
    () =>
      openMember(
        'http',
        httpManner('HTTP/1.1 204 No\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n'),
      ),
  ],
  [
    'http that says 100 first',
    () => openMember('http', httpManner('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n')),
  ],
  ['http byte by byte', () => openMember('http', tricklingManner('HTTP/1.1 200 OK\r\nVia: x\r\n\r\n'))],
  ['http inside TLS', () => openMember('https', httpManner())],
  ['socks5', () => openMember('socks5', socks5Manner())],
  [
    'socks5 byte by byte, bound to a name',
    () =>
      openMember(
        'socks5',
        socks5Manner({ trickle: true, bound: Buffer.from('\x03\x04host\x00\x50', 'latin1') }),
      ),
  ],
  [
    'socks5 bound to IPv6',
    () => openMember('socks5', socks5Manner({ bound: Buffer.from([4, ...new Array<number>(18).fill(7)]) })),
  ],
  ['socks4', () => openMember('socks4', socks4Manner())],
];

test.each(GOOD)(
  'dialer: a tunnel through a member that speaks %s carries bytes both ways',
  async (_, open) => {
    const { dial, pool } = makeDialer([{ id: 'm1', at: await open() }]);
    const way = wayOf(await dial('target.example:443'));
    expect(way).toMatchObject({
      member: 'm1',
      source: 'city',
      forwardMode: 'direct',
      reused: false,
      attempts: 1,
    });
    await echo(way, 'hello');
    way.end({ cut: false });
    expect(pool.reports.map(({ kind }) => kind)).toEqual(['accepted', 'closed']);
  },
);

const BAD: readonly [string, () => Promise<TestMember>, fault: string][] = [
  ['refuses the connection', () => refusingMember(), 'member-unreachable'],
  ['closes once it was asked', () => openMember('http', closingManner), 'member-closed'],
  ['resets once it was asked', () => openMember('http', resettingManner), 'member-closed'],
  ['closes at once', () => openMember('http', (socket) => void socket.resume().end()), 'member-closed'],
  ['never answers', () => openMember('http', silentManner), 'member-silent'],
  [
    'never finishes its head',
    () => openMember('http', sayingManner('HTTP/1.1 200 OK\r\nVia: x\r\n')),
    'member-silent',
  ],
  ['sends an endless head', () => openMember('http', endlessManner), 'member-protocol'],
  ['speaks something else', () => openMember('http', sayingManner('SSH-2.0-x\r\n')), 'member-protocol'],
  [
    'speaks SOCKS instead of HTTP',
    () => openMember('http', sayingManner(Buffer.from([5, 0]))),
    'member-protocol',
  ],
  ['speaks no TLS', () => openMember('https', sayingManner('SSH-2.0-x\r\n'), false), 'member-protocol'],
  ['closes before TLS stands', () => openMember('https', closingManner, false), 'member-closed'],
  ['is silent before TLS stands', () => openMember('https', silentManner, false), 'member-silent'],
  ['is silent inside TLS', () => openMember('https', silentManner), 'member-silent'],
  ['answers 403', () => openMember('http', httpManner('HTTP/1.1 403 No\r\n\r\n')), 'member-refused'],
  ['answers 407', () => openMember('http', httpManner('HTTP/1.1 407 Who\r\n\r\n')), 'member-auth'],
  ['answers 502', () => openMember('http', httpManner('HTTP/1.1 502 Bad\r\n\r\n<html>')), 'target-doubted'],
  ['answers 504', () => openMember('http', httpManner('HTTP/1.0 504 Late\r\n\r\n')), 'target-doubted'],
  [
    'speaks HTTP instead of SOCKS5',
    () => openMember('socks5', sayingManner('HTTP/1.1 400 Bad\r\n\r\n')),
    'member-protocol',
  ],
  [
    'speaks SOCKS4 instead of 5',
    () => openMember('socks5', sayingManner(Buffer.from([4, 0x5b]))),
    'member-protocol',
  ],
  [
    'chooses a method that was not offered',
    () => openMember('socks5', sayingManner(Buffer.from([5, 1]))),
    'member-protocol',
  ],
  [
    'wants a SOCKS5 login',
    () => openMember('socks5', socks5Manner({ login: { username: 'a', password: 'b' } })),
    'member-auth',
  ],
  ['replies 1 in SOCKS5', () => openMember('socks5', socks5Manner({ reply: 1 })), 'member-refused'],
  ['replies 4 in SOCKS5', () => openMember('socks5', socks5Manner({ reply: 4 })), 'target-doubted'],
  ['never answers in SOCKS5', () => openMember('socks5', silentManner), 'member-silent'],
  ['closes in SOCKS5', () => openMember('socks5', closingManner), 'member-closed'],
  ['refuses in SOCKS4', () => openMember('socks4', socks4Manner(0x5b)), 'target-doubted'],
  ['wants an identd in SOCKS4', () => openMember('socks4', socks4Manner(0x5d)), 'member-auth'],
];

test.each(BAD)(
  'dialer: a member that %s is replaced unnoticed and is at fault',
  async (_, openBad, fault) => {
    const good = await openMember('http', httpManner());
    const bad = await openBad();
    const { dial, pool, bus } = makeDialer(
      [
        { id: 'bad', at: bad },
        { id: 'good', at: good },
      ],
      { attemptTimeoutMs: 400 },
    );
    const attempts = collect(bus, 'dial.attempted');
    const ended = collect(bus, 'dial.ended');
    const way = wayOf(await dial('target.example:443'));
    expect(way).toMatchObject({ member: 'good', attempts: 2 });
    await echo(way, 'hello');
    expect(pool.verdicts()).toEqual([`bad ${fault} member`]);
    expect(attempts.map(({ member, outcome }) => `${member} ${outcome}`).sort()).toEqual(
      [`bad ${fault}`, 'good accepted'].sort(),
    );
    expect(ended).toMatchObject([
      { outcome: 'accepted', attempts: 2, member: 'good', target: 'target.example:443' },
    ]);
    await until('the bad member is left', () => bad.open === 0);
  },
);

test('dialer: a member that nobody answers at is given up within the time for connecting', async () => {
  const good = await openMember('http', httpManner());
  const { dial, pool } = makeDialer(
    [
      { id: 'void', at: { protocol: 'http', host: '192.0.2.1', port: 1 } },
      { id: 'good', at: good },
    ],
    {
      attemptTimeoutMs: 200,
      openSocket: (member, use) => (member.port === 1 ? new Socket() : openMemberSocket(member, use)),
    },
  );
  expect(wayOf(await dial('target.example:443')).member).toBe('good');
  expect(pool.verdicts()).toEqual(['void member-unreachable member']);
});

test('dialer: never connects to the target itself, whatever fails', async () => {
  const canary = await openCanary();
  const members = [
    { id: 'm1', at: await refusingMember() },
    { id: 'm2', at: await openMember('http', closingManner) },
    { id: 'm3', at: await openMember('socks5', socks5Manner({ reply: 1 })) },
  ];
  const { dial } = makeDialer(members, { waitForMemberMs: 0 });
  const target = `127.0.0.1:${canary.port}`;
  expect(failureOf(await dial(target)).code).toBe('members-failed');
  expect(failureOf(await dial(target, { use: 'forward' })).code).toBe('members-failed');
  expect(canary.reached).toBe(0);
});

test('dialer: attempts that fail at once do not count, up to ten in all', async () => {
  const refusing = await Promise.all(Array.from({ length: 12 }, () => refusingMember()));
  const members = refusing.map((at, index) => ({ id: `m${index}`, at }));
  const good = await openMember('http', httpManner());
  const lucky = makeDialer([...members.slice(0, 9), { id: 'good', at: good }]);
  expect(wayOf(await lucky.dial('target.example:443'))).toMatchObject({ member: 'good', attempts: 10 });
  const unlucky = makeDialer(members);
  const failure = failureOf(await unlucky.dial('target.example:443'));
  expect(failure).toMatchObject({ code: 'members-failed', attempts: 10 });
  expect(failure.reason).toMatch(/^10 members tried in \d+ ms: 10 could not be reached$/);
});

test('dialer: attempts that fail slowly are as many as configured', async () => {
  const silent = await Promise.all(Array.from({ length: 4 }, () => openMember('http', silentManner)));
  const members = silent.map((at, index) => ({ id: `m${index}`, at }));
  const { dial } = makeDialer(members, { attempts: 2, attemptTimeoutMs: 120 });
  expect(failureOf(await dial('target.example:443'))).toMatchObject({ code: 'members-failed', attempts: 2 });
  expect(silent.map(({ taken }) => taken)).toEqual([1, 1, 0, 0]);
});

test('dialer: the deadline ends everything, and costs the member under way nothing', async () => {
  const silent = await openMember('http', silentManner);
  const { dial, pool } = makeDialer([{ id: 'm1', at: silent }], { deadlineMs: 150 });
  expect(failureOf(await dial('target.example:443'))).toMatchObject({ code: 'deadline', attempts: 1 });
  expect(pool.verdicts()).toEqual(['m1 client-gone nobody']);
  await until('the attempt is closed', () => silent.open === 0);
});

test('dialer: a client that leaves ends every attempt at once and blames nobody', async () => {
  const silent = await openMember('http', silentManner);
  const { dialer, pool } = makeDialer([{ id: 'm1', at: silent }]);
  const dialing = start(dialer, REQUEST);
  await until('the member was asked', () => silent.open === 1);
  dialing.cancel();
  dialing.cancel();
  expect(failureOf(await dialing.result).code).toBe('client-gone');
  await until('the attempt is closed', () => silent.open === 0);
  expect(pool.verdicts()).toEqual(['m1 client-gone nobody']);
});

test('dialer: a client that leaves while it waits for a member gives up its place', async () => {
  const { dialer, pool } = makeDialer([]);
  const dialing = start(dialer, REQUEST);
  await until('the dial waits', () => pool.waiting === 1);
  dialing.cancel();
  expect(failureOf(await dialing.result).code).toBe('client-gone');
  expect(pool.waiting).toBe(0);
});

test('dialer: a client that waits is served by the member that comes', async () => {
  const { dial, pool } = makeDialer([]);
  const result = dial('target.example:443');
  await until('the dial waits', () => pool.waiting === 1);
  pool.add({ id: 'late', at: await openMember('http', httpManner()) });
  expect(wayOf(await result).member).toBe('late');
});

test('dialer: an empty pool is told with what the pool knows', async () => {
  const { dial, pool } = makeDialer([]);
  const result = dial('target.example:443');
  await until('the dial waits', () => pool.waiting === 1);
  pool.giveUp();
  expect(failureOf(await result)).toEqual({
    code: 'pool-empty',
    reason: 'nobody there',
    attempts: 0,
    retryAfterMs: 4_000,
    sources: [],
  });
});

test('dialer: what comes with the answer is kept for the client', async () => {
  const chatty = httpManner('HTTP/1.1 200 OK\r\n\r\n220 welcome\r\n');
  const http = makeDialer([{ id: 'm1', at: await openMember('http', chatty) }]);
  await echo(wayOf(await http.dial('target.example:25')), 'EHLO', '220 welcome\r\nEHLO');
  const socks = await openMember('socks5', socks5Manner({ early: '220 welcome\r\n' }));
  const socks5 = makeDialer([{ id: 'm1', at: socks }]);
  await echo(wayOf(await socks5.dial('target.example:25')), 'EHLO', '220 welcome\r\nEHLO');
});

test('dialer: what comes before anybody reads is not lost', async () => {
  const at = await openMember('http', async (socket, hear) => {
    hear(await readUntil(socket, '\r\n\r\n'));
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    setImmediate(() => socket.write('220 late welcome\r\n'));
    socket.pipe(socket);
  });
  const { dial } = makeDialer([{ id: 'm1', at }]);
  const way = wayOf(await dial('target.example:25'));
  await until('the welcome is there', () => way.socket.bytesRead > 'HTTP/1.1 200 OK\r\n\r\n'.length);
  await echo(way, 'EHLO', '220 late welcome\r\nEHLO');
});

test('dialer: the way can be half-closed by the member, and still carries what the client sends', async () => {
  let heard = '';
  const at = await openMember('http', async (socket, hear) => {
    hear(await readUntil(socket, '\r\n\r\n'));
    socket.end('HTTP/1.1 200 OK\r\n\r\n');
    socket.on('data', (bytes) => {
      heard += bytes.toString();
    });
  });
  const { dial } = makeDialer([{ id: 'm1', at }]);
  const { socket } = wayOf(await dial('target.example:443'));
  let ended = false;
  socket.once('end', () => {
    ended = true;
  });
  socket.resume();
  await until('the member has ended', () => ended);
  socket.write('still here');
  await until('the member hears it', () => heard === 'still here');
});

test('dialer: nothing is left armed once it is closed, whatever was under way', async () => {
  const clock = new ManualClock();
  const silent = await openMember('http', silentManner);
  const { dialer, dial, pool } = makeDialer([{ id: 'good', at: await openMember('http', httpManner()) }], {
    clock,
  });
  wayOf(await dial('target.example:80', { use: 'forward' })).end({ cut: false, keep: true });
  pool.members = [{ id: 'silent', at: silent }];
  const dialing = start(dialer, REQUEST);
  await until('the member was asked', () => silent.open === 1);
  expect(clock.armedCount).toBe(1);
  await dialer.close();
  expect([clock.armedCount, failureOf(await dialing.result).code]).toEqual([0, 'shutting-down']);
});

test('dialer: nothing is left armed once a way stands', async () => {
  const clock = new ManualClock();
  const { dial } = makeDialer([{ id: 'm1', at: await openMember('http', httpManner()) }], {
    clock,
    hedgeAfter: 500,
  });
  wayOf(await dial('target.example:443'));
  expect(clock.armedCount).toBe(0);
});

test('dialer: how long a client waited for a member is told, whatever came of it', async () => {
  const clock = new ManualClock();
  const { dial, pool, bus } = makeDialer([], { clock });
  const ended = collect(bus, 'dial.ended');
  const served = dial('target.example:443');
  clock.advance(700);
  pool.add({ id: 'late', at: await openMember('http', httpManner()), remainingMs: 9_000 });
  wayOf(await served);
  pool.members = [];
  const refused = dial('target.example:443');
  clock.advance(400);
  pool.giveUp();
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

test('dialer: a pool in another process, whose answers come later, does as well', async () => {
  const silent = await openMember('http', silentManner);
  const { dial, dialer, pool } = makeDialer(
    [
      { id: 'dead', at: await refusingMember() },
      { id: 'silent', at: silent },
      { id: 'good', at: await openMember('http', httpManner()) },
    ],
    { hedgeAfter: 40 },
  );
  pool.remote = true;
  expect(wayOf(await dial('target.example:443'))).toMatchObject({ member: 'good', attempts: 3 });
  const dialing = start(dialer, REQUEST);
  dialing.cancel();
  expect(failureOf(await dialing.result).code).toBe('client-gone');
  await until('the lease that came too late is given back', () =>
    pool.verdicts().includes('dead client-gone nobody'),
  );
});

test('dialer: a member that is given out again and works has only itself to blame for nothing', async () => {
  let asked = 0;
  const at = await openMember('http', async (socket, hear) => {
    asked += 1;
    await httpManner(asked === 1 ? 'HTTP/1.1 502 Bad\r\n\r\n' : undefined)(socket, hear);
  });
  const { dial, pool } = makeDialer([{ id: 'm1', at }]);
  pool.desperate = true;
  expect(wayOf(await dial('target.example:443'))).toMatchObject({ member: 'm1', attempts: 2 });
  expect(pool.verdicts()).toEqual(['m1 target-doubted nobody']);
});

test('dialer: closing ends what is under way and refuses what comes after', async () => {
  const silent = await openMember('http', silentManner);
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

test('dialer: a member whose protocol cannot name the target is passed over without blame or connection', async () => {
  const socks4 = await openMember('socks4', socks4Manner());
  const http = await openMember('http', httpManner());
  const { dial, pool } = makeDialer([
    { id: 'm4', at: socks4 },
    { id: 'm1', at: http },
  ]);
  const way = wayOf(await dial('[2001:db8::1]:443'));
  expect(way.member).toBe('m1');
  expect(pool.verdicts()).toEqual(['m4 member-incapable nobody']);
  expect(socks4.taken).toBe(0);
  expect(http.heard.toString()).toBe('CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n');
});

test('dialer: cutting a lease closes the connection behind it, and no other', async () => {
  const at = await openMember('http', httpManner());
  const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
  const first = wayOf(await dial('target.example:443'));
  const second = wayOf(await dial('target.example:443'));
  dialer.closeConnections([1, 77]);
  expect([first.socket.destroyed, second.socket.destroyed]).toEqual([true, false]);
  second.end({ cut: false });
  dialer.closeConnections([2]);
  expect(second.socket.destroyed, 'an ended way is its holder’s').toBe(false);
});
