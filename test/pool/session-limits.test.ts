/** A client's sessions are limited, so that one client's sessions never displace those of others. */

import { expect, test } from 'vitest';
import { HOUR_MS } from '../../src/core/duration.ts';
import { poolSettings } from '../support/pool-settings.ts';
import { runsOf } from '../support/properties.ts';
import { accept, acquire, addMembers, close, openKit, type PoolKit, refusal, use } from './pool-kit.ts';

const ALICE = { user: 'alice', address: '198.51.100.1' };
const BOB = { user: 'bob', address: '198.51.100.1' };
const MALLORY = { user: '', address: '198.51.100.66' };

function idsOf(kit: PoolKit, prefix: string): string[] {
  return kit.pool.sessions().flatMap(({ id }) => (id.startsWith(prefix) ? [id] : []));
}

function useMany(kit: PoolKit, prefix: string, count: number, sessionOwner: object): void {
  for (let number = 0; number < count; number += 1) {
    use(kit, { session: `${prefix}${number}`, sessionOwner: sessionOwner as never });
    kit.clock.advance(1);
  }
}

test('session limits: many names of one client displace no session of another client', () => {
  const count = runsOf(100_000);
  const kit = openKit({ rotation: { maxSessionTtlMs: 168 * HOUR_MS } });
  addMembers(kit, 5, 24 * HOUR_MS);
  useMany(kit, 'alice:', 5, ALICE);
  useMany(kit, 'bob:', 5, BOB);
  useMany(kit, 'm', count, MALLORY);
  expect(idsOf(kit, 'alice:')).toHaveLength(5);
  expect(idsOf(kit, 'bob:')).toHaveLength(5);
  expect(idsOf(kit, 'm')).toHaveLength(1_000);
  expect(idsOf(kit, 'm')[0], 'the latest stay').toBe(`m${count - 1_000}`);
});

test('session limits: at the limit, the client loses its session that has been idle longest', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 3 } });
  addMembers(kit, 5);
  useMany(kit, 'm', 3, MALLORY);
  const busy = acquire(kit, { session: 'm1', sessionOwner: MALLORY });
  use(kit, { session: 'm0', sessionOwner: MALLORY });
  useMany(kit, 'n', 1, MALLORY);
  expect(kit.events('session.ended')).toEqual([{ session: 'm2', reason: 'too-many' }]);
  useMany(kit, 'o', 1, MALLORY);
  expect(idsOf(kit, ''), 'one in use is not idle').toEqual(['m1', 'n0', 'o0']);
  expect(kit.pool.leases.of({ session: 'm1' })).toEqual([busy.id]);
});

test('session limits: a client that uses all its sessions loses one of them, and its tunnels continue', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 2 } });
  addMembers(kit, 5);
  const leases = ['a', 'b', 'c'].map((session) => acquire(kit, { session, sessionOwner: MALLORY }));
  expect(idsOf(kit, '')).toHaveLength(2);
  expect(idsOf(kit, 'c')).toHaveLength(1);
  for (const lease of leases) {
    accept(kit, lease);
    close(kit, lease);
  }
});

test('session limits: a user has the limit once, and its address with the most sessions gives way', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 10 } });
  addMembers(kit, 5);
  useMany(kit, 'alice:desk', 3, ALICE);
  useMany(kit, 'alice:flood', 100, { user: 'alice', address: '198.51.100.2' });
  expect(idsOf(kit, 'alice:desk')).toHaveLength(3);
  expect(idsOf(kit, 'alice:flood')).toHaveLength(7);
  useMany(kit, 'alice:more', 1, ALICE);
  expect(idsOf(kit, 'alice:desk')).toHaveLength(3);
  expect(idsOf(kit, 'alice:flood')).toHaveLength(6);
});

