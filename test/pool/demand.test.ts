import fc from 'fast-check';
import { expect, test } from 'vitest';
import { servedAt } from '../../src/pool/demand.ts';
import { NO_DEMAND } from '../../src/pool/drawn-member.ts';
import type { RoutingOptions } from '../../src/pool/lease.ts';
import { DEFAULT_SITE_RULE, type PoolSourceOptions } from '../../src/pool/options.ts';
import { RequestRate } from '../../src/pool/sites.ts';
import type { RefillPool } from '../../src/refill/options.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY, type PoolChanges, poolSettings } from '../support/pool-settings.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  openKit as openKitAt,
  refusal,
  request,
  use,
} from './pool-kit.ts';

/** Moments in these tests count from 0. */
const openKit = (changes: PoolChanges = {}) => openKitAt({ ...changes, clock: new ManualClock() });

const BACKUP: PoolSourceOptions = { ...CITY, name: 'backup', priority: 2 };

function wait(kit: ReturnType<typeof openKit>, routing: Parameters<typeof request>[0] = {}): void {
  const answer = kit.pool.acquire(request(routing, { waitMs: 15_000 }));
  if (!(answer instanceof Promise)) throw new Error('the request does not wait');
}

test('demand: refill can use the pool as it is', () => {
  const kit = openKit();
  const pool: RefillPool = kit.pool;
  expect(pool.addMembers('city', [drawn(kit, 1)])).toEqual({ joined: 1, renewed: 0, rejected: 0 });
});

test('demand: the usable members at a moment, and the next loss, match a count over all members', () => {
  const lives = fc.array(fc.integer({ min: 4, max: 60 }), { maxLength: 30 });
  fc.assert(
    fc.property(lives, fc.integer({ min: 0, max: 70 }), (seconds, at) => {
      const kit = openKit();
      for (const [number, life] of seconds.entries())
        kit.pool.addMembers('city', [drawn(kit, number, life * 1_000)]);
      const ends = seconds.map((life) => (life - 3) * 1_000);
      const atMs = at * 1_000;
      expect(kit.pool.stockAt('city', atMs).usable).toBe(ends.filter((end) => end > atMs).length);
      const later = ends.filter((end) => end > atMs);
      expect(kit.pool.nextLossAt('city', atMs)).toBe(later.length === 0 ? undefined : Math.min(...later));
    }),
    { numRuns: 50 },
  );
});

test('demand: quarantined members count from the end of their quarantine, draining ones never', () => {
  const kit = openKit();
  addMembers(kit, 3);
  fail(kit, acquire(kit));
  const tunnel = acquire(kit);
  kit.pool.evict(tunnel.member);
  expect(kit.pool.stockAt('city', 9_999).usable).toBe(1);
  expect(kit.pool.stockAt('city', 10_000).usable).toBe(2);
});

test('demand: a member quarantined until its end is subtracted once', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 60_000 } });
  addMembers(kit, 1, 30_000);
  fail(kit, acquire(kit));
  kit.pool.addMembers('city', [drawn(kit, 9, 120_000)]);
  expect([27_000, 28_000].map((at) => kit.pool.stockAt('city', at).usable)).toEqual([1, 1]);
});

test('demand: held members include quarantined ones, but not draining ones', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 3 }] });
  addMembers(kit, 3, 60_000);
  fail(kit, acquire(kit));
  kit.pool.evict(acquire(kit).member);
  expect([kit.pool.stockAt('city', 0).usable, kit.pool.stockAt('city', 0).held]).toEqual([1, 2]);
  expect(kit.pool.stockAt('city', 57_000).held).toBe(0);
  expect(kit.pool.stockAt('nowhere', 0).held).toBe(0);
});

test('demand: unproven members and those of a blocked source count as usable', () => {
  const kit = openKit();
  addMembers(kit, 2);
  kit.pool.addMembers('city', [drawn(kit, 9, 60_000, { unproven: true })]);
  kit.pool.blockSource('city', 'credentials refused');
  expect(kit.pool.stockAt('city', 0).usable).toBe(3);
});

