import { expect, test } from 'vitest';
import {
  accept,
  CITY,
  close,
  fail,
  LateClock,
  lend,
  offer,
  openKit,
  pourMembers,
  refusal,
  stateOf,
  use,
} from './pool-kit.ts';

test('lifetimes: below minRemaining a member is used only if nothing else is there', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [offer(kit, 1, 30_000)]);
  const [short] = kit.pool.members();
  kit.pool.addMembers('city', [offer(kit, 2, 60_000)]);
  kit.clock.advance(20_000);
  const longer = Array.from({ length: 5 }, () => use(kit).member);
  expect(longer).not.toContain(short?.id);
  const [other] = longer;
  expect(lend(kit, {}, { avoid: other === undefined ? [] : [other] }).member).toBe(short?.id);
});

test('lifetimes: one timer serves every member', () => {
  const kit = openKit();
  pourMembers(kit, 200);
  expect(kit.clock.armedCount).toBe(1);
});

test('lifetimes: a member that has ended is not given away though its timer is late', () => {
  const clock = new LateClock();
  const kit = openKit({ clock });
  pourMembers(kit, 1, 60_000);
  clock.lateMs = 57_000;
  expect(refusal(kit).refused).toBe('pool-empty');
});

test('lifetimes: each member leaves at its own moment', () => {
  const kit = openKit();
  for (const seconds of [60, 20, 40]) kit.pool.addMembers('city', [offer(kit, seconds, seconds * 1_000)]);
  const left: number[] = [];
  for (let second = 1; second <= 60; second += 1) {
    kit.clock.advance(1_000);
    if (kit.events('member.left').length > left.length) left.push(second);
  }
  expect(left).toEqual([17, 37, 57]);
});

test('lifetimes: what would be expired on arrival is rejected', () => {
  const kit = openKit();
  expect(
    kit.pool.addMembers('city', [offer(kit, 1, 3_000), offer(kit, 2, 3_001), offer(kit, 3, -5)]),
  ).toEqual({
    joined: 1,
    renewed: 0,
    rejected: 2,
  });
});

test('lifetimes: drawn again, the later end of life holds and the history stays', () => {
  const kit = openKit();
  pourMembers(kit, 1, 60_000);
  const { member } = use(kit);
  fail(kit, lend(kit));
  expect(kit.pool.addMembers('city', [offer(kit, 0, 120_000)])).toEqual({
    joined: 0,
    renewed: 1,
    rejected: 0,
  });
  expect(kit.pool.addMembers('city', [offer(kit, 0, 30_000)])).toEqual({
    joined: 0,
    renewed: 1,
    rejected: 0,
  });
  expect(kit.pool.members()).toMatchObject([
    { id: member, remainingSeconds: 120, uses: 1, faults: 1, state: 'quarantined' },
  ]);
  expect(kit.events('member.joined').map(({ renewed }) => renewed)).toEqual([false, true, true]);
});

test('lifetimes: the same address of another protocol, port or source is another member', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  kit.pool.addMembers('city', [offer(kit, 1), offer(kit, 1, 180_000, { port: 8001 })]);
  kit.pool.addMembers('city', [offer(kit, 1, 180_000, { protocol: 'socks5' })]);
  kit.pool.addMembers('town', [offer(kit, 1)]);
  expect(kit.pool.members()).toHaveLength(4);
  expect(new Set(kit.pool.members().map(({ id }) => id)).size).toBe(4);
});

test('lifetimes: one that drains and is drawn again joins anew beside itself', () => {
  const kit = openKit();
  pourMembers(kit, 1, 60_000);
  const tunnel = lend(kit);
  accept(kit, tunnel);
  kit.clock.advance(58_000);
  expect(kit.pool.addMembers('city', [offer(kit, 0, 60_000)]).joined).toBe(1);
  expect(kit.pool.members().map(({ state }) => state)).toEqual(['draining', 'ready']);
  expect(lend(kit).member).not.toBe(tunnel.member);
});

