/**
 * Pipelined SOCKS5 handshakes: which members get them, what happens with members that do not accept them, and when a
 * login is pipelined.
 */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { Pipelining, RELEARN_HANDSHAKE_MS, TRIAL_INTERVAL_MS } from '../../src/dialer/pipelining.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { type Behavior, openMember, socks5Behavior, type TestMember } from '../support/bad-members.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { connectionOf, echo, failureOf, makeDialer } from './make-dialer.ts';

const LOGIN = { username: 'me', password: new Secret('12345678') };
const TARGET = 'target.example:443';
const GREETING_BYTES = 3;
const METHOD_NONE = Buffer.from([5, 0]);
const METHOD_LOGIN = Buffer.from([5, 2]);
const LOGIN_OK = Buffer.from([1, 0]);
const ACCEPTED = Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);

function withCity(city: Partial<SourceSettings> = {}) {
  const settings: SourceSettings = {
    auth: 'none',
    instance: '',
    neverInstance: true,
    forwardMode: 'direct',
    handshake: 'auto',
    ...city,
  };
  return { clock: new LoopClock(), sources: new Map([['city', settings]]) };
}

interface SocksServer {
  /** How the server misreads a greeting that arrives together with other bytes. By default, it answers all of them. */
  readonly misread?: (socket: Socket) => void;
  /** Awaited before the server replies to the request. */
  readonly reached?: () => Promise<unknown>;
}

/** A SOCKS5 server that records its first read of each connection. It accepts any login that it is offered. */
function socksServer({ misread, reached }: SocksServer = {}): Behavior {
  return async (socket, record) => {
    const [greeting] = (await once(socket, 'data')) as [Buffer];
    record(greeting);
    const isPipelined = greeting.length > GREETING_BYTES;
    if (isPipelined && misread !== undefined) {
      misread(socket);
      return;
    }
    const replies = greeting[2] === 2 ? [METHOD_LOGIN, LOGIN_OK] : [METHOD_NONE];
    for (const reply of replies) {
      const next = isPipelined ? undefined : once(socket, 'data');
      socket.write(reply);
      await next;
    }
    await reached?.();
    socket.write(ACCEPTED);
    socket.pipe(socket);
  };
}

const PLAIN = Buffer.from([5, 1, 0]).toString('hex');
const PLAIN_LOGIN = Buffer.from([5, 1, 2]).toString('hex');
const LOGIN_HEX = '01026d65083132333435363738';
const REQUEST = '050100030e7461726765742e6578616d706c6501bb';

const openings = (at: TestMember) => at.received.map((bytes) => bytes.toString('hex'));

test('pipelining: after one plain handshake a tunnel tries a pipelined one, and then all tunnels use it', async () => {
  const at = await openMember('socks5', socksServer());
  const { dial } = makeDialer([{ id: 'm1', at }], withCity());
  for (let time = 0; time < 3; time += 1) await echo(connectionOf(await dial(TARGET)), 'hello');
  expect(openings(at)).toEqual([PLAIN, PLAIN + REQUEST, PLAIN + REQUEST]);
});

test('pipelining: works with a member that reads byte by byte and answers byte by byte', async () => {
  const at = await openMember(
    'socks5',
    socks5Behavior({ trickle: true, login: { username: 'me', password: '12345678' } }),
  );
  const { dial } = makeDialer([{ id: 'm1', at }], withCity({ auth: LOGIN }));
  for (let time = 0; time < 3; time += 1) await echo(connectionOf(await dial(TARGET)), 'hello');
  expect(at.accepted).toBe(3);
});

test('pipelining: a login is pipelined only after a member has asked for it', async () => {
  const at = await openMember('socks5', socksServer());
  const { dial } = makeDialer([{ id: 'm1', at }], withCity({ auth: LOGIN, handshake: 'pipelined' }));
  for (let time = 0; time < 2; time += 1) await echo(connectionOf(await dial(TARGET)), 'hello');
  expect(openings(at)).toEqual([PLAIN_LOGIN, PLAIN_LOGIN + LOGIN_HEX + REQUEST]);
});

test('pipelining: members that never ask for a login never get it', async () => {
  const at = await openMember('socks5', async (socket, record) => {
    socket.on('data', record);
    socket.write(Buffer.from([5, 0]));
  });
  const members = ['m1', 'm2', 'm3'].map((id) => ({ id, at }));
  const { dial } = makeDialer(members, {
    ...withCity({ auth: LOGIN, handshake: 'pipelined' }),
    waitForMemberMs: 0,
  });
  for (let time = 0; time < 3; time += 1) failureOf(await dial(TARGET));
  expect(new Set(openings(at))).toEqual(new Set([PLAIN_LOGIN]));
});