test('demand: an unknown source has no members and no demand', () => {
  const { pool } = openKit();
  expect(pool.stockAt('nowhere', 0).usable).toBe(0);
  expect(pool.nextLossAt('nowhere', 0)).toBeUndefined();
  expect(pool.demand('nowhere').waiting).toBe(0);
});

test('demand: only clients are demand, neither the start nor a new source', () => {
  const kit = openKit({ sources: [CITY] });
  kit.clock.advance(5_000);
  kit.pool.reconfigure(poolSettings({ sources: [CITY, BACKUP] }));
  for (const name of ['city', 'backup']) expect(kit.pool.demand(name)).toEqual(NO_DEMAND);
});

test('demand: every request is recorded, also with a session, and the first after a quiet time emits demand.rose', () => {
  const kit = openKit();
  addMembers(kit, 2, 3_600_000);
  kit.clock.advance(10_000);
  use(kit, { session: 'abc' });
  expect(kit.pool.demand('city').lastWantedAt).toBe(10_000);
  kit.clock.advance(10_000);
  use(kit, { session: 'abc' });
  expect(kit.pool.demand('city').lastWantedAt).toBe(20_000);
  kit.clock.advance(10_000);
  use(kit);
  use(kit);
  expect(kit.pool.demand('city').lastWantedAt).toBe(30_000);
  expect(kit.events('demand.rose').map(({ sources }) => sources)).toEqual([['city'], ['city'], ['city']]);
});

test('demand: a source of a later priority is wanted only while no earlier one can serve', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  kit.clock.advance(5_000);
  wait(kit);
  expect(kit.pool.demand('backup')).toMatchObject({ waiting: 1, lastWantedAt: 5_000 });
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  expect(kit.pool.demand('backup')).toMatchObject({ waiting: 0, lastWantedAt: Number.NEGATIVE_INFINITY });
  expect(kit.pool.demand('city').lastWantedAt).toBe(5_000);
});

test('demand: a client that names a source is demand for that source alone', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  kit.clock.advance(5_000);
  wait(kit, { source: 'backup' });
  expect(kit.pool.demand('backup')).toMatchObject({ waiting: 1, lastWantedAt: 5_000 });
  expect(kit.pool.demand('city')).toMatchObject({ waiting: 0, lastWantedAt: Number.NEGATIVE_INFINITY });
});

test('demand: clients that a source can never serve are not its demand', () => {
  const kit = openKit({
    sources: [
      { ...CITY, locationParams: { adr: '广东' } },
      { ...CITY, name: 'any', priority: 2 },
    ],
  });
  for (const source of ['city', 'any']) kit.pool.addMembers(source, [drawn(kit, 1)]);
  wait(kit, { location: '上海' });
  wait(kit, { protocol: 'socks5' });
  wait(kit, { minLifeMs: 3_600_000 });
  expect(kit.pool.demand('city').waiting).toBe(0);
  wait(kit, { location: '广东' });
  expect(kit.pool.demand('city').waiting).toBe(1);
});

test('demand: each waiting client reduces the usable members by one, up to the size', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 }, sources: [{ ...CITY, size: 3 }] });
  addMembers(kit, 5);
  for (let tunnel = 0; tunnel < 5; tunnel += 1) acquire(kit);
  expect(kit.pool.stockAt('city', 0).usable).toBe(5);
  wait(kit);
  expect(kit.pool.stockAt('city', 0).usable).toBe(4);
  for (let more = 0; more < 9; more += 1) wait(kit);
  expect(kit.pool.stockAt('city', 0).usable).toBe(2);
});