test('lifetimes: a life of unknown length is renewed by success, and ends without one', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [offer(kit, 1, 0, { endsAt: undefined })]);
  expect(kit.pool.members()).toMatchObject([{ remainingSeconds: null }]);
  for (let hour = 0; hour < 12; hour += 1) {
    kit.clock.advance(300_000);
    expect(use(kit).remainingMs).toBeUndefined();
  }
  kit.clock.advance(598_000);
  expect(refusal(kit).refused).toBe('pool-empty');
});

test('lifetimes: one that failed may not come back while the life it had would last', () => {
  const kit = openKit({ health: { maxFailures: 1, quarantineMs: 10_000 } });
  pourMembers(kit, 1, 60_000);
  fail(kit, lend(kit));
  expect(kit.pool.addMembers('city', [offer(kit, 0, 180_000)]).rejected).toBe(1);
  kit.clock.advance(60_000);
  expect(kit.pool.addMembers('city', [offer(kit, 0, 180_000)]).joined).toBe(1);
});

test('lifetimes: one removed by hand takes nothing new, lets its tunnels end, and may not come back either', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const tunnel = lend(kit);
  accept(kit, tunnel);
  expect(kit.pool.evict(tunnel.member)).toBe(true);
  expect(kit.pool.evict('nobody')).toBe(false);
  expect(kit.events('member.drained')).toMatchObject([{ member: tunnel.member, openTunnels: 1 }]);
  expect(refusal(kit).refused).toBe('pool-empty');
  close(kit, tunnel);
  expect(kit.events('member.left')).toMatchObject([{ reason: 'evicted' }]);
  expect(kit.pool.addMembers('city', [offer(kit, 0)]).rejected).toBe(1);
});

test('lifetimes: one that drains is there until the last of its tunnels has ended', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const tunnels = [lend(kit), lend(kit)];
  const [first, second] = tunnels;
  if (first === undefined || second === undefined) throw new Error('no leases');
  kit.pool.evict(first.member);
  close(kit, first);
  expect(stateOf(kit, first.member)).toBe('draining');
  expect(kit.events('member.left')).toEqual([]);
  close(kit, second);
  expect(stateOf(kit, first.member)).toBe('left');
});

test('lifetimes: one that ended and is drawn again has its history for another life, and no longer', () => {
  const kit = openKit();
  pourMembers(kit, 1, 60_000);
  const { member } = lend(kit);
  kit.pool.ban({ of: { member }, host: 'banned.example', verdict: 'banned' });
  kit.clock.advance(60_000);
  pourMembers(kit, 1, 30_000);
  expect(refusal(kit, {}, { targetHost: 'banned.example' }).refused).toBe('pool-empty');
  kit.pool.evict(kit.pool.members()[0]?.id ?? '');
  kit.clock.advance(120_000);
  pourMembers(kit, 1, 60_000);
  expect(use(kit, {}, { targetHost: 'banned.example' }).source).toBe('city');
});

test('lifetimes: what a draw brought joins in shuffled order', () => {
  const kit = openKit();
  kit.pool.addMembers(
    'city',
    Array.from({ length: 20 }, (_, number) => offer(kit, number)),
  );
  const hosts = kit.pool.members().map(({ host }) => host);
  expect(hosts).not.toEqual(Array.from({ length: 20 }, (_, number) => offer(kit, number).host));
  expect(new Set(hosts).size).toBe(20);
});

test('lifetimes: a pool that is closed takes nothing in and lends nothing', () => {
  const kit = openKit();
  pourMembers(kit, 2);
  const tunnel = lend(kit);
  kit.pool.close();
  kit.pool.close();
  expect(refusal(kit).refused).toBe('shutting-down');
  expect(kit.pool.addMembers('city', [offer(kit, 9)]).rejected).toBe(1);
  close(kit, tunnel);
  expect(stateOf(kit, tunnel.member)).toBe('ready');
});
