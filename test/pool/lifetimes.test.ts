import { expect, test } from 'vitest';
import { isLease } from '../../src/pool/lease.ts';
import { CITY } from '../support/pool-settings.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  LateClock,
  openKit,
  refusal,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

test('lifetimes: a member below minRemaining is used only when there is no other', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 30_000)]);
  const [short] = kit.pool.members();
  kit.pool.addMembers('city', [drawn(kit, 2, 60_000)]);
  kit.clock.advance(20_000);
  const longer = Array.from({ length: 5 }, () => use(kit).member);
  expect(longer).not.toContain(short?.id);
  const [other] = longer;
  expect(acquire(kit, {}, { avoid: other === undefined ? [] : [other] }).member).toBe(short?.id);
});

test('lifetimes: a member near its end serves what fits into its rest before another is drawn, and nothing longer', async () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 30_000)]);
  const [ending] = kit.pool.members();
  kit.clock.advance(22_000); // 8 s are left: less than minRemaining, more than the safety margin
  expect(use(kit).member).toBe(ending?.id);
  expect(kit.pool.demand('city').waiting, 'a short request needs no draw').toBe(0);
  const longer = kit.pool.acquire(request({ minLifeMs: 20_000 }, { waitMs: 60_000 }));
  expect(longer, 'a request that the end would cut waits').toBeInstanceOf(Promise);
  expect(kit.pool.demand('city').waiting).toBe(1);
  expect(use(kit).member, 'others still use the member').toBe(ending?.id);
  kit.pool.addMembers('city', [drawn(kit, 2, 30_000)]);
  const answer = await longer;
  expect(isLease(answer) && answer.member).not.toBe(ending?.id);
  const [next] = kit.pool.members().filter(({ id }) => id !== ending?.id);
  expect(use(kit).member, 'a member with more life goes first').toBe(next?.id);
  kit.clock.advance(5_000);
  expect(kit.pool.members(), 'nothing uses its safety margin').toHaveLength(1);
});

test('lifetimes: all members share one timer', () => {
  const kit = openKit();
  addMembers(kit, 200);
  expect(kit.clock.armedCount).toBe(1);
});

test('lifetimes: an expired member is never picked, even when the timer is late', () => {
  const clock = new LateClock();
  const kit = openKit({ clock });
  addMembers(kit, 1, 60_000);
  clock.lateMs = 57_000;
  expect(refusal(kit).code).toBe('pool-empty');
});

test('lifetimes: each member leaves at its own end', () => {
  const kit = openKit();
  for (const seconds of [60, 20, 40]) kit.pool.addMembers('city', [drawn(kit, seconds, seconds * 1_000)]);
  const left: number[] = [];
  for (let second = 1; second <= 60; second += 1) {
    kit.clock.advance(1_000);
    if (kit.events('member.left').length > left.length) left.push(second);
  }
  expect(left).toEqual([17, 37, 57]);
});

test('lifetimes: a draw cannot add a member inside the safety margin', () => {
  const kit = openKit();
  expect(
    kit.pool.addMembers('city', [drawn(kit, 1, 3_000), drawn(kit, 2, 3_001), drawn(kit, 3, -5)]),
  ).toEqual({
    joined: 1,
    renewed: 0,
    rejected: 2,
  });
});

test('lifetimes: a member drawn again keeps its history and the later end of life', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000);
  const { member } = use(kit);
  fail(kit, acquire(kit));
  expect(kit.pool.addMembers('city', [drawn(kit, 0, 120_000)])).toEqual({
    joined: 0,
    renewed: 1,
    rejected: 0,
  });
  expect(kit.pool.addMembers('city', [drawn(kit, 0, 30_000)])).toEqual({
    joined: 0,
    renewed: 1,
    rejected: 0,
  });
  expect(kit.pool.members()).toMatchObject([
    { id: member, remainingSeconds: 120, uses: 1, faults: 1, state: 'quarantined' },
  ]);
  expect(kit.events('member.joined').map(({ renewed }) => renewed)).toEqual([false, true, true]);
});