test('demand: with maxUsesPerMember, members are used up at the rate of requests', () => {
  const kit = openKit({ rotation: { maxUsesPerMember: 2 } });
  for (let second = 0; second < 120; second += 1) {
    kit.pool.addMembers('city', [drawn(kit, second)]);
    use(kit);
    use(kit);
    kit.clock.advance(1_000);
  }
  expect(kit.events('member.left').every(({ reason, uses }) => reason === 'used-up' && uses === 2)).toBe(
    true,
  );
  expect(kit.pool.demand('city').usedUpPerSecond).toBeGreaterThan(0.9);
  expect(kit.pool.demand('city').usedUpPerSecond).toBeLessThan(1.1);
  kit.clock.advance(300_000);
  expect(kit.pool.demand('city').usedUpPerSecond).toBeLessThan(0.001);
});

test('demand: the rate of requests follows the last minute, and few requests the last five minutes', () => {
  const kit = openKit();
  const rate = () => Math.round(kit.pool.demand('city').perSecond * 60 * 10) / 10;
  expect(rate()).toBe(0);
  kit.pool.addMembers('city', [drawn(kit, 1, 3_600_000)]);
  for (let minute = 0; minute < 5; minute += 1) {
    use(kit);
    kit.clock.advance(30_000);
    use(kit);
    kit.clock.advance(30_000);
  }
  expect(rate(), 'one request each 30 s').toBeCloseTo(2, 0);
  for (let second = 0; second < 60; second += 1) {
    use(kit);
    use(kit);
    kit.clock.advance(1_000);
  }
  expect(rate(), 'two requests a second').toBeGreaterThan(110);
  kit.clock.advance(120_000);
  expect(rate()).toBeLessThan(60);
  kit.clock.advance(200_000);
  expect(kit.pool.demand('city').perSecond).toBe(0);
});

test('demand: after a quiet time the rate follows the first requests within half a minute', () => {
  const kit = openKit();
  kit.clock.advance(600_000);
  kit.pool.addMembers('city', [drawn(kit, 1, 3_600_000)]);
  for (let second = 0; second < 30; second += 1) {
    use(kit);
    kit.clock.advance(1_000);
  }
  expect(kit.pool.demand('city').perSecond).toBeCloseTo(1, 1);
});

test('demand: sessions used in the last minute and open tunnels each need members', () => {
  const kit = openKit();
  addMembers(kit, 2);
  for (const session of ['a', 'b', 'c']) use(kit, { session });
  kit.clock.advance(1_000);
  expect(kit.pool.demand('city').held).toBe(3);
  kit.clock.advance(58_000);
  expect(kit.pool.demand('city').held).toBe(3);
  kit.clock.advance(1_000);
  expect(kit.pool.demand('city').held).toBe(0);
  for (let tunnel = 0; tunnel < 17; tunnel += 1) acquire(kit);
  expect(kit.pool.demand('city').held).toBe(2);
});

test('demand: without limits no member is used up', () => {
  const kit = openKit();
  addMembers(kit, 1);
  use(kit);
  expect(kit.pool.demand('city').usedUpPerSecond).toBe(0);
});

test('limits: leases in flight count towards the tunnels and uses of a member', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 2, maxUsesPerMember: 3 } });
  addMembers(kit, 1);
  const two = [acquire(kit), acquire(kit)];
  expect(refusal(kit).code).toBe('pool-empty');
  for (const lease of two) {
    accept(kit, lease);
    close(kit, lease);
  }
  const third = acquire(kit);
  expect(refusal(kit).code, 'the third use is in flight').toBe('pool-empty');
  fail(kit, third, 'target');
  const again = acquire(kit);
  accept(kit, again);
  expect(kit.pool.members()).toMatchObject([{ state: 'draining', uses: 3 }]);
  close(kit, again);
  expect(kit.pool.members()).toEqual([]);
  expect(kit.pool.addMembers('city', [drawn(kit, 0)]).rejected, 'a used-up member cannot come back').toBe(1);
});

