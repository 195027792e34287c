/** Which members the pool expects to grant next. */
import { expect, test } from 'vitest';
import type { UpcomingQuery } from '../../src/pool/lease.ts';
import { STRATEGIES } from '../../src/pool/options.ts';
import { acquire, addMembers, openKit, type PoolKit } from './pool-kit.ts';

function upcoming(kit: PoolKit, count: number, query: Partial<UpcomingQuery> = {}): string[] {
  const all = { routing: {}, count, isKnown: () => false, ...query };
  return kit.pool.upcoming(all).map(({ member }) => member);
}

test.each(STRATEGIES)('upcoming: with %s the next leases are on these members', (strategy) => {
  const kit = openKit({ rotation: { strategy } });
  addMembers(kit, 8);
  for (let round = 0; round < 20; round += 1) {
    const expected = upcoming(kit, 3);
    expect(expected.length).toBeGreaterThan(0);
    const leases = expected.map(() => acquire(kit));
    const granted = leases.map(({ member }) => member);
    if (strategy === 'longest-lived') granted.sort(by(expected)); // the order may differ, because members with equal lives take turns
    expect(granted).toEqual(expected);
    for (const { id } of leases) kit.pool.report({ lease: id, kind: 'closed', cut: false });
  }
});

const by = (order: readonly string[]) => (a: string, b: string) => order.indexOf(a) - order.indexOf(b);

test('upcoming: a call does not change which members are granted', () => {
  const [looking, other] = [openKit(), openKit()];
  for (const kit of [looking, other]) addMembers(kit, 5);
  const granted = (kit: PoolKit) => Array.from({ length: 12 }, () => acquire(kit).host);
  const hosts = Array.from({ length: 12 }, () => {
    upcoming(looking, 4);
    return acquire(looking).host;
  });
  expect(hosts).toEqual(granted(other));
});

test('upcoming: says address and life, and leaves out what the caller knows', () => {
  const kit = openKit();
  addMembers(kit, 2, 60_000);
  const [first] = kit.pool.upcoming({ routing: {}, count: 1, isKnown: () => false });
  expect(first).toEqual({
    member: expect.any(String),
    source: 'city',
    protocol: 'http',
    host: '203.0.0.1',
    port: 8000,
    remainingMs: 60_000,
  });
  expect(upcoming(kit, 2, { isKnown: (member) => member === first?.member })).toHaveLength(1);
});

test('upcoming: leaves out members that may get no further tunnel or do not live long enough', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 2, 60_000);
  const { member } = acquire(kit);
  expect(upcoming(kit, 2)).toHaveLength(1);
  expect(upcoming(kit, 2)).not.toContain(member);
  expect(upcoming(kit, 2, { routing: { minLifeMs: 60_001 } })).toEqual([]);
  acquire(kit);
  expect(upcoming(kit, 2)).toEqual([]);
});

test('upcoming: a session has its own member, while that can take a tunnel', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 3);
  const routing = { session: 'me' };
  expect(upcoming(kit, 3, { routing })).toEqual([]);
  const lease = acquire(kit, routing);
  expect(upcoming(kit, 3, { routing })).toEqual([]);
  kit.pool.report({ lease: lease.id, kind: 'closed', cut: false });
  expect(upcoming(kit, 3, { routing })).toEqual([lease.member]);
});

test('upcoming: returns nothing after close', () => {
  const kit = openKit();
  addMembers(kit, 2);
  kit.pool.close();
  expect(upcoming(kit, 2)).toEqual([]);
});
