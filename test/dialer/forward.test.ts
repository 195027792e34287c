/** Plain HTTP requests: their forward mode, and the reuse of connections. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import {
  type Behavior,
  httpBehavior,
  openMember,
  readUntil,
  refusingMember,
  socks5Behavior,
} from '../support/bad-members.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { connectionOf, echo, makeDialer } from './make-dialer.ts';

const FORWARD = { use: 'forward' } as const;

/** Refuses every CONNECT, and echoes requests in absolute form. */
const absoluteBehavior: Behavior = async (socket, record) => {
  const head = await readUntil(socket, '\r\n\r\n');
  record(head);
  if (head.toString().startsWith('CONNECT')) {
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    return;
  }
  socket.write(head);
  socket.pipe(socket);
};

const GET = 'GET http://target.example/ HTTP/1.1\r\n\r\n';

test("forward: uses CONNECT to the target's port if the member accepts it", async () => {
  const at = await openMember('http', httpBehavior());
  const { dial } = makeDialer([{ id: 'm1', at }]);
  const connection = connectionOf(await dial('target.example:80', FORWARD));
  expect([connection.forwardMode, connection.proxyAuthorization]).toEqual(['direct', undefined]);
  expect(at.received.toString()).toContain('CONNECT target.example:80 HTTP/1.1');
});

test('forward: after a refused CONNECT, the member gets absolute form, and so do others for the same target', async () => {
  const at = await openMember('http', absoluteBehavior);
  const { dial, pool } = makeDialer([
    { id: 'm1', at },
    { id: 'm2', at },
  ]);
  const connection = connectionOf(await dial('target.example:80', FORWARD));
  expect(connection).toMatchObject({ forwardMode: 'absolute', lease: { member: 'm1' }, attempts: 1 });
  await echo(connection, GET);
  expect(at.accepted).toBe(2);
  connection.isMemberError({ status: 200, fields: [], isRead: true });
  const sibling = connectionOf(await dial('target.example:80', FORWARD));
  expect(sibling).toMatchObject({ forwardMode: 'absolute', lease: { member: 'm2' } });
  await until('the sibling was asked once', () => at.accepted === 3);
  expect(pool.blames()).toEqual([]);
});

test('forward: a source that accepts CONNECT replaces a single member that refuses it', async () => {
  const good = await openMember('http', httpBehavior());
  const odd = await openMember('http', absoluteBehavior);
  const { dial, pool } = makeDialer([
    { id: 'good', at: good },
    { id: 'odd', at: odd },
  ]);
  connectionOf(await dial('target.example:80', FORWARD));
  expect(connectionOf(await dial('target.example:80', FORWARD))).toMatchObject({
    forwardMode: 'direct',
    lease: { member: 'good' },
    attempts: 2,
  });
  expect(pool.blames()).toEqual(['odd member-refused member-for-target']);
});

test('forward: a tunnel never falls back to absolute form', async () => {
  const at = await openMember('http', absoluteBehavior);
  const { dial, pool } = makeDialer([{ id: 'm1', at }], { waitForMemberMs: 0 });
  expect((await dial('target.example:80')).ok).toBe(false);
  expect(pool.blames()).toEqual(['m1 member-refused unclear']);
});