/** Bans every member for the host to which all requests of these tests go. */
function banAll(kit: ReturnType<typeof openKit>): void {
  for (const { id } of kit.pool.members())
    kit.pool.ban({ holder: { member: id }, host: 'example.com', verdict: 'banned' });
}

test.each([
  ['a client', {}],
  ['a session client', { session: 'abc' }],
])('demand: %s whose target has banned every member needs a draw, above the size too', async (_, routing) => {
  const kit = openKit({ sources: [{ ...CITY, size: 2 }] });
  addMembers(kit, 3);
  use(kit, routing);
  banAll(kit);
  const client = kit.pool.acquire(request(routing, { waitMs: 15_000 }));
  expect(kit.pool.demand('city').waiting).toBe(1);
  expect([
    kit.pool.stockAt('city', 0).usable,
    kit.pool.stockAt('city', 0).counted,
    kit.pool.stockAt('city', 0).held,
  ]).toEqual([1, 1, 1]);
  kit.pool.addMembers('city', [drawn(kit, 9)]);
  await expect(client).resolves.toMatchObject({ source: 'city' });
  expect([kit.pool.stockAt('city', 0).usable, kit.pool.stockAt('city', 0).held]).toEqual([4, 4]);
});

test('demand: a member that is banned for another host, or only full, still counts for a waiting client', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 2 }], rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 3);
  for (const { id } of kit.pool.members())
    kit.pool.ban({ holder: { member: id }, host: 'other.example', verdict: 'banned' });
  for (let tunnel = 0; tunnel < 3; tunnel += 1) acquire(kit);
  wait(kit);
  expect([kit.pool.stockAt('city', 0).usable, kit.pool.stockAt('city', 0).held]).toEqual([2, 3]);
});

test('demand: of clients that wait, the 1st, 2nd, 4th and 8th emit demand.rose', () => {
  const kit = openKit();
  const emitted = Array.from({ length: 9 }, () => {
    const before = kit.events('demand.rose').length;
    wait(kit);
    return kit.events('demand.rose').length - before;
  });
  // The first one also ends a quiet time.
  expect(emitted).toEqual([2, 1, 0, 1, 0, 0, 0, 1, 0]);
});

test('demand: the exits that a site needs are shared between sources by their requests', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  for (const source of ['city', 'town'])
    for (let number = 0; number < 30; number += 1)
      kit.pool.addMembers(source, [drawn(kit, number + (source === 'city' ? 0 : 30), 7_200_000)]);
  kit.pool.sites.of('example.com').adoptSpacing(8_000, 0);
  for (let second = 0; second < 120; second += 1) {
    for (const source of ['city', 'city', 'city', 'town']) use(kit, { source });
    kit.clock.advance(1_000);
  }
  expect([kit.pool.demand('city').held, kit.pool.demand('town').held], 'four a second, 8 s apart').toEqual([
    24, 8,
  ]);
});

test('demand: needs are counted once a second, of sessions with a member only', () => {
  const kit = openKitAt();
  addMembers(kit, 2);
  kit.clock.advance(1_000);
  use(kit, { session: 'a' });
  expect(kit.pool.demand('city').held).toBe(1);
  use(kit, { session: 'b' });
  kit.clock.advance(999);
  expect(kit.pool.demand('city').held).toBe(1);
  kit.clock.advance(1);
  expect(kit.pool.demand('city').held).toBe(2);
  kit.pool.evict(kit.pool.members()[0]?.id ?? '');
  kit.clock.advance(1_000);
  expect(kit.pool.demand('city').held).toBe(1);
});

test.each([
  ['maxTunnelsPerMember', 4, 9, 3],
  ['sixteen without a limit', 0, 33, 3],
])('demand: open tunnels need a member for each %s', (_, maxTunnelsPerMember, tunnels, expected) => {
  const kit = openKit({ rotation: { maxTunnelsPerMember } });
  addMembers(kit, 5);
  for (let count = 0; count < tunnels; count += 1) acquire(kit);
  expect(kit.pool.demand('city').held).toBe(expected);
});

