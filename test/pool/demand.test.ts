import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { PoolSourceOptions } from '../../src/pool/options.ts';
import type { RefillPool } from '../../src/refill/options.ts';
import {
  accept,
  CITY,
  close,
  fail,
  lend,
  offer,
  openKit,
  pourMembers,
  refusal,
  request,
  use,
} from './pool-kit.ts';

const BACKUP: PoolSourceOptions = { ...CITY, name: 'backup', priority: 2 };

function wait(kit: ReturnType<typeof openKit>, routing: Parameters<typeof request>[0] = {}): void {
  const answer = kit.pool.acquire(request(routing, { waitMs: 15_000 }));
  if (!(answer instanceof Promise)) throw new Error('it need not wait');
}

test('demand: the pool is the reservoir that refill asks for', () => {
  const kit = openKit();
  const reservoir: RefillPool = kit.pool;
  expect(reservoir.addMembers('city', [offer(kit, 1)])).toEqual({ joined: 1, renewed: 0, rejected: 0 });
});

test('demand: what is usable at a moment, and when the next is lost, are as a walk over all would say', () => {
  const lives = fc.array(fc.integer({ min: 4, max: 60 }), { maxLength: 30 });
  fc.assert(
    fc.property(lives, fc.integer({ min: 0, max: 70 }), (seconds, at) => {
      const kit = openKit();
      for (const [number, life] of seconds.entries())
        kit.pool.addMembers('city', [offer(kit, number, life * 1_000)]);
      const ends = seconds.map((life) => (life - 3) * 1_000);
      const atMs = at * 1_000;
      expect(kit.pool.usableAt('city', atMs)).toBe(ends.filter((end) => end > atMs).length);
      const later = ends.filter((end) => end > atMs);
      expect(kit.pool.nextLossAt('city', atMs)).toBe(later.length === 0 ? undefined : Math.min(...later));
    }),
    { numRuns: 50 },
  );
});

test('demand: members in quarantine count from when they will be back, draining ones never', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  fail(kit, lend(kit));
  const tunnel = lend(kit);
  kit.pool.evict(tunnel.member);
  expect(kit.pool.usableAt('city', 9_999)).toBe(1);
  expect(kit.pool.usableAt('city', 10_000)).toBe(2);
});

test('demand: a member that rests until its end is missed once', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 60_000 } });
  pourMembers(kit, 1, 30_000);
  fail(kit, lend(kit));
  kit.pool.addMembers('city', [offer(kit, 9, 120_000)]);
  expect(kit.pool.usableAt('city', 28_000)).toBe(1);
});

test('demand: what is held counts those that rest, however long, and not those that drain', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 3 }] });
  pourMembers(kit, 3, 60_000);
  fail(kit, lend(kit));
  kit.pool.evict(lend(kit).member);
  expect([kit.pool.usableAt('city', 0), kit.pool.heldAt('city', 0)]).toEqual([1, 2]);
  expect(kit.pool.heldAt('city', 57_000)).toBe(0);
  expect(kit.pool.heldAt('nowhere', 0)).toBe(0);
});

test('demand: unproven members count, and those of a blocked source, since more of them would not help', () => {
  const kit = openKit();
  pourMembers(kit, 2);
  kit.pool.addMembers('city', [offer(kit, 9, 60_000, { unproven: true })]);
  kit.pool.blockSource('city', 'credentials refused');
  expect(kit.pool.usableAt('city', 0)).toBe(3);
});

test('demand: an unknown source has nothing and is not wanted', () => {
  const { pool } = openKit();
  expect(pool.usableAt('nowhere', 0)).toBe(0);
  expect(pool.nextLossAt('nowhere', 0)).toBeUndefined();
  expect(pool.demand('nowhere').waiting).toBe(0);
});

test('demand: start-up counts as a client, for sources of the first priority', () => {
  const kit = openKit({ sources: [BACKUP, CITY] });
  expect(kit.pool.demand('city').lastWantedAt).toBe(0);
  expect(kit.pool.demand('backup').lastWantedAt).toBe(Number.NEGATIVE_INFINITY);
});

test('demand: every client is one, also one with a session, and the first after a quiet time is told of', () => {
  const kit = openKit();
  pourMembers(kit, 2, 3_600_000);
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

test('demand: a later source is wanted for clients that no earlier one could serve, and no longer', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  kit.clock.advance(5_000);
  wait(kit);
  expect(kit.pool.demand('backup')).toMatchObject({ waiting: 1, lastWantedAt: 5_000 });
  kit.pool.addMembers('city', [offer(kit, 1)]);
  expect(kit.pool.demand('backup')).toMatchObject({ waiting: 0, lastWantedAt: Number.NEGATIVE_INFINITY });
  expect(kit.pool.demand('city').lastWantedAt).toBe(5_000);
});

test('demand: a client that names a source is a client of that one alone', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  kit.clock.advance(5_000);
  wait(kit, { source: 'backup' });
  expect(kit.pool.demand('backup')).toMatchObject({ waiting: 1, lastWantedAt: 5_000 });
  expect(kit.pool.demand('city')).toMatchObject({ waiting: 0, lastWantedAt: 0 });
});

test('demand: clients that a source could never serve are none of its own', () => {
  const kit = openKit({ sources: [{ ...CITY, couldHaveLocation: (keyword) => keyword === '广东' }] });
  pourMembers(kit, 1, 180_000);
  wait(kit, { location: '上海' });
  wait(kit, { protocol: 'socks5' });
  wait(kit, { minLifeMs: 3_600_000 });
  expect(kit.pool.demand('city').waiting).toBe(0);
  wait(kit, { location: '广东' });
  expect(kit.pool.demand('city').waiting).toBe(1);
});

test('demand: for each client that waits one member that cannot serve it is not counted, up to the size', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 }, sources: [{ ...CITY, size: 3 }] });
  pourMembers(kit, 5);
  for (let tunnel = 0; tunnel < 5; tunnel += 1) lend(kit);
  expect(kit.pool.usableAt('city', 0)).toBe(5);
  wait(kit);
  expect(kit.pool.usableAt('city', 0)).toBe(4);
  for (let more = 0; more < 9; more += 1) wait(kit);
  expect(kit.pool.usableAt('city', 0)).toBe(2);
});

test('demand: with maxUses members are used up as fast as clients come', () => {
  const kit = openKit({ rotation: { maxUsesPerMember: 2 } });
  for (let second = 0; second < 120; second += 1) {
    kit.pool.addMembers('city', [offer(kit, second)]);
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

test('demand: without limits nothing is used up', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  use(kit);
  expect(kit.pool.demand('city').usedUpPerSecond).toBe(0);
});

test('limits: no member has more tunnels, nor more uses than it may, whatever is under way', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 2, maxUsesPerMember: 3 } });
  pourMembers(kit, 1);
  const two = [lend(kit), lend(kit)];
  expect(refusal(kit).refused).toBe('pool-empty');
  for (const lease of two) {
    accept(kit, lease);
    close(kit, lease);
  }
  const third = lend(kit);
  expect(refusal(kit).refused, 'the third use is under way').toBe('pool-empty');
  fail(kit, third, 'target');
  const again = lend(kit);
  accept(kit, again);
  expect(kit.pool.members()).toMatchObject([{ state: 'draining', uses: 3 }]);
  close(kit, again);
  expect(kit.pool.members()).toEqual([]);
  expect(kit.pool.addMembers('city', [offer(kit, 0)]).rejected, 'used up is used up').toBe(1);
});
