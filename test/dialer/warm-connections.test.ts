/** Warm connections, over real sockets. On a manual clock, it takes some time to establish a connection. */
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { expect, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import type { DialerOptions } from '../../src/dialer/dialer.ts';
import { type OpenSocket, ReadMemory, tunnelSocket } from '../../src/dialer/member-socket.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { FRONT_PROXIES, frontProxyAt } from '../foreign-members/front-proxies.ts';
import {
  type Behavior,
  httpBehavior,
  openMember,
  readUntil,
  socks4Behavior,
  socks5Behavior,
  type TestMember,
} from '../support/bad-members.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { until } from '../support/until.ts';
import type { FakePoolMember } from './fake-pool.ts';
import { collect, connectionOf, echo, makeDialer } from './make-dialer.ts';
import { openDialerWithPool } from './real-pool.ts';

const TARGET = 'target.example:443';
const FLIGHT_MS = 200;
/** The time between two tunnels. */
const PAUSE_MS = 300;
const LOGIN = { username: '202611210001', password: '12345678' };

/** Sockets whose connection is established after `flightMs`. */
function farSockets(clock: Clock, flightMs: number) {
  const memory = new ReadMemory();
  let opened = 0;
  let writes = 0;
  const ports = new Set<number>();
  const openSocket: OpenSocket = ({ protocol, host, port }) => {
    opened += 1;
    ports.add(port);
    const tcp = tunnelSocket(memory);
    const socket = protocol === 'https' ? connectTls({ socket: tcp, rejectUnauthorized: false }) : tcp;
    for (const each of [tcp, socket]) each.on('error', () => {}); // ignored: 'close' follows
    clock.after(flightMs, () => {
      if (tcp.destroyed) return;
      tcp.connect({ host, port }); // before the replacement of `write`, which it would undo
      const { write } = socket;
      socket.write = (...args: unknown[]) => {
        writes += 1;
        return Reflect.apply(write, socket, args);
      };
    });
    return socket;
  };
  return { openSocket, openedSockets: () => opened, ports, writes: () => writes };
}

interface Took {
  readonly ms: number;
  readonly writes: number;
}

/** A dialer with these sockets, over a fake pool. */
function makeFarDialer(
  members: readonly FakePoolMember[],
  { flightMs = FLIGHT_MS, ...settings }: Partial<DialerOptions> & { readonly flightMs?: number } = {},
) {
  const clock = new LoopClock();
  const { openSocket, openedSockets, ports, writes } = farSockets(clock, flightMs);
  const kit = makeDialer(members, { clock, openSocket, warm: 'auto', ...settings });
  const pass = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
  /**
   * Opens tunnels one after the other. Returns for each tunnel the turns of the event loop that it took, and the number
   * of writes to members.
   */
  const stream = async (count: number, request = {}) => {
    const took: Took[] = [];
    for (let tunnel = 0; tunnel < count; tunnel += 1) {
      const startedAt = clock.monotonic();
      const writesBefore = writes();
      const connection = connectionOf(await kit.dial(TARGET, request));
      took.push({ ms: clock.monotonic() - startedAt, writes: writes() - writesBefore });
      await echo(connection, 'hello');
      connection.socket.destroy();
      connection.end({ cut: false, answered: true });
      await pass(PAUSE_MS);
    }
    return took;
  };
  return { ...kit, clock, pass, stream, openedSockets, ports };
}

type OpenMember = FakePoolMember & { readonly at: TestMember };

async function openMembers(count: number, open: () => Promise<TestMember>): Promise<OpenMember[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, index) => ({ id: `m${index}`, at: await open() })),
  );
}

const isFast = ({ ms }: Pick<Took, 'ms'>) => ms < FLIGHT_MS;