test('demand: a ban makes clients that wait for the member demand, and one for another site does not', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 }, sources: [CITY, BACKUP] });
  addMembers(kit, 1);
  acquire(kit);
  kit.clock.advance(5_000);
  for (let client = 0; client < 2; client += 1) wait(kit);
  void kit.pool.acquire(request({}, { waitMs: 15_000, targetHost: 'other.example' }));
  expect(kit.pool.demand('city')).toMatchObject({ waiting: 3, stranded: 0 });
  const before = kit.events('demand.rose').length;
  banAll(kit);
  expect(kit.pool.demand('city')).toMatchObject({ waiting: 3, stranded: 2 });
  expect(kit.events('demand.rose').slice(before)).toEqual([{ sources: ['city', 'backup'] }]);
  kit.pool.banExit({ host: 'nobody.example', exit: '203.0.0.1', evidence: 'report' });
  expect(kit.events('demand.rose').slice(before), 'nobody waits for that site').toHaveLength(1);
});

test('demand: stranded clients count at most the size, and per site what drawsForBans allows', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 4 }] });
  const { rule } = kit.pool.sites.of('example.com');
  kit.pool.reconfigure(
    poolSettings({
      sources: [{ ...CITY, size: 4 }],
      targets: [{ ...rule, match: ['example.com'], drawsForBans: 2 }],
    }),
  );
  addMembers(kit, 2);
  banAll(kit);
  const waitAt = (targetHost: string) => {
    if (targetHost !== 'example.com')
      for (const { id } of kit.pool.members())
        kit.pool.ban({ holder: { member: id }, host: targetHost, verdict: 'banned' });
    void kit.pool.acquire(request({}, { waitMs: 15_000, targetHost }));
    return kit.pool.demand('city').stranded;
  };
  expect(['example.com', 'example.com', 'example.com'].map(waitAt)).toEqual([1, 2, 2]);
  expect(['a.test', 'b.test', 'c.test'].map(waitAt)).toEqual([3, 4, 4]);
});

test('demand: a client is demand for the later source if only that one can draw its location', () => {
  const kit = openKit({ sources: [{ ...CITY, locationParams: { adr: '广东' } }, BACKUP] });
  wait(kit, { location: '上海' });
  expect([kit.pool.demand('city').waiting, kit.pool.demand('backup').waiting]).toEqual([0, 1]);
});

test('demand: a draw counts against the bans of a site if some exit is banned there, not if all are only spaced', () => {
  for (const [bans, draws] of [
    [0, 0],
    [1, 1],
    [2, 1],
  ] as const) {
    const kit = openKit();
    const { rule } = kit.pool.sites.of('example.com');
    const targets = [{ ...rule, match: ['example.com'], spacing: 60_000 }];
    kit.pool.reconfigure(poolSettings({ targets }));
    addMembers(kit, 2);
    const members = [acquire(kit).member, acquire(kit).member];
    for (const id of members.slice(0, bans))
      kit.pool.ban({ holder: { member: id }, host: 'example.com', verdict: 'banned' });
    wait(kit);
    kit.pool.addMembers('city', [drawn(kit, 7), drawn(kit, 8)]);
    expect(kit.pool.sites.views()).toMatchObject([{ draws }]);
  }
});

test('demand: the first request of a session after a quiet time emits demand.rose once, with and without a search', () => {
  const kit = openKit();
  addMembers(kit, 2, 3_600_000);
  const counts = [10_000, 10_000, 1_000, 1_001].map((ms) => {
    kit.clock.advance(ms);
    use(kit, { session: 'abc' });
    return kit.events('demand.rose').length;
  });
  expect(counts).toEqual([1, 2, 2, 3]);
});