const MISREADINGS: readonly [string, (socket: Socket) => void][] = [
  ['closes', (socket) => socket.end()],
  ['resets', (socket) => socket.resetAndDestroy()],
  ['answers out of order', (socket) => socket.write(ACCEPTED)],
  ['answers garbage', (socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ['drops what came early', (socket) => socket.write(METHOD_NONE)],
  ['stays silent', () => {}],
];

test.each(MISREADINGS)(
  'pipelining: a member that %s gets a plain handshake at once, is not blamed, and teaches its source',
  async (_, misread) => {
    const at = await openMember('socks5', socksServer({ misread }));
    const members = ['m1', 'm2', 'm3'].map((id) => ({ id, at }));
    const { dial, pool } = makeDialer(members, withCity());
    for (let time = 0; time < 5; time += 1) {
      const connection = connectionOf(await dial(TARGET));
      expect(connection.attempts).toBe(1);
      await echo(connection, 'hello');
    }
    expect(openings(at)).toEqual([PLAIN, PLAIN + REQUEST, PLAIN, PLAIN, PLAIN, PLAIN]);
    expect(pool.blames()).toEqual([]);
  },
);

test('pipelining: a login that a member has misread is not refused', async () => {
  const misread = (socket: Socket) => socket.write(Buffer.concat([METHOD_LOGIN, Buffer.from([1, 1])]));
  const at = await openMember('socks5', socksServer({ misread }));
  const { dial, pool, sourceFaults } = makeDialer([{ id: 'm1', at }], withCity({ auth: LOGIN }));
  for (let time = 0; time < 3; time += 1) await echo(connectionOf(await dial(TARGET)), 'hello');
  expect(openings(at)).toEqual([PLAIN_LOGIN, PLAIN_LOGIN + LOGIN_HEX + REQUEST, PLAIN_LOGIN, PLAIN_LOGIN]);
  expect([pool.blames(), sourceFaults]).toEqual([[], []]);
});

test('pipelining: if one member of several does not accept pipelined handshakes, only that member gets plain ones', async () => {
  const good = await openMember('socks5', socksServer());
  const strict = await openMember('socks5', socksServer({ misread: (socket) => socket.end() }));
  const members = [good, good, strict].map((at, index) => ({ id: `m${index}`, at }));
  const { dial, pool } = makeDialer(members, withCity());
  for (let time = 0; time < 9; time += 1) connectionOf(await dial(TARGET));
  expect(openings(good)).toEqual([PLAIN, ...new Array<string>(5).fill(PLAIN + REQUEST)]);
  expect(openings(strict)).toEqual([PLAIN + REQUEST, PLAIN, PLAIN, PLAIN]);
  expect(pool.blames()).toEqual([]);
});

test('pipelining: a slow target does not count as a member that refuses pipelined handshakes', async () => {
  const settings = withCity();
  let delayMs = 0;
  const reached = () => new Promise<void>((resolve) => settings.clock.after(delayMs, resolve));
  const at = await openMember('socks5', socksServer({ reached }));
  const { dial } = makeDialer([{ id: 'm1', at }], settings);
  connectionOf(await dial(TARGET));
  delayMs = 500;
  connectionOf(await dial(TARGET));
  delayMs = 0;
  settings.clock.advance(TRIAL_INTERVAL_MS);
  connectionOf(await dial(TARGET));
  expect(openings(at)).toEqual([PLAIN, PLAIN + REQUEST, PLAIN, PLAIN + REQUEST]);
});

test('pipelining: a member that fails both a pipelined and a plain handshake has one fault', async () => {
  let isDead = false;
  const at = await openMember('socks5', (socket, record) => {
    if (isDead) socket.once('data', record).once('data', () => socket.end());
    else return socksServer()(socket, record);
  });
  const { dial, pool } = makeDialer([{ id: 'm1', at }], { ...withCity(), waitForMemberMs: 0 });
  connectionOf(await dial(TARGET));
  isDead = true;
  expect(failureOf(await dial(TARGET)).attempts).toBe(1);
  expect(openings(at)).toEqual([PLAIN, PLAIN + REQUEST, PLAIN]);
  expect(pool.blames()).toEqual(['m1 member-closed unclear']);
});

test('pipelining: `plain` always waits for replies, `pipelined` never does, from the first connection on', async () => {
  for (const [handshake, opening] of [
    ['plain', PLAIN],
    ['pipelined', PLAIN + REQUEST],
  ] as const) {
    const at = await openMember('socks5', socksServer());
    const { dial } = makeDialer([{ id: 'm1', at }], withCity({ handshake }));
    for (let time = 0; time < 3; time += 1) await echo(connectionOf(await dial(TARGET)), 'hello');
    expect(openings(at)).toEqual([opening, opening, opening]);
  }
});

test('pipelining: what members have shown is forgotten after ten minutes', () => {
  const clock = ManualClock.dayOld();
  const pipelining = new Pipelining(clock, 'auto');
  pipelining.accepted('m1', 'plain', 30);
  expect([pipelining.modeFor('m1', false), pipelining.modeFor('m2', false)]).toEqual(['trial', 'plain']);
  pipelining.refused('m1');
  clock.advance(RELEARN_HANDSHAKE_MS);
  expect(pipelining.modeFor('m2', false)).toBe('plain');
  clock.advance(1);
  expect(pipelining.modeFor('m2', false)).toBe('trial');
  pipelining.accepted('m2', 'trial', 30);
  expect([pipelining.modeFor('m2', false), pipelining.modeFor('m3', false)]).toEqual(['pipelined', 'trial']);
  pipelining.failed('m2');
  clock.advance(TRIAL_INTERVAL_MS);
  expect(pipelining.modeFor('m2', false)).toBe('trial');
});

test('pipelining: the majority of the members decides for members that were not tried', () => {
  const pipelining = new Pipelining(ManualClock.dayOld(), 'auto');
  for (const member of ['m1', 'm2']) pipelining.accepted(member, 'trial', 30);
  for (const member of ['m3', 'm4']) pipelining.refused(member);
  expect(pipelining.modeFor('m6', false)).toBe('trial');
  pipelining.refused('m5');
  expect(pipelining.modeFor('m6', false)).toBe('plain');
  expect([pipelining.modeFor('m1', false), pipelining.modeFor('m3', false)]).toEqual(['pipelined', 'plain']);
});

test('pipelining: a trial waits twice the slowest recent handshake, of which an old one fades', () => {
  const pipelining = new Pipelining(ManualClock.dayOld(), 'auto');
  expect(pipelining.silenceMs).toBe(100);
  pipelining.accepted('m1', 'plain', 1_000);
  expect(pipelining.silenceMs).toBe(2_000);
  pipelining.accepted('m1', 'plain', 10);
  expect(pipelining.silenceMs).toBeCloseTo(2 * 0.98 * 1_000);
});

test('pipelining: a member that accepts it later no longer counts as one that refuses it', () => {
  const pipelining = new Pipelining(ManualClock.dayOld(), 'auto');
  pipelining.accepted('m0', 'plain', 10);
  for (const member of ['m1', 'm2']) pipelining.refused(member);
  pipelining.accepted('m3', 'trial', 10);
  expect(pipelining.modeFor('m4', false), 'two refuse it, one accepts it').toBe('plain');
  pipelining.accepted('m2', 'trial', 10);
  expect(pipelining.modeFor('m4', false)).toBe('trial');
  pipelining.failed('m2');
  pipelining.failed('m3');
  expect(pipelining.modeFor('m4', false), 'one refuses it, none accepts it').toBe('plain');
});

test('pipelining: only a plain handshake shows that members ask for the login', () => {
  const pipelining = new Pipelining(ManualClock.dayOld(), 'pipelined');
  pipelining.accepted('m1', 'pipelined', 10, true);
  expect(pipelining.modeFor('m1', true)).toBe('plain');
  pipelining.accepted('m1', 'plain', 10, true);
  pipelining.accepted('m1', 'plain', 10, false);
  expect(pipelining.modeFor('m1', true)).toBe('pipelined');
});

test('pipelining: two members that accept it after they had refused it outweigh one that refuses it', () => {
  const pipelining = new Pipelining(ManualClock.dayOld(), 'auto');
  for (const member of ['m1', 'm2', 'm3']) pipelining.refused(member);
  for (const member of ['m2', 'm3']) pipelining.accepted(member, 'trial', 10);
  expect(pipelining.modeFor('m4', false)).toBe('trial');
});