test('warm: a tunnel on an open connection is hedged as late as one on a new connection', async () => {
  let answerMs = 0;
  const behavior: Behavior = async (socket, record) => {
    record(await readUntil(socket, '\r\n\r\n'));
    if (answerMs > 0) await pass(answerMs);
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    socket.pipe(socket);
  };
  const members = await openMembers(5, () => openMember('http', behavior));
  const { stream, pass, bus } = makeFarDialer(members, { hedgeAfter: 'auto' });
  const hedges = collect(bus, 'hedge.ended');
  await stream(30);
  answerMs = FLIGHT_MS * 0.7;
  const [paused] = await stream(1);
  expect(paused?.ms).toBeGreaterThanOrEqual(answerMs);
  expect(hedges).toEqual([]);
  answerMs = FLIGHT_MS * 10;
  await stream(1);
  expect(hedges).toHaveLength(1);
});

test('warm: in a steady stream each tunnel finds an open connection, and none is opened in vain', async () => {
  const members = await openMembers(5, () => openMember('http', httpBehavior()));
  const { stream, pool, openedSockets, dialer } = makeFarDialer(members);
  const took = await stream(30);
  expect(took.slice(0, 2).some(isFast)).toBe(false);
  expect(took.slice(3).every(isFast)).toBe(true);
  const used = pool.reports.flatMap((report) => (report.kind === 'accepted' ? [report.lease] : []));
  expect(used).toHaveLength(30);
  expect(openedSockets() - 30).toBe(dialer.openCount); // the connections that wait for the next tunnels
  expect(dialer.openCount).toBeLessThanOrEqual(3);
  expect(members.map(({ at }) => at.accepted).every((accepted) => accepted >= 6 && accepted <= 7)).toBe(true);
});

test('warm: connections opened ahead go through the front proxy', async () => {
  const front = FRONT_PROXIES.find(({ name }) => name === 'npm proxy-chain with a login');
  const members = await openMembers(5, () => openMember('http', httpBehavior()));
  const via = frontProxyAt((await front?.open()) ?? '');
  const { stream, openedSockets, ports, dialer } = makeFarDialer(members, { via });
  const took = await stream(30);
  expect(took.filter(isFast).length, 'tunnels that found an open connection').toBeGreaterThan(20);
  expect([...ports]).toEqual([via.port]);
  expect(openedSockets() - 30).toBe(dialer.openCount);
});

test('warm: the latency of a member is that of a new connection', async () => {
  const members = await openMembers(5, () => openMember('http', httpBehavior()));
  const { stream, pool } = makeFarDialer(members);
  await stream(10);
  const latencies = pool.reports.flatMap((report) =>
    report.kind === 'accepted' ? [{ ms: report.latencyMs ?? 0 }] : [],
  );
  expect(latencies.filter(isFast)).toEqual([]);
});

test.each<[string, number, Partial<DialerOptions> & { flightMs?: number }]>([
  ['a single tunnel', 1, {}],
  ['members on this machine', 20, { flightMs: 0 }],
  ['`off`', 20, { warm: 'off' }],
])('warm: %s opens nothing ahead', async (_, count, settings) => {
  const members = await openMembers(3, () => openMember('http', httpBehavior()));
  const { stream, openedSockets } = makeFarDialer(members, settings);
  await stream(count);
  expect(openedSockets()).toBe(count);
});

test('warm: a number is the maximum of warm connections for each source', async () => {
  const members = await openMembers(8, () => openMember('http', httpBehavior()));
  const { stream, dialer } = makeFarDialer(members, { warm: 1 });
  await stream(10);
  expect(dialer.openCount).toBe(1);
});

test('warm: without traffic the connections are closed, and this is reported to nobody', async () => {
  const members = await openMembers(5, () => openMember('http', httpBehavior()));
  const { stream, pass, dialer, pool, bus } = makeFarDialer(members);
  const attempts = collect(bus, 'dial.attempted');
  await stream(5);
  expect(dialer.openCount).toBeGreaterThan(0);
  await pass(10_000);
  expect(dialer.openCount).toBe(0);
  expect([attempts.length, pool.blames()]).toEqual([5, []]);
  await until('the members see the end', () => members.every(({ at }) => at.open === 0));
});

test('warm: no connection is kept longer than its member lives', async () => {
  const at = await openMember('http', httpBehavior());
  const { stream, pass, dialer } = makeFarDialer([{ id: 'm1', at, remainingMs: 1_000 }]);
  await stream(5);
  expect(dialer.openCount).toBe(1);
  await pass(1_000);
  expect(dialer.openCount).toBe(0);
});