/** Requests at these seconds, and the rate at a later second. */
test.each<[string, readonly number[], number, number]>([
  ['none', [], 10, 0],
  ['one is no rate', [10], 20, 0],
  ['two in a minute', [0, 60], 65, 1 / 65],
  ['the second one after a quiet time, as if in half a minute', [100, 101], 102, 1 / 30],
  ['of a minute, if it has twenty', [...Array(300).keys()], 299, 65 / 64],
  ['of the last minute only', [...Array(100).fill(150), ...Array(60).fill(399)], 400, 1],
  ['of five minutes', [100, 150, 200, 250, 300], 350, 4 / 250],
  ['five minutes later', [10, 11, 12], 320, 0],
  ['one is no rate, at once', [10], 10, 0],
  ['after five minutes', Array(100).fill(0), 300, 0],
  ['twenty lately, and one before', [150, ...Array(20).fill(395)], 400, 1 / 3],
  ['nineteen lately, and one before', [150, ...Array(19).fill(395)], 400, 19 / 250],
  ['long after', Array(100).fill(10), 100_000, 0],
  ['after a long time, again', [...Array(100).fill(10), 5_000, 5_010], 5_020, 1 / 30],
])('demand: the rate of requests: %s', (_, seconds, at, expected) => {
  const rate = new RequestRate();
  for (const second of seconds) rate.add(second * 1_000);
  expect(rate.perSecond(at * 1_000)).toBeCloseTo(expected, 3);
  expect(rate.perSecond(at * 1_000) === 0).toBe(expected === 0);
});

test('demand: of the clients of a site, each has the next exit after its ban and its spacing, in turns', () => {
  /** When the exits of the held members are free, and which client is served when. */
  const cases: [free: number[], spacingMs: number, ahead: number, served: number][] = [
    [[], 0, 0, Number.POSITIVE_INFINITY],
    [[], 10, 3, Number.POSITIVE_INFINITY],
    [[0, 50], 0, 0, 0],
    [[50, 0], 0, 5, 0],
    [[50, 30], 0, 0, 30],
    [[50, 30], 0, 1, 50],
    [[50, 30], 0, 2, 30],
    [[0, 30], 100, 0, 0],
    [[50, 0], 100, 1, 50],
    [[50, 0], 100, 2, 100],
    [[50, 0], 100, 5, 250],
    [[50, 0, 20], 100, 4, 120],
    [[99], 0, 0, 99],
    [[100], 0, 0, Number.POSITIVE_INFINITY],
  ];
  for (const [free, spacingMs, ahead, served] of cases) {
    const kit = openKitAt({
      safetyMarginMs: 0,
      targets: [{ ...DEFAULT_SITE_RULE, match: ['example.com'], spacing: spacingMs }],
    });
    addMembers(kit, free.length, 100);
    const { parts, sites } = kit.pool;
    const candidates = parts.members.index.find({}, 0);
    kit.pool.addMembers('city', [drawn(kit, 30, 9)]); // too short for the client
    for (const [number, forMs] of free.entries())
      if (forMs > 0)
        kit.pool.banExit({ host: 'example.com', exit: drawn(kit, number).host, evidence: 'report', forMs });
    const now = kit.clock.monotonic();
    const at = servedAt(request({ minLifeMs: 10 }), candidates, sites, now, ahead) - now;
    expect(Math.max(0, at), JSON.stringify({ free, spacingMs, ahead })).toBe(served);
  }
});

test('demand: a client that an exit serves within a third of its wait needs no draw', () => {
  const needs = (forMs: number, waitMs: number, laterMs = 0) => {
    const kit = openKit();
    addMembers(kit, 1);
    kit.pool.banExit({ host: 'example.com', exit: '203.0.0.1', evidence: 'report', forMs });
    void kit.pool.acquire(request({}, { waitMs }));
    kit.clock.advance(laterMs);
    const { waiting, stranded } = kit.pool.demand('city');
    return [waiting, stranded];
  };
  expect([needs(5_000, 15_000), needs(5_001, 15_000), needs(5_001, 15_000, 1)]).toEqual([
    [0, 0],
    [1, 1],
    [1, 0],
  ]);
});

