/** Warm connections on sockets without a network: when exactly they open, what they save, when they end, and what that teaches. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { DialRequest } from '../../src/dialer/contract.ts';
import type { DialerOptions } from '../../src/dialer/dialer.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import type { UpcomingMember } from '../../src/pool/lease.ts';
import { connectionOf } from './make-dialer.ts';
import { ended, makeScriptedDialer } from './scripted-dialer.ts';

const TARGET = 'target.example:443';
const CONNECT_MS = 50;

function makeWarm(settings: Partial<DialerOptions> = {}) {
  const kit = makeScriptedDialer([], { warm: 'auto', ...settings });
  const { clock, pool, dial, opened, connect, say, memberOf } = kit;
  let next: readonly string[] = [];
  let protocol: UpcomingMember['protocol'] = 'http';
  const counts: number[] = [];
  /** The members that the pool will grant next, however many are asked for. */
  pool.upcoming = ({ count, isKnown }) => {
    counts.push(count);
    return next
      .filter((id) => !isKnown(id))
      .map((id) => ({ member: id, source: 'city', ...memberOf(id, protocol).at }));
  };
  const foresee = (...ids: string[]) => {
    next = ids;
  };
  /** A tunnel through this member. It connects in 50 ms, if it is not connected, and answers at once. */
  const tunnel = async (id: string, request: Partial<DialRequest> = {}) => {
    pool.members = [memberOf(id, protocol)];
    const before = opened.length;
    const result = dial(TARGET, request);
    if (opened.slice(before).some(({ port }) => port === memberOf(id).at.port)) {
      clock.advance(CONNECT_MS);
      connect(id);
    }
    if (protocol === 'socks5') for (const reply of ['\x05\x00', ACCEPTED]) say(id, reply);
    else say(id, 'HTTP/1.1 200 OK\r\n\r\n');
    connectionOf(await ended(result)).end({ cut: false });
  };
  /** Three tunnels: noria now knows how long it takes to open a connection, and that more tunnels follow. */
  const warmUp = async () => {
    for (let time = 0; time < 3; time += 1) await tunnel('first');
    pool.reports.length = 0;
  };
  const latencies = () =>
    pool.reports.flatMap((report) => (report.kind === 'accepted' ? [report.latencyMs] : []));
  const speak = (spoken: UpcomingMember['protocol']) => {
    protocol = spoken;
  };
  return { ...kit, foresee, tunnel, warmUp, latencies, counts, speak };
}

const ACCEPTED = '\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00';

test('warm: the latency of a tunnel on a warm connection contains what opening that took, or has taken so far', async () => {
  const { foresee, warmUp, tunnel, latencies, clock, connect, pool, dial, say, openedTo, memberOf } =
    makeWarm();
  await warmUp();
  foresee('a');
  await tunnel('first');
  expect(openedTo('a')).toEqual([1]);
  clock.advance(30);
  connect('a');
  clock.advance(500);
  foresee('b');
  await tunnel('a');
  foresee();
  clock.advance(40); // b is not connected yet
  pool.members = [memberOf('b')];
  const result = dial(TARGET);
  clock.advance(20);
  connect('b');
  clock.advance(3);
  say('b', 'HTTP/1.1 200 OK\r\n\r\n');
  connectionOf(await ended(result));
  expect(latencies(), 'a was opened at the start of a tunnel of 50 ms').toEqual([50, 80, 63]);
  expect(openedTo('a', 'b')).toEqual([1, 1]);
});

test('warm: a connection is kept for ten seconds, and may be opened again at once', async () => {
  const { foresee, warmUp, tunnel, clock, connect, socketOf, openedTo, dialer } = makeWarm();
  foresee('a');
  await warmUp(); // the third tunnel takes 50 ms
  connect('a');
  clock.advance(9_940);
  expect([socketOf('a').destroyed, dialer.openCount]).toEqual([false, 1]);
  clock.advance(20);
  expect([socketOf('a').destroyed, dialer.openCount]).toEqual([true, 0]);
  for (let time = 0; time < 2; time += 1) await tunnel('first');
  expect(openedTo('a')).toEqual([2]);
});