test.each<[string, (socket: Socket) => void]>([
  ['closed', (socket) => socket.end()],
  ['reset', (socket) => socket.resetAndDestroy()],
])(
  'warm: a connection that is %s when it is used is replaced at once, and its member is not blamed',
  async (_, close) => {
    let isDead = false;
    const members = await openMembers(3, () =>
      openMember('http', (socket) => {
        socket.once('data', () => {
          if (isDead) return close(socket);
          socket.write('HTTP/1.1 200 OK\r\n\r\n');
          socket.pipe(socket);
        });
        socket.on('close', () => {
          isDead = false;
        });
      }),
    );
    const { stream, dial, pool, openedSockets } = makeFarDialer(members);
    await stream(6);
    const before = openedSockets();
    isDead = true;
    const connection = connectionOf(await dial(TARGET));
    await echo(connection, 'hello');
    expect(isDead).toBe(false);
    expect([connection.attempts, pool.blames()]).toEqual([1, []]);
    expect(openedSockets() - before).toBe(2); // one in place of the closed connection, and one for the next tunnel
  },
);

test('warm: a member that refuses a connection gets no other one for a while', async () => {
  const good = await openMember('http', httpBehavior());
  const closing = await openMember('http', (socket) => void socket.destroy());
  const members = [good, good, good, closing].map((at, index) => ({ id: `m${index}`, at }));
  const { stream, pool } = makeFarDialer(members, { attempts: 3 });
  pool.members = members.slice(0, 3);
  await stream(4);
  // This member is always the next one, but it is never leased.
  const last = members[3];
  if (last === undefined) throw new Error('no member');
  Object.defineProperty(pool, 'upcoming', { value: () => [{ member: last.id, source: 'city', ...last.at }] });
  await stream(10);
  expect(closing.accepted).toBe(1);
});

function socksSource(settings: Partial<SourceSettings>): Pick<DialerOptions, 'sources'> {
  const city: SourceSettings = {
    auth: { username: LOGIN.username, password: new Secret(LOGIN.password) },
    instance: '',
    neverInstance: true,
    forwardMode: 'direct',
    handshake: 'auto',
    ...settings,
  };
  return { sources: new Map([['city', city]]) };
}

const PATHS: readonly [string, () => Promise<TestMember>, Partial<SourceSettings>][] = [
  ['HTTP', () => openMember('http', httpBehavior()), { auth: 'none' }],
  ['HTTP over TLS', () => openMember('https', httpBehavior()), { auth: 'none' }],
  ['SOCKS4', () => openMember('socks4', socks4Behavior()), { auth: 'none' }],
  ['SOCKS5', () => openMember('socks5', socks5Behavior()), { auth: 'none' }],
  ['SOCKS5 with a login', () => openMember('socks5', socks5Behavior({ login: LOGIN })), {}],
  ['SOCKS5, plain', () => openMember('socks5', socks5Behavior()), { auth: 'none', handshake: 'plain' }],
  [
    'SOCKS5 with a login, plain',
    () => openMember('socks5', socks5Behavior({ login: LOGIN })),
    { handshake: 'plain' },
  ],
];

test.each(PATHS)(
  'warm: a tunnel through a member with %s costs one round trip',
  async (_, open, settings) => {
    const members = await openMembers(5, open);
    const { stream, pool } = makeFarDialer(members, socksSource(settings));
    const took = await stream(20);
    expect(took.slice(4).map(({ writes }) => writes)).toEqual(new Array(16).fill(1));
    expect(took.slice(4).every(isFast)).toBe(true);
    expect(pool.blames()).toEqual([]);
  },
);

test('warm: a reload closes all connections, so that none has an old login', async () => {
  const members = await openMembers(3, () => openMember('socks5', socks5Behavior({ login: LOGIN })));
  const { stream, dialer } = makeFarDialer(members, socksSource({ handshake: 'plain' }));
  await stream(6);
  expect(dialer.openCount).toBeGreaterThan(0);
  dialer.configure({
    attempts: 3,
    attemptTimeoutMs: 60_000,
    hedgeAfter: 'off',
    warm: 'auto',
    deadlineMs: 60_000,
    waitForMemberMs: 60_000,
    ...socksSource({}),
  });
  expect(dialer.openCount).toBe(0);
});

