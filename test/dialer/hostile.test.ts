/**
 * What a client, a target or a few members can do to the other members of a pool. The tests use real sockets and a real
 * pool.
 */
import { expect, test } from 'vitest';
import { CLIENT_BURST } from '../../src/dialer/limits.ts';
import {
  type Behavior,
  closingBehavior,
  httpBehavior,
  openMember,
  readUntil,
} from '../support/bad-members.ts';
import { runsOf } from '../support/properties.ts';
import { until } from '../support/until.ts';
import { failureOf } from './make-dialer.ts';
import { copies, makeDialerWithPool } from './real-pool.ts';

const DEAD = /dead|:25 /;

/** Accepts every target except dead ones, to which it answers with `behavior`. */
function worksBut(behavior: Behavior, dead = DEAD): Behavior {
  return async (socket, record) => {
    const head = await readUntil(socket, '\r\n\r\n');
    if (dead.test(head.toString('latin1'))) {
      socket.unshift(head);
      await behavior(socket, record);
    } else {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(socket);
    }
  };
}

const answering = (status: string) => httpBehavior(`HTTP/1.1 ${status}\r\nContent-Length: 0\r\n\r\n`);

test('hostile: a target that hangs up on every tunnel costs no member anything', async () => {
  const { pool, tunnel, quarantined, left } = makeDialerWithPool(
    copies(await openMember('http', httpBehavior()), 5),
  );
  for (let round = 0; round < 20; round += 1) {
    for (let time = 0; time < 5; time += 1) await tunnel('evil.example:443', 'cut');
    await tunnel('good.example:443', 'answered');
  }
  expect([quarantined, left, pool.members().map(({ state }) => state)]).toEqual([
    [],
    [],
    new Array(5).fill('ready'),
  ]);
});

test('hostile: many names that hang up cost members that work nothing, also while no client is served', async () => {
  const { clock, pool, tunnel, quarantined, left, openProber } = makeDialerWithPool(
    copies(await openMember('http', httpBehavior()), 20),
  );
  openProber();
  const names = runsOf(400);
  for (let time = 0; time < 10; time += 1) await tunnel('good.example:443', 'answered');
  for (let time = 0; time < names; time += 1) await tunnel(`evil${time}.example:443`, 'cut');
  expect([quarantined, left]).toEqual([[], []]);
  clock.advance(60_001);
  for (let time = 0; time < names; time += 1) {
    await tunnel(`evil${time}.example:443`, 'cut');
    clock.advance(20);
  }
  await until('no probe runs', () => pool.members().every(({ openTunnels }) => openTunnels === 0));
  expect([quarantined, left]).toEqual([[], []]);
});

test('hostile: of members that reach no target, a tenth is replaced to find out whether others do', async () => {
  const { clock, pool, dial, left, openProber } = makeDialerWithPool(
    copies(await openMember('http', answering('502 Bad Gateway')), 20),
  );
  openProber();
  for (let time = 0; time < 400; time += 1) {
    await dial(`site${time}.example:443`);
    clock.advance(20);
  }
  await until('no probe runs', () => pool.members().every(({ openTunnels }) => openTunnels === 0));
  expect([left, pool.stockAt('city', clock.monotonic()).counted]).toEqual([[], 18]);
});

test('hostile: a port that every unproven member refuses costs no member anything', async () => {
  const members = copies(await openMember('http', worksBut(answering('403 Forbidden'))), 20);
  const { dial, tunnel, quarantined, left } = makeDialerWithPool(members);
  for (let time = 0; time < 4; time += 1) {
    expect(failureOf(await dial('mail.example:25')).attempts).toBeLessThanOrEqual(3);
  }
  expect([quarantined, left]).toEqual([[], []]);
  await tunnel('good.example:443', 'answered');
});

test.each([
  ['answer 500', answering('500 Unable to connect')],
  ['answer 404', answering('404 Not Found')],
  ['answer 400', answering('400 Bad Request')],
  ['answer 403', answering('403 Forbidden')],
  ['hang up', closingBehavior],
])(
  'hostile: dead targets to which members %s are reported at once, and no member is quarantined',
  async (_, behavior) => {
    const members = copies(await openMember('http', worksBut(behavior)), 6);
    const { dial, tunnel, quarantined, left } = makeDialerWithPool(members);
    for (const name of ['dead1', 'dead2', 'dead3', 'dead4']) {
      const failure = failureOf(await dial(`${name}.example:443`));
      expect(failure.code).toBe('target-unreachable');
      expect(failure.attempts).toBeLessThanOrEqual(3);
      await tunnel('live.example:443', 'answered');
    }
    for (let time = 0; time < 6; time += 1) await tunnel('live.example:443', 'answered');
    expect(failureOf(await dial('dead5.example:443')).attempts).toBe(2);
    expect([quarantined, left]).toEqual([[], []]);
  },
);

test('hostile: beyond its budget, a failing client gets one attempt for each request, and others as many as before', async () => {
  const members = copies(await openMember('http', worksBut(answering('502 Bad Gateway'))), 20);
  const { dial, tunnel, clock } = makeDialerWithPool(members);
  for (let time = 0; time < 20; time += 1) await tunnel('good.example:443', 'answered');
  const mallory = { routing: { client: 'mallory' } };
  const attempts = async (request: object) => failureOf(await dial('dead.example:443', request)).attempts;
  let total = 0;
  for (let time = 0; time < 300; time += 1) total += await attempts(mallory);
  expect(total).toBeGreaterThanOrEqual(300 + CLIENT_BURST);
  expect(total).toBeLessThanOrEqual(300 + CLIENT_BURST + 45);
  expect(await attempts({ routing: { client: 'alice' } })).toBe(2);
  const retry = { ...mallory, avoid: ['a member that failed'] };
  expect(await attempts(retry)).toBe(0);
  await tunnel('good.example:443', 'answered', mallory);
  clock.advance(1_000);
  expect(await attempts(mallory)).toBe(2);
});