test('lifetimes: protocol, port and source distinguish members with the same address', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  kit.pool.addMembers('city', [drawn(kit, 1), drawn(kit, 1, 180_000, { port: 8001 })]);
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { protocol: 'socks5' })]);
  kit.pool.addMembers('town', [drawn(kit, 1)]);
  expect(kit.pool.members()).toHaveLength(4);
  expect(new Set(kit.pool.members().map(({ id }) => id)).size).toBe(4);
});

test('lifetimes: a draining member that is drawn again joins as a new member', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000);
  const tunnel = acquire(kit);
  accept(kit, tunnel);
  kit.clock.advance(58_000);
  expect(kit.pool.addMembers('city', [drawn(kit, 0, 60_000)]).joined).toBe(1);
  expect(kit.pool.members().map(({ state }) => state)).toEqual(['draining', 'ready']);
  expect(acquire(kit).member).not.toBe(tunnel.member);
});

test('lifetimes: an unknown lifetime is renewed by success, and ends without one', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 0, { endsAt: undefined })]);
  expect(kit.pool.members()).toMatchObject([{ remainingSeconds: null }]);
  for (let hour = 0; hour < 12; hour += 1) {
    kit.clock.advance(300_000);
    expect(use(kit).remainingMs).toBeUndefined();
  }
  kit.clock.advance(598_000);
  expect(refusal(kit).code).toBe('pool-empty');
});

test('lifetimes: a failed member cannot come back before the end of its announced life', () => {
  const kit = openKit({ health: { maxFailures: 1, quarantineMs: 10_000 } });
  addMembers(kit, 1, 60_000);
  fail(kit, acquire(kit));
  expect(kit.pool.addMembers('city', [drawn(kit, 0, 180_000)]).rejected).toBe(1);
  kit.clock.advance(60_000);
  expect(kit.pool.addMembers('city', [drawn(kit, 0, 180_000)]).joined).toBe(1);
});

test('lifetimes: an evicted member drains and cannot come back', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const tunnel = acquire(kit);
  accept(kit, tunnel);
  expect(kit.pool.evict(tunnel.member)).toBe(true);
  expect(kit.pool.evict('nobody')).toBe(false);
  expect(kit.events('member.drained')).toMatchObject([{ member: tunnel.member, openTunnels: 1 }]);
  expect(refusal(kit).code).toBe('pool-empty');
  close(kit, tunnel);
  expect(kit.events('member.left')).toMatchObject([{ reason: 'evicted' }]);
  expect(kit.pool.addMembers('city', [drawn(kit, 0)]).rejected).toBe(1);
});

test('lifetimes: a draining member stays until its last tunnel ends', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const tunnels = [acquire(kit), acquire(kit)];
  const [first, second] = tunnels;
  if (first === undefined || second === undefined) throw new Error('no leases');
  kit.pool.evict(first.member);
  close(kit, first);
  expect(stateOf(kit, first.member)).toBe('draining');
  expect(kit.events('member.left')).toEqual([]);
  close(kit, second);
  expect(stateOf(kit, first.member)).toBe('left');
});

test('lifetimes: an expired member that is drawn again keeps its faults, for the length of one life', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 1_000 } });
  addMembers(kit, 1, 60_000);
  fail(kit, acquire(kit));
  kit.clock.advance(60_000);
  addMembers(kit, 1, 30_000);
  expect(kit.pool.members()).toMatchObject([{ faults: 1 }]);
  kit.clock.advance(120_000);
  addMembers(kit, 1, 60_000);
  expect(kit.pool.members()).toMatchObject([{ faults: 0 }]);
});

test('lifetimes: drawn members join in shuffled order', () => {
  const kit = openKit();
  kit.pool.addMembers(
    'city',
    Array.from({ length: 20 }, (_, number) => drawn(kit, number)),
  );
  const hosts = kit.pool.members().map(({ host }) => host);
  expect(hosts).not.toEqual(Array.from({ length: 20 }, (_, number) => drawn(kit, number).host));
  expect(new Set(hosts).size).toBe(20);
});

test('lifetimes: a closed pool adds no members and grants no leases', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const tunnel = acquire(kit);
  kit.pool.close();
  kit.pool.close();
  expect(refusal(kit).code).toBe('shutting-down');
  expect(kit.pool.addMembers('city', [drawn(kit, 9)]).rejected).toBe(1);
  close(kit, tunnel);
  expect(stateOf(kit, tunnel.member)).toBe('ready');
});