test('warm: a member that asks for no login gets none before the request', async () => {
  const at = await openMember('socks5', socks5Behavior());
  const { stream } = makeFarDialer([{ id: 'm1', at }], {
    ...socksSource({
      auth: 'auto',
      handshake: 'plain',
      neverInstance: false,
      password: new Secret('12345678'),
    }),
  });
  await stream(5);
  const logins = at.received.filter(([version]) => version === 1);
  expect(logins).toEqual([]);
});

test('warm: a plain HTTP request in absolute form may take a connection, and is retried if that was closed', async () => {
  const members = await openMembers(5, () =>
    openMember('http', async (socket, record) => {
      socket.on('data', (bytes) => {
        record(bytes);
        socket.write(bytes);
      });
    }),
  );
  const { stream, dial } = makeFarDialer(members, socksSource({ auth: 'none', forwardMode: 'absolute' }));
  const took = await stream(10, { use: 'forward' });
  expect(took.slice(3).every(isFast)).toBe(true);
  const reused = connectionOf(await dial(TARGET, { use: 'forward' }));
  expect([reused.forwardMode, reused.reused]).toEqual(['absolute', true]);
  const fresh = connectionOf(await dial(TARGET, { use: 'forward', noReuse: true }));
  expect(fresh.reused).toBe(false);
});

/** A dialer over a real pool, and the number of connections that each member has. */
async function makeFarPool(
  count: number,
  rotation: Parameters<typeof openDialerWithPool>[1]['rotation'] = {},
) {
  const clock = new LoopClock();
  const members = await openMembers(count, () => openMember('http', httpBehavior()));
  const { openSocket, openedSockets } = farSockets(clock, FLIGHT_MS);
  const addresses = members.map(({ at }) => at);
  const kit = openDialerWithPool(addresses, { clock, openSocket, warm: 'auto', rotation });
  const pass = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
  return { ...kit, pass, addresses, openedSockets };
}

test('warm: a session keeps one connection to its member, while it is used', async () => {
  const { tunnel, pass, addresses, dialer } = await makeFarPool(5);
  for (let time = 0; time < 10; time += 1) {
    await tunnel(TARGET, 'answered', { routing: { session: 'me' } });
    await pass(PAUSE_MS);
  }
  expect(dialer.openCount).toBe(1);
  expect(addresses.map(({ accepted }) => accepted).sort()).toEqual([0, 0, 0, 0, 11]);
  await pass(10_000);
  expect(dialer.openCount).toBe(0);
});

test('warm: with maxTunnelsPerMember 1, a member never has two connections', async () => {
  const { dial, pass, addresses, openedSockets } = await makeFarPool(3, { maxTunnelsPerMember: 1 });
  const connections = [];
  for (let time = 0; time < 13; time += 1) {
    const connection = connectionOf(await dial(TARGET));
    connections.push(connection);
    if (connections.length === 3) {
      for (const each of connections.splice(0)) {
        each.socket.destroy();
        each.end({ cut: false, answered: true });
      }
    }
    await pass(PAUSE_MS);
    expect(Math.max(...addresses.map(({ open }) => open))).toBeLessThanOrEqual(1);
  }
  expect(openedSockets()).toBeGreaterThan(13); // at least one connection waits for the next tunnel
});

test('warm: where it takes more round trips to open a connection, more of them are kept', async () => {
  const counts: number[] = [];
  for (const [name, open, settings] of PATHS) {
    if (name !== 'SOCKS5' && !name.endsWith('plain')) continue;
    const { stream, dialer } = makeFarDialer(await openMembers(12, open), socksSource(settings));
    await stream(12);
    counts.push(dialer.openCount);
  }
  const [pipelined = 0, plain = 0, plainLogin = 0] = counts;
  expect(plain).toBeGreaterThan(pipelined);
  expect(plainLogin).toBeGreaterThan(plain);
});