test('hostile: with one member, a dead target does not wait for another member for long', async () => {
  const members = copies(await openMember('http', worksBut(answering('500 Oops'))), 1);
  const { dial, dialer, pool } = makeDialerWithPool(members, { deadlineMs: 60_000 });
  const waits: number[] = [];
  const acquire = pool.acquire.bind(pool);
  pool.acquire = (request) => {
    waits.push(request.waitMs);
    return acquire({ ...request, waitMs: 0 });
  };
  expect(failureOf(await dial('dead.example:443')).attempts).toBe(1);
  expect(waits).toEqual([15_000, 2_000]);
  expect(dialer.openCount).toBe(0);
});

test('hostile: a member that fails one client for two targets gets no clients until its probe decides; for one target it is not probed', async () => {
  const bad = await openMember('http', closingBehavior);
  const good = await openMember('http', httpBehavior());
  const { pool, clock, tunnel, left, quarantined, openProber } = makeDialerWithPool([
    ...copies(bad, 1),
    ...copies(good, 3, 2),
  ]);
  const badId = pool.members().find(({ port }) => port === bad.port)?.id;
  openProber();
  for (let time = 0; time < 4; time += 1) {
    for (let use = 0; use < 4; use += 1) await tunnel('one.example:443', 'answered');
    clock.advance(10_000 * 2 ** time);
  }
  expect([left, quarantined.length, new Set(quarantined.map(({ member }) => member))]).toEqual([
    [],
    4,
    new Set([badId]),
  ]);
  for (let use = 0; use < 4; use += 1) await tunnel('two.example:443', 'answered');
  expect([left, pool.stockAt('city', clock.monotonic()).counted], 'one client alone').toEqual([[], 4]);
  clock.advance(1_000);
  await until('the probe has decided', () => left.length > 0);
  expect(left).toMatchObject([{ member: badId, reason: 'failed', fault: 'member-closed' }]);
});

test('hostile: a client whose targets refuse some members cannot keep them from other clients', async () => {
  const members = [
    ...copies(await openMember('http', httpBehavior()), 1),
    ...copies(await openMember('http', worksBut(answering('502 Bad Gateway'), /evil/)), 9, 2),
  ];
  const { dial, tunnel, quarantined, left } = makeDialerWithPool(members);
  const mallory = { routing: { client: 'mallory' } };
  await tunnel('good.example:443', 'answered', { routing: { client: 'alice' } });
  let reached = 0;
  for (let time = 0; time < 40; time += 1) {
    const result = await dial(`evil${time % 3}.example:443`, mallory);
    if (!result.ok) continue;
    reached += 1;
    result.connection.socket.destroy();
    result.connection.end({ cut: false, answered: true });
  }
  expect(reached).toBeGreaterThan(3);
  expect([quarantined, left]).toEqual([[], []]);
});

test('hostile: members that fail for two targets of two clients are evicted', async () => {
  const bad = await openMember('http', closingBehavior);
  const good = await openMember('http', httpBehavior());
  const { clock, pool, tunnel, left } = makeDialerWithPool([...copies(good, 3), ...copies(bad, 1)]);
  const badId = pool.members().find(({ port }) => port === bad.port)?.id;
  for (const client of ['alice', 'bob', 'alice', 'bob']) {
    for (let use = 0; use < 4; use += 1) {
      await tunnel(`${client}.example:443`, 'answered', { routing: { client } });
    }
    clock.advance(10_000);
  }
  expect(left).toMatchObject([{ member: badId, reason: 'failed' }]);
});

test.each([
  ['hang up', closingBehavior],
  ['reach no target', answering('502 Bad Gateway')],
])(
  'hostile: with one client, a pool of members that %s is replaced once a new member works',
  async (_, behavior) => {
    const bad = await openMember('http', behavior);
    const good = await openMember('http', httpBehavior());
    const settings = { waitForMemberMs: 0 };
    const { pool, clock, dial, left, openProber } = makeDialerWithPool(copies(bad, 10), settings);
    openProber();
    let drawn = 0;
    const refill = () => {
      while (pool.stockAt('city', clock.monotonic()).counted < 10) {
        drawn += 1;
        const at = { protocol: 'http', host: `127.0.1.${drawn}`, port: good.port } as const;
        pool.addMembers('city', [{ ...at, endsAt: clock.monotonic() + 1_800_000, unproven: false }]);
      }
    };
    for (let time = 0; time < 200; time += 1) {
      const result = await dial(`site${time % 9}.example:443`);
      if (result.ok) {
        result.connection.socket.destroy();
        result.connection.end({ cut: false, answered: true });
      }
      clock.advance(1_000);
      await until('no probe runs', () => pool.members().every(({ openTunnels }) => openTunnels === 0));
      refill();
    }
    expect([left.length, drawn]).toEqual([10, 10]);
    expect(pool.members().filter(({ port }) => port === bad.port)).toEqual([]);
  },
);