test.each<[string, (kit: ReturnType<typeof makeWarm>) => void]>([
  ['cannot be reached', ({ close }) => close('a', 'ECONNREFUSED')],
  ['does not answer', ({ clock }) => clock.advance(10_000)],
  [
    'closes it',
    ({ connect, close }) => {
      connect('a');
      close('a');
    },
  ],
  [
    'ends it',
    ({ connect, socketOf }) => {
      connect('a');
      socketOf('a').emit('end');
    },
  ],
  [
    'sends bytes before the request',
    ({ connect, say }) => {
      connect('a');
      say('a', 'HTTP/1.1 400 Bad\r\n\r\n');
    },
  ],
])('warm: a member that %s gets no other one for ten seconds', async (_, fail) => {
  const kit = makeWarm();
  const { foresee, warmUp, tunnel, clock, socketOf, openedTo, dialer, pool } = kit;
  foresee('a');
  await warmUp();
  expect(openedTo('a')).toEqual([1]);
  fail(kit);
  expect([socketOf('a').destroyed, dialer.openCount, pool.blames()]).toEqual([true, 0, []]);
  clock.advance(9_800);
  for (let time = 0; time < 3; time += 1) await tunnel('first');
  expect(openedTo('a')).toEqual([1]);
  clock.advance(500);
  for (let time = 0; time < 3; time += 1) await tunnel('first');
  expect(openedTo('a')).toEqual([2]);
});

test('warm: after three members have closed unused connections, they are kept for a shorter time', async () => {
  const { foresee, warmUp, tunnel, clock, connect, close, socketOf } = makeWarm();
  await warmUp();
  for (const [id, ms] of [
    ['a', 1_000],
    ['b', 2_000],
    ['c', 4_000],
  ] as const) {
    foresee(id);
    for (let time = 0; time < 2; time += 1) await tunnel('first');
    connect(id);
    clock.advance(ms);
    close(id);
  }
  foresee('d');
  for (let time = 0; time < 2; time += 1) await tunnel('first');
  connect('d');
  clock.advance(1_480); // 50 ms have passed since the first of these tunnels
  expect(socketOf('d').destroyed).toBe(false);
  clock.advance(70);
  expect(socketOf('d').destroyed, 'after four fifths of two seconds').toBe(true);
});

test('warm: ten connections may end unused, then one for every 25 tunnels', async () => {
  const { foresee, tunnel, warmUp, close, dialer } = makeWarm();
  await warmUp();
  let wasted = 0;
  const waste = async () => {
    foresee(`w${wasted}`);
    await tunnel('first');
    if (dialer.openCount === 0) return false;
    close(`w${wasted}`, 'ECONNREFUSED');
    wasted += 1;
    return true;
  };
  while (await waste());
  expect(wasted).toBe(11); // the first tunnels have earned a part of one
  let tunnels = 1;
  while (!(await waste())) tunnels += 1;
  expect(tunnels).toBe(15);
});

test('warm: only tunnels with the same routing options, or of one session, are a stream', async () => {
  const streams: DialRequest['routing'][] = [
    {},
    { source: 'city' },
    { source: 'town' },
    { protocol: 'http' },
    { protocol: 'https' },
    { location: 'cn' },
    { location: 'us' },
    { session: 'a' },
    { session: 'b' },
  ];
  const { foresee, tunnel, openedTo } = makeWarm();
  await tunnel('first', { use: 'forward' });
  foresee('a');
  for (const routing of streams.slice(1)) await tunnel('first', { routing });
  expect(openedTo('a')).toEqual([0]);
  for (const routing of streams) {
    const kit = makeWarm();
    await kit.tunnel('first', { routing: { session: 'other' } });
    kit.foresee('a');
    for (let time = 0; time < 2; time += 1) await kit.tunnel('first', { routing: { ...routing } });
    expect(kit.openedTo('a')).toEqual([1]);
  }
});

test('warm: the number of a source is limited, and each that ends makes room', async () => {
  const { foresee, warmUp, tunnel, openedTo, counts, connect, dialer, close } = makeWarm({ warm: 2 });
  foresee('a', 'b', 'c');
  await warmUp();
  expect([openedTo('a', 'b', 'c'), dialer.openCount]).toEqual([[1, 1, 0], 2]);
  await tunnel('first');
  expect(openedTo('a', 'b', 'c')).toEqual([1, 1, 0]);
  foresee('c', 'd');
  connect('a');
  await tunnel('a');
  expect(openedTo('a', 'b', 'c', 'd'), 'a tunnel has taken one').toEqual([1, 1, 1, 0]);
  close('b', 'ECONNREFUSED');
  await tunnel('first');
  expect([openedTo('a', 'b', 'c', 'd'), dialer.openCount]).toEqual([[1, 1, 1, 1], 2]);
  expect(Math.max(...counts)).toBeLessThanOrEqual(2);
});