test('session limits: at the limit of all sessions, the client with the most gives way', () => {
  const kit = openKit({ limits: { sessions: 20 } });
  addMembers(kit, 5);
  useMany(kit, 'bob:', 2, BOB);
  useMany(kit, 'alice:', 5, ALICE);
  for (const address of ['198.51.100.66', '198.51.100.67']) useMany(kit, address, 50, { user: '', address });
  expect(idsOf(kit, 'bob:')).toHaveLength(2);
  expect(idsOf(kit, 'alice:')).toHaveLength(5);
  expect(kit.pool.parts.sessions.byName.size).toBe(20);
});

test('session limits: the addresses of an IPv6 network are one client', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 3 } });
  addMembers(kit, 5);
  for (let number = 1; number <= 10; number += 1) {
    use(kit, { session: `m${number}`, sessionOwner: { user: '', address: `2001:db8::${number}` } });
  }
  expect(kit.pool.parts.sessions.byName.size).toBe(3);
});

test('session limits: a TTL above rotation.maxSessionTtl is refused, with both durations in the reason', () => {
  const kit = openKit({ rotation: { maxSessionTtlMs: 24 * HOUR_MS } });
  addMembers(kit, 2);
  const refused = refusal(kit, { session: 'abc', sessionTtlMs: 168 * HOUR_MS });
  expect(refused).toMatchObject({ code: 'bad-routing' });
  expect(refused.reason).toMatch(/ttl.*168h.*24h.*rotation\.maxSessionTtl/);
  expect(kit.pool.parts.sessions.byName.size).toBe(0);
  use(kit, { session: 'abc', sessionTtlMs: 24 * HOUR_MS });
});

test('session limits: a lower limit from a reload applies when the client opens its next session', () => {
  const kit = openKit();
  addMembers(kit, 5);
  useMany(kit, 'm', 20, MALLORY);
  kit.pool.reconfigure(poolSettings({ rotation: { maxSessionsPerClient: 5 } }));
  useMany(kit, 'n', 1, MALLORY);
  expect(idsOf(kit, '')).toEqual(['m16', 'm17', 'm18', 'm19', 'n0']);
});

test('session limits: clients without a user have a limit for each address, also of adopted sessions', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 2 } });
  addMembers(kit, 5);
  const other = { user: '', address: '198.51.100.67' };
  useMany(kit, 'm', 2, MALLORY);
  useMany(kit, 'o', 2, other);
  expect(idsOf(kit, '')).toHaveLength(4);
  const now = kit.clock.monotonic();
  const shared = { name: 'p0', owner: other, member: undefined, ttlMs: 60_000, usedAt: now, uses: 1 };
  kit.pool.parts.sessions.adopt(shared, 'bound', now);
  useMany(kit, 'q', 1, other);
  expect(idsOf(kit, '')).toEqual(['m0', 'm1', 'p0', 'q0']);
});

test('session limits: of the networks of a user, the one with the most sessions gives way, whichever came first', () => {
  for (const [first, second] of [
    [1, 3],
    [3, 1],
  ] as const) {
    const kit = openKit({ rotation: { maxSessionsPerClient: 4 } });
    addMembers(kit, 5);
    useMany(kit, 'first', first, ALICE);
    useMany(kit, 'second', second, { user: 'alice', address: '198.51.100.2' });
    useMany(kit, 'new', 1, { user: 'alice', address: '198.51.100.3' });
    expect([idsOf(kit, 'first'), idsOf(kit, 'second')].map(({ length }) => length)).toEqual(
      first > second ? [2, 1] : [1, 2],
    );
  }
});

test('session limits: a client whose sessions have ended begins anew', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 2 }, limits: { sessions: 4 } });
  addMembers(kit, 5);
  useMany(kit, 'a', 2, ALICE);
  useMany(kit, 'm', 2, MALLORY);
  for (const name of idsOf(kit, 'm')) kit.pool.parts.sessions.forget(name);
  useMany(kit, 'b', 2, BOB);
  useMany(kit, 'n', 1, MALLORY);
  expect(idsOf(kit, '')).toHaveLength(4);
  expect(idsOf(kit, 'n')).toHaveLength(1);
});