test('forward: `absolute` applies to HTTP members from the start, never to SOCKS members', async () => {
  const free: SourceSettings = {
    auth: 'none',
    instance: 'app',
    neverInstance: true,
    forwardMode: 'absolute',
    handshake: 'auto',
  };
  const http = await openMember('http', absoluteBehavior);
  const socks = await openMember('socks5', socks5Behavior());
  const { dial } = makeDialer(
    [
      { id: 'm1', at: http },
      { id: 'm2', at: socks },
    ],
    { sources: new Map([['city', free]]) },
  );
  expect(connectionOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('absolute');
  expect(connectionOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('direct');
});

test('forward: a reload can change the initial forward mode', async () => {
  const { dial, dialer } = makeDialer([{ id: 'm1', at: await openMember('http', httpBehavior()) }]);
  expect(connectionOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('direct');
  const city = {
    auth: 'none',
    instance: '',
    neverInstance: true,
    forwardMode: 'absolute',
    handshake: 'auto',
  } as const;
  dialer.configure({
    attempts: 3,
    attemptTimeoutMs: 2_000,
    hedgeAfter: 'off',
    warm: 'off',
    deadlineMs: 5_000,
    waitForMemberMs: 0,
    sources: new Map([['city', city]]),
  });
  expect(connectionOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('absolute');
});

test('forward: after two 407s of a lone member in absolute form, the next connection has credentials', async () => {
  const city: SourceSettings = {
    auth: 'auto',
    instance: '202611210001',
    password: new Secret('12345678'),
    neverInstance: false,
    forwardMode: 'absolute',
    handshake: 'auto',
  };
  const at = await openMember('http', absoluteBehavior);
  const { dial } = makeDialer([{ id: 'm1', at }], { sources: new Map([['city', city]]) });
  for (let time = 0; time < 2; time += 1) {
    const connection = connectionOf(await dial('target.example:80', { ...FORWARD, noReuse: true }));
    expect(connection.proxyAuthorization).toBeUndefined();
    connection.end({ cut: false, proxyAuthRequired: true });
  }
  const second = connectionOf(await dial('target.example:80', { ...FORWARD, noReuse: true }));
  expect(second.proxyAuthorization).toBe(`Basic ${btoa('202611210001:12345678')}`);
});

test('forward: a kept connection serves the next request to the same target through its member', async () => {
  const at = await openMember('http', httpBehavior());
  const { dial, pool } = makeDialer([{ id: 'm1', at }]);
  const first = connectionOf(await dial('target.example:80', FORWARD));
  await echo(first, 'one');
  first.socket.removeAllListeners('data').removeAllListeners('close');
  first.end({ cut: false, keep: true });
  const second = connectionOf(await dial('target.example:80', FORWARD));
  expect(second).toMatchObject({ reused: true, lease: { member: 'm1' }, attempts: 1 });
  expect(second.socket).toBe(first.socket);
  await echo(second, 'two');
  expect(at.accepted).toBe(1);
  expect(pool.reports.at(-1)).toEqual({ lease: 2, kind: 'accepted' });
});

test('forward: a kept connection that the member closes is no fault of the member', async () => {
  const at = await openMember('http', httpBehavior());
  const { dial, pool } = makeDialer([{ id: 'm1', at }]);
  connectionOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  connectionOf(await dial('target.example:80', FORWARD)).end({ cut: true });
  expect(pool.reports.at(-1)).toEqual({ lease: 2, kind: 'closed', cut: false, answered: false });
  connectionOf(await dial('target.example:80', FORWARD)).end({ cut: true });
  expect(pool.reports.at(-1)).toMatchObject({ lease: 3, cut: 'unclear' });
});

test('forward: the pool chooses the member before an idle connection is considered', async () => {
  const at = await openMember('http', httpBehavior());
  const { dial } = makeDialer([
    { id: 'm1', at },
    { id: 'm2', at },
  ]);
  connectionOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  expect(connectionOf(await dial('target.example:80', FORWARD))).toMatchObject({
    lease: { member: 'm2' },
    reused: false,
  });
  expect(connectionOf(await dial('target.example:80', FORWARD))).toMatchObject({
    lease: { member: 'm1' },
    reused: true,
  });
});

test.each([
  ['for another target', 'other.example:80', FORWARD],
  ['for another port', 'target.example:81', FORWARD],
  ['when a fresh one is asked for', 'target.example:80', { use: 'forward', noReuse: true } as const],
  ['for another owner', 'target.example:80', { use: 'forward', owner: 'bob' } as const],
  ['for a tunnel', 'target.example:80', { use: 'tunnel' } as const],
])('forward: an idle connection is not used %s', async (_, target, request) => {
  const at = await openMember('http', httpBehavior());
  const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
  connectionOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  expect(connectionOf(await dial(target, request)).reused).toBe(false);
  expect([at.accepted, dialer.openCount]).toEqual([2, 1]);
});

test('forward: an idle connection that ends or receives bytes is closed', async () => {
  for (const end of [
    (socket: { end(): void }) => socket.end(),
    (socket: { write(text: string): void }) => socket.write('?'),
  ]) {
    const sockets: { end(): void; write(text: string): void }[] = [];
    const at = await openMember('http', (socket, record) => {
      sockets.push(socket);
      return httpBehavior()(socket, record);
    });
    const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
    connectionOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
    expect(dialer.openCount).toBe(1);
    const [socket] = sockets;
    if (socket !== undefined) end(socket);
    await until('it is dropped', () => dialer.openCount === 0);
    expect(connectionOf(await dial('target.example:80', FORWARD)).reused).toBe(false);
  }
});

test('forward: no connection is kept past the end of its member, and no tunnel at all', async () => {
  const at = await openMember('http', httpBehavior());
  const clock = ManualClock.dayOld();
  const { dial, dialer } = makeDialer([{ id: 'm1', at, remainingMs: 30 }], { clock });
  connectionOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  expect(dialer.openCount).toBe(1);
  clock.advance(40);
  expect(dialer.openCount).toBe(0);
  connectionOf(await dial('target.example:80')).end({ cut: false, keep: true });
  expect(dialer.openCount).toBe(0);
  await until('all are closed', () => at.open === 0);
});

test('forward: a closed dialer closes a connection that it gets back', async () => {
  const at = await openMember('http', httpBehavior());
  const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
  const connection = connectionOf(await dial('target.example:80', FORWARD));
  await dialer.close();
  connection.end({ cut: false, keep: true });
  expect([connection.socket.destroyed, dialer.openCount]).toEqual([true, 0]);
});

test('forward: end() is idempotent', async () => {
  const at = await openMember('http', httpBehavior());
  const { dial, dialer, pool } = makeDialer([{ id: 'm1', at }]);
  const connection = connectionOf(await dial('target.example:80', FORWARD));
  connection.end({ cut: true });
  connection.end({ cut: false, keep: true });
  expect(pool.reports).toMatchObject([{ kind: 'accepted' }, { kind: 'closed', cut: 'unclear' }]);
  expect(dialer.openCount).toBe(0);
});

test('forward: an unreachable member in absolute form is replaced', async () => {
  const settings = {
    auth: 'none',
    instance: 'app',
    neverInstance: true,
    forwardMode: 'absolute',
    handshake: 'auto',
  } as const;
  const { dial, pool } = makeDialer(
    [
      { id: 'dead', at: await refusingMember() },
      { id: 'm1', at: await openMember('http', absoluteBehavior) },
    ],
    { sources: new Map([['city', settings]]) },
  );
  expect(connectionOf(await dial('target.example:80', FORWARD)).lease.member).toBe('m1');
  expect(pool.blames()).toEqual(['dead member-unreachable member']);
});

test('forward: the first byte of a response teaches when the next one of its target is late', async () => {
  const { dial } = makeDialer([{ id: 'm1', at: await openMember('http', httpBehavior()) }]);
  const mutes: (number | undefined)[] = [];
  for (const firstByteMs of [2_000, 10, 10]) {
    const connection = connectionOf(await dial('target.example:80', FORWARD));
    mutes.push(connection.muteAfterMs);
    connection.end({ cut: false, answered: true, firstByteMs });
  }
  expect(mutes).toEqual([4_000, 6_000, 5_880]);
  expect(connectionOf(await dial('target.example:80')).muteAfterMs, 'of a tunnel').toBeUndefined();
});

test('forward: a response that the member made itself is no answer of the target', async () => {
  const at = await openMember('http', httpBehavior('HTTP/1.1 403 No\r\n\r\n'));
  const { dial, pool } = makeDialer([{ id: 'm1', at }]);
  const connection = connectionOf(await dial('target.example:80', FORWARD));
  expect(connection.forwardMode).toBe('absolute');
  expect(connection.isMemberError({ status: 403, fields: [], isRead: true })).toBe(true);
  connection.end({ cut: false, answered: true });
  expect(pool.reports.at(-1)).toMatchObject({ kind: 'closed', cut: false, answered: false });
});