test.each([
  [1.9, 0],
  [2, 1],
])('warm: members of which one connects in %f ms get %i connections', async (ms, count) => {
  const { foresee, pool, memberOf, dial, answer, openedTo } = makeWarm();
  for (const openingMs of [5, ms, 0]) {
    foresee(...(openingMs === 0 ? ['a'] : []));
    pool.members = [memberOf('first')];
    const result = dial(TARGET);
    answer('first', 200, openingMs);
    connectionOf(await ended(result)).end({ cut: false });
  }
  expect(openedTo('a')).toEqual([count]);
});

const PLAIN: SourceSettings = {
  auth: 'none',
  instance: '',
  neverInstance: true,
  forwardMode: 'direct',
  handshake: 'plain',
};

test('warm: a SOCKS5 connection is ready when its member waits for the request', async () => {
  const { foresee, speak, warmUp, tunnel, latencies, clock, connect, say, opened, dial, pool, memberOf } =
    makeWarm({
      sources: new Map([['city', PLAIN]]),
    });
  speak('socks5');
  foresee('a');
  await warmUp();
  connect('a');
  clock.advance(10);
  say('a', '\x05');
  clock.advance(15);
  say('a', '\x00');
  clock.advance(300);
  foresee();
  pool.members = [memberOf('a', 'socks5')];
  const result = dial(TARGET);
  say('a', ACCEPTED);
  connectionOf(await ended(result));
  expect(latencies(), 'it was opened 50 ms before').toEqual([75]);
  expect(opened[1]?.written.startsWith('\x05\x01\x00\x05\x01\x00\x03')).toBe(true);
  await tunnel('first');
});

test('warm: a connection with another login than that of the lease is closed, and a new one opened', async () => {
  const { foresee, warmUp, dial, pool, memberOf, opened, openedTo, answer, connect, dialer, socketOf } =
    makeWarm();
  foresee('a');
  await warmUp();
  connect('a');
  foresee();
  const warm = socketOf('a');
  const { at } = memberOf('a');
  pool.members = [
    { id: 'a', at: { ...at, login: { username: 'u', password: new Secret('pw') } } as typeof at },
  ];
  const result = dial(TARGET);
  expect([warm.destroyed, openedTo('a'), dialer.openCount]).toEqual([true, [2], 1]);
  answer('a', 200);
  connectionOf(await ended(result));
  expect(opened.at(-1)?.written).toContain('Proxy-Authorization: Basic dTpwdw==');
});

test('warm: a second attempt of a dial is no further tunnel', async () => {
  const { foresee, tunnel, dial, pool, memberOf, close, answer, openedTo } = makeWarm();
  await tunnel('first');
  foresee('a');
  pool.members = [memberOf('dead'), memberOf('first')];
  const result = dial(TARGET);
  close('dead', 'ECONNREFUSED');
  answer('first', 200, CONNECT_MS);
  connectionOf(await ended(result)).end({ cut: false });
  expect(openedTo('a')).toEqual([0]);
  await tunnel('first');
  expect(openedTo('a')).toEqual([1]);
});

test('warm: while it is off, the pool is not even asked', async () => {
  const { warmUp, counts } = makeWarm({ warm: 'off' });
  await warmUp();
  expect(counts).toEqual([]);
});

test('warm: a request that must not be sent twice may use one through CONNECT, but not in absolute form', async () => {
  for (const [forwardMode, count] of [
    ['direct', 1],
    ['absolute', 2],
  ] as const) {
    const { foresee, warmUp, connect, dial, pool, memberOf, openedTo, say } = makeWarm({
      sources: new Map([['city', { ...PLAIN, forwardMode }]]),
    });
    foresee('a');
    await warmUp();
    connect('a');
    foresee();
    pool.members = [memberOf('a')];
    const result = dial(TARGET, { use: 'forward', noReuse: true });
    expect(openedTo('a')).toEqual([count]);
    if (forwardMode === 'direct') say('a', 'HTTP/1.1 200 OK\r\n\r\n');
    else connect('a');
    expect(connectionOf(await ended(result)).reused).toBe(false);
  }
});
