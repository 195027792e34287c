/** Plain HTTP requests: in which form they go, and how connections serve again. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import {
  httpManner,
  type Manner,
  openMember,
  readUntil,
  refusingMember,
  socks5Manner,
} from '../support/bad-members.ts';
import { until } from '../support/until.ts';
import { echo, makeDialer, wayOf } from './make-dialer.ts';

const FORWARD = { use: 'forward' } as const;

/** Takes CONNECT to port 443 alone; anything else is a request in absolute form, which it echoes. */
const absoluteManner: Manner = async (socket, hear) => {
  const head = await readUntil(socket, '\r\n\r\n');
  hear(head);
  if (head.toString().startsWith('CONNECT')) {
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    return;
  }
  socket.write(head);
  socket.pipe(socket);
};

const GET = 'GET http://target.example/ HTTP/1.1\r\n\r\n';

test('forward: goes inside a CONNECT to the very port where the member takes it', async () => {
  const at = await openMember('http', httpManner());
  const { dial } = makeDialer([{ id: 'm1', at }]);
  const way = wayOf(await dial('target.example:80', FORWARD));
  expect([way.forwardMode, way.proxyAuthorization]).toEqual(['direct', undefined]);
  expect(at.heard.toString()).toContain('CONNECT target.example:80 HTTP/1.1');
});

test('forward: a member that does not CONNECT there gets it in absolute form, and so do its siblings', async () => {
  const at = await openMember('http', absoluteManner);
  const { dial, pool } = makeDialer([
    { id: 'm1', at },
    { id: 'm2', at },
  ]);
  const way = wayOf(await dial('target.example:80', FORWARD));
  expect(way).toMatchObject({ forwardMode: 'absolute', member: 'm1', attempts: 1 });
  await echo(way, GET);
  expect(at.taken).toBe(2);
  const sibling = wayOf(await dial('target.example:80', FORWARD));
  expect(sibling).toMatchObject({ forwardMode: 'absolute', member: 'm2' });
  await until('the sibling was asked once', () => at.taken === 3);
  expect(pool.verdicts()).toEqual([]);
});

test('forward: in a source that takes CONNECT, one member that does not is replaced', async () => {
  const good = await openMember('http', httpManner());
  const odd = await openMember('http', absoluteManner);
  const { dial, pool } = makeDialer([
    { id: 'good', at: good },
    { id: 'odd', at: odd },
  ]);
  wayOf(await dial('target.example:80', FORWARD));
  expect(wayOf(await dial('target.example:80', FORWARD))).toMatchObject({
    forwardMode: 'direct',
    member: 'good',
    attempts: 2,
  });
  expect(pool.verdicts()).toEqual(['odd member-refused member']);
});

test('forward: a tunnel is never made of a refused CONNECT', async () => {
  const at = await openMember('http', absoluteManner);
  const { dial, pool } = makeDialer([{ id: 'm1', at }], { waitForMemberMs: 0 });
  expect((await dial('target.example:80')).ok).toBe(false);
  expect(pool.verdicts()).toEqual(['m1 member-refused member']);
});