test('demand: clients of a blocked source, or that no draw would help, are not stranded', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  addMembers(kit, 1);
  use(kit, { session: 'f', fixed: true });
  banAll(kit);
  const clients: RoutingOptions[] = [
    {},
    { source: 'backup' },
    { session: 'f', fixed: true },
    { minLifeMs: 180_001 },
  ];
  fail(kit, acquire(kit, {}, { targetHost: 'other.example' }));
  for (const routing of clients)
    void kit.pool.acquire(
      request(routing, { waitMs: 15_000, ...('fixed' in routing && { targetHost: 'x.example' }) }),
    );
  const stranded = () =>
    ['city', 'backup'].map((name) => kit.pool.demand(name)).map((one) => [one.waiting, one.stranded]);
  expect(stranded()).toEqual([
    [2, 1],
    [3, 3],
  ]);
  kit.pool.blockSource('city', 'bad login');
  expect(stranded()[0]).toEqual([0, 0]);
});

test('demand: what an empty source can draw is not known, so each client is its demand', () => {
  const kit = openKit();
  const waiting = [{ protocol: 'socks5' as const }, { minLifeMs: 7_200_000 }, { location: 'east' }].map(
    (routing) => {
      wait(kit, routing);
      return kit.pool.demand('city').waiting;
    },
  );
  expect(waiting).toEqual([1, 2, 3]);
});

test('demand: a draw counts against the bans once for each member that joined for a client', () => {
  const kit = openKit();
  addMembers(kit, 1);
  banAll(kit);
  for (let client = 0; client < 3; client += 1) wait(kit);
  void kit.pool.acquire(request({}, { waitMs: 15_000, targetHost: 'other.example' }));
  kit.pool.addMembers('city', [drawn(kit, 7)]);
  const draws = () => kit.pool.sites.byName.get('example.com')?.drawCount;
  expect(draws()).toBe(1);
  kit.pool.addMembers('city', [drawn(kit, 7), drawn(kit, 8, 0)]);
  expect(draws(), 'none joined').toBe(1);
});

test('demand: a ban that now ends soon takes the need of a draw back', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const ban = (forMs: number) => {
    for (const { host } of kit.pool.members())
      kit.pool.banExit({ host: 'example.com', exit: host, evidence: 'report', forMs });
  };
  ban(60_000);
  for (let client = 0; client < 3; client += 1) wait(kit);
  void kit.pool.acquire(request({}, { waitMs: 15_000, targetHost: 'other.example', avoid: [] }));
  const waiting = () => kit.pool.demand('city').waiting;
  expect(waiting()).toBe(3);
  ban(1_000);
  expect(waiting()).toBe(0);
  ban(60_000);
  expect(waiting()).toBe(3);
});

test('demand: a client that waits for the rate of its site asks for nothing', () => {
  const kit = openKit({ targets: [{ ...DEFAULT_SITE_RULE, match: ['example.com'], rate: 1 }] });
  addMembers(kit, 1);
  use(kit);
  const before = kit.events('demand.rose').length;
  kit.clock.advance(1);
  wait(kit);
  expect(kit.events('demand.rose').length - before).toBe(0);
  expect(kit.pool.demand('city').waiting).toBe(0);
});

test('demand: a fixed session needs a draw only before it has a member', () => {
  const kit = openKit();
  wait(kit, { session: 'f', fixed: true });
  expect(kit.pool.demand('city').waiting).toBe(1);
});

test('demand: two sources of one priority, and a client that only the second can serve', () => {
  const kit = openKit({
    sources: [
      { ...CITY, locationParams: { adr: '广东' } },
      { ...CITY, name: 'town' },
    ],
  });
  wait(kit, { location: '上海' });
  expect([kit.pool.demand('city').waiting, kit.pool.demand('town').waiting]).toEqual([0, 1]);
});