test('forward: members that seldom CONNECT are asked in absolute form from the start, SOCKS ones never', async () => {
  const free: SourceSettings = {
    auth: 'none',
    instance: 'app',
    neverInstance: true,
    forwardMode: 'absolute',
  };
  const http = await openMember('http', absoluteManner);
  const socks = await openMember('socks5', socks5Manner());
  const { dial } = makeDialer(
    [
      { id: 'm1', at: http },
      { id: 'm2', at: socks },
    ],
    { sources: new Map([['city', free]]) },
  );
  expect(wayOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('absolute');
  expect(wayOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('direct');
});

test('forward: a reload may change how a source begins', async () => {
  const { dial, dialer } = makeDialer([{ id: 'm1', at: await openMember('http', httpManner()) }]);
  expect(wayOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('direct');
  const city = { auth: 'none', instance: '', neverInstance: true, forwardMode: 'absolute' } as const;
  dialer.configure({
    attempts: 3,
    attemptTimeoutMs: 2_000,
    hedgeAfter: 'off',
    deadlineMs: 5_000,
    waitForMemberMs: 0,
    sources: new Map([['city', city]]),
  });
  expect(wayOf(await dial('target.example:80', FORWARD)).forwardMode).toBe('absolute');
});

test('forward: in absolute form the listener is given the credentials, and tells when they were missing', async () => {
  const city: SourceSettings = {
    auth: 'auto',
    instance: '202611210001',
    password: new Secret('12345678'),
    neverInstance: false,
    forwardMode: 'absolute',
  };
  const at = await openMember('http', absoluteManner);
  const { dial } = makeDialer([{ id: 'm1', at }], { sources: new Map([['city', city]]) });
  const first = wayOf(await dial('target.example:80', FORWARD));
  expect(first.proxyAuthorization).toBeUndefined();
  first.end({ cut: false, proxyAuthRequired: true });
  const second = wayOf(await dial('target.example:80', { ...FORWARD, fresh: true }));
  expect(second.proxyAuthorization).toBe(`Basic ${btoa('202611210001:12345678')}`);
});

test('forward: a connection that is given back serves the next request to the same target through that member', async () => {
  const at = await openMember('http', httpManner());
  const { dial, pool } = makeDialer([{ id: 'm1', at }]);
  const first = wayOf(await dial('target.example:80', FORWARD));
  await echo(first, 'one');
  first.socket.removeAllListeners('data').removeAllListeners('close');
  first.end({ cut: false, keep: true });
  const second = wayOf(await dial('target.example:80', FORWARD));
  expect(second).toMatchObject({ reused: true, member: 'm1', attempts: 1 });
  expect(second.socket).toBe(first.socket);
  await echo(second, 'two');
  expect(at.taken).toBe(1);
  expect(pool.reports.at(-1)).toEqual({ lease: 2, kind: 'accepted' });
});

test('forward: rotation is never bent: the pool chooses the member first', async () => {
  const at = await openMember('http', httpManner());
  const { dial } = makeDialer([
    { id: 'm1', at },
    { id: 'm2', at },
  ]);
  wayOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  expect(wayOf(await dial('target.example:80', FORWARD))).toMatchObject({ member: 'm2', reused: false });
  expect(wayOf(await dial('target.example:80', FORWARD))).toMatchObject({ member: 'm1', reused: true });
});

test.each([
  ['for another target', 'other.example:80', FORWARD],
  ['for another port', 'target.example:81', FORWARD],
  ['when a fresh one is asked for', 'target.example:80', { use: 'forward', fresh: true } as const],
  ['for a tunnel', 'target.example:80', { use: 'tunnel' } as const],
])('forward: an idle connection is left alone %s', async (_, target, request) => {
  const at = await openMember('http', httpManner());
  const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
  wayOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  expect(wayOf(await dial(target, request)).reused).toBe(false);
  expect([at.taken, dialer.openCount]).toEqual([2, 1]);
});

test('forward: an idle connection that ends or says something is dropped', async () => {
  for (const end of [
    (socket: { end(): void }) => socket.end(),
    (socket: { write(text: string): void }) => socket.write('?'),
  ]) {
    const sockets: { end(): void; write(text: string): void }[] = [];
    const at = await openMember('http', (socket, hear) => {
      sockets.push(socket);
      return httpManner()(socket, hear);
    });
    const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
    wayOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
    expect(dialer.openCount).toBe(1);
    const [socket] = sockets;
    if (socket !== undefined) end(socket);
    await until('it is dropped', () => dialer.openCount === 0);
    expect(wayOf(await dial('target.example:80', FORWARD)).reused).toBe(false);
  }
});

test('forward: a connection is not kept past the end of its member, nor a tunnel’s at all', async () => {
  const at = await openMember('http', httpManner());
  const { dial, dialer } = makeDialer([{ id: 'm1', at, remainingMs: 30 }]);
  wayOf(await dial('target.example:80', FORWARD)).end({ cut: false, keep: true });
  expect(dialer.openCount).toBe(1);
  await until('its member has ended', () => dialer.openCount === 0);
  wayOf(await dial('target.example:80')).end({ cut: false, keep: true });
  expect(dialer.openCount).toBe(0);
  await until('all are closed', () => at.open === 0);
});

test('forward: what is given back to a closed dialer is closed', async () => {
  const at = await openMember('http', httpManner());
  const { dial, dialer } = makeDialer([{ id: 'm1', at }]);
  const way = wayOf(await dial('target.example:80', FORWARD));
  await dialer.close();
  way.end({ cut: false, keep: true });
  expect([way.socket.destroyed, dialer.openCount]).toEqual([true, 0]);
});

test('forward: a way ends once', async () => {
  const at = await openMember('http', httpManner());
  const { dial, dialer, pool } = makeDialer([{ id: 'm1', at }]);
  const way = wayOf(await dial('target.example:80', FORWARD));
  way.end({ cut: true });
  way.end({ cut: false, keep: true });
  expect(pool.reports).toMatchObject([{ kind: 'accepted' }, { kind: 'closed', cut: true }]);
  expect(dialer.openCount).toBe(0);
});

test('forward: a member in absolute form that cannot be connected to is replaced like any other', async () => {
  const settings = { auth: 'none', instance: 'app', neverInstance: true, forwardMode: 'absolute' } as const;
  const { dial, pool } = makeDialer(
    [
      { id: 'dead', at: await refusingMember() },
      { id: 'm1', at: await openMember('http', absoluteManner) },
    ],
    { sources: new Map([['city', settings]]) },
  );
  expect(wayOf(await dial('target.example:80', FORWARD)).member).toBe('m1');
  expect(pool.verdicts()).toEqual(['dead member-unreachable member']);
});
