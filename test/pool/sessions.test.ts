import { expect, test } from 'vitest';
import { isLease } from '../../src/pool/lease.ts';
import { STRATEGIES } from '../../src/pool/options.ts';
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
  request,
  use,
} from './pool-kit.ts';

const ABC = { session: 'abc' };

test('sessions: one keeps its member while others rotate', () => {
  const kit = openKit();
  pourMembers(kit, 4);
  const own = use(kit, ABC);
  expect(own.session).toBe('abc');
  for (let round = 0; round < 10; round += 1) {
    use(kit);
    expect(use(kit, ABC).member).toBe(own.member);
  }
  expect(kit.events('session.bound')).toEqual([{ session: 'abc', member: own.member }]);
  expect(kit.pool.sessions()).toMatchObject([{ id: 'abc', member: own.member, uses: 11, idleSeconds: 0 }]);
});

test('sessions: two of them are spread over the members', () => {
  const kit = openKit();
  pourMembers(kit, 2);
  expect(use(kit, { session: 'one' }).member).not.toBe(use(kit, { session: 'two' }).member);
});

test.each(STRATEGIES)(
  'sessions: by %s a new one takes a member that no other has, while there is one',
  (strategy) => {
    const kit = openKit({ rotation: { strategy } });
    pourMembers(kit, 6);
    const members = Array.from({ length: 6 }, (_, index) => {
      for (let other = 0; other < index; other += 1) use(kit); // those without a session bring all to their turn
      return use(kit, { session: `s${index}` }).member;
    });
    expect(new Set(members).size).toBe(6);
    expect(use(kit, { session: 'one too many' }).member).toBeOneOf(members);
  },
);

test('sessions: one that is moved takes a member that no other has', () => {
  const kit = openKit();
  pourMembers(kit, 5);
  const members = ['a', 'b', 'c', 'd'].map((session) => use(kit, { session }).member);
  use(kit); // the one that nobody has comes last
  const moved = kit.pool.rotateSession('a');
  expect(moved?.to).not.toBeOneOf(members);
  kit.pool.evict(members[1] ?? '');
  expect(use(kit, { session: 'b' }).member, 'the one that a had').toBe(members[0]);
});

test('sessions: what an ended one had is free for another', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const [first] = ['a', 'b', 'c'].map((session) => use(kit, { session }).member);
  kit.pool.forgetSession('a');
  for (const _turn of ['b', 'c']) use(kit);
  expect(use(kit, { session: 'd' }).member).toBe(first);
});

test('sessions: one moves before its member ends, when another lasts longer', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [offer(kit, 1, 60_000)]);
  const own = use(kit, ABC);
  kit.pool.addMembers('city', [offer(kit, 2, 300_000)]);
  kit.clock.advance(49_999);
  expect(use(kit, ABC).member).toBe(own.member);
  kit.clock.advance(1);
  const next = use(kit, ABC);
  expect(next.member).not.toBe(own.member);
  expect(kit.events('session.moved')).toEqual([
    { session: 'abc', from: own.member, to: next.member, reason: 'ending' },
  ]);
});

test('sessions: without a better one it stays to the last moment', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [offer(kit, 1, 60_000), offer(kit, 2, 60_000)]);
  const own = use(kit, ABC);
  kit.clock.advance(56_999);
  expect(use(kit, ABC).member).toBe(own.member);
});

test('sessions: one moves when its member has left, rests, or its source is blocked', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  pourMembers(kit, 3);
  const first = use(kit, ABC);
  kit.pool.evict(first.member);
  const second = use(kit, ABC);
  fail(kit, lend(kit, ABC));
  const third = use(kit, ABC);
  kit.pool.addMembers('town', [offer(kit, 9)]);
  kit.pool.blockSource('city', 'credentials refused');
  expect(use(kit, ABC).source).toBe('town');
  expect(new Set([first.member, second.member, third.member]).size).toBe(3);
  expect(kit.events('session.moved').map(({ reason }) => reason)).toEqual([
    'left',
    'quarantined',
    'source-blocked',
  ]);
});

test('sessions: one moves when its member does not meet a new wish', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [offer(kit, 1, 60_000, { location: '广东' })]);
  const own = use(kit, ABC);
  kit.pool.addMembers('city', [offer(kit, 2, 300_000, { location: '江苏', protocol: 'socks5' })]);
  expect(use(kit, { ...ABC, location: '江' }).member).not.toBe(own.member);
  expect(use(kit, { ...ABC, location: '广' }).member).toBe(own.member);
  expect(use(kit, { ...ABC, minLifeMs: 100_000 }).member).not.toBe(own.member);
  expect(use(kit, { ...ABC, protocol: 'http' }).member).toBe(own.member);
  expect(kit.events('session.moved').map(({ reason }) => reason)).toEqual(Array(4).fill('routing-options'));
});

test('sessions: one follows whoever takes over from its member within a request, and no loser after that', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const own = use(kit, ABC);
  const slow = lend(kit, ABC);
  kit.clock.advance(300);
  const faster = lend(kit, ABC, { avoid: [slow.member] });
  kit.clock.advance(50);
  accept(kit, faster);
  kit.clock.advance(50);
  accept(kit, slow);
  close(kit, slow);
  expect(kit.events('session.moved')).toEqual([
    { session: 'abc', from: own.member, to: faster.member, reason: 'failed-over' },
  ]);
  expect(use(kit, ABC).member).toBe(faster.member);
});

test('sessions: a second attempt that is not needed moves nothing', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const own = use(kit, ABC);
  const first = lend(kit, ABC);
  kit.clock.advance(300);
  const beside = lend(kit, ABC, { avoid: [first.member] });
  kit.clock.advance(50);
  accept(kit, first);
  kit.clock.advance(50);
  accept(kit, beside);
  expect(kit.events('session.moved')).toEqual([]);
  expect(use(kit, ABC).member).toBe(own.member);
});

test('sessions: one waits for its own member when that is only full', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  pourMembers(kit, 2);
  const own = lend(kit, ABC);
  accept(kit, own);
  expect(refusal(kit, ABC).refused).toBe('pool-empty');
  const asked = kit.pool.acquire(request(ABC, { waitMs: 5_000 }));
  expect(kit.pool.demand('city').waiting, 'another member would not help').toBe(0);
  close(kit, own);
  await expect(asked).resolves.toMatchObject({ member: own.member });
});

test('sessions: one whose member has just failed it waits for another, which a draw may bring', async () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const own = use(kit, ABC);
  const asked = kit.pool.acquire(request(ABC, { waitMs: 5_000, avoid: [own.member] }));
  expect(kit.pool.demand('city').waiting).toBe(1);
  kit.pool.addMembers('city', [offer(kit, 9)]);
  await expect(asked).resolves.toMatchObject({ session: 'abc', waitedMs: 0 });
});

test('sessions: one that waits for its own member holds up nobody behind it', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  pourMembers(kit, 1);
  accept(kit, lend(kit, ABC));
  const own = kit.pool.acquire(request(ABC, { waitMs: 5_000 }));
  const behind = kit.pool.acquire(request({}, { waitMs: 5_000 }));
  kit.pool.addMembers('city', [offer(kit, 9)]);
  await expect(behind).resolves.toMatchObject({ waitedMs: 0 });
  expect(kit.pool.waitingCount).toBe(1);
  kit.clock.advance(5_000);
  await expect(own).resolves.toMatchObject({ refused: 'pool-empty' });
});

test('sessions: an idle one ends after its time, an open tunnel keeps it', () => {
  const kit = openKit();
  pourMembers(kit, 1, 3_600_000);
  const tunnel = lend(kit, { session: 'long', sessionTtlMs: 60_000 });
  accept(kit, tunnel);
  use(kit, { session: 'idle', sessionTtlMs: 60_000 });
  use(kit, { session: 'default' });
  kit.clock.advance(60_000);
  expect(kit.pool.sessions().map(({ id }) => id)).toEqual(['long', 'default']);
  kit.clock.advance(540_000);
  expect(kit.pool.sessions().map(({ id }) => id)).toEqual(['long']);
  kit.clock.advance(30_000);
  close(kit, tunnel);
  kit.clock.advance(59_999);
  expect(kit.pool.sessions().map(({ id }) => id)).toEqual(['long']);
  kit.clock.advance(1);
  expect(kit.pool.sessions()).toEqual([]);
  expect(kit.events('session.ended').map(({ session, reason }) => [session, reason])).toEqual([
    ['idle', 'idle'],
    ['default', 'idle'],
    ['long', 'idle'],
  ]);
});

test('sessions: one whose time is over is not taken up again though its timer is late', () => {
  const clock = new LateClock();
  const kit = openKit({ clock });
  pourMembers(kit, 1, 3_600_000);
  use(kit, { ...ABC, sessionTtlMs: 60_000 });
  clock.lateMs = 60_000;
  use(kit, { ...ABC, sessionTtlMs: 60_000 });
  expect(kit.pool.sessions()).toMatchObject([{ uses: 1 }]);
  expect(kit.events('session.ended')).toEqual([{ session: 'abc', reason: 'idle' }]);
});

test('sessions: a use starts the idle time again, with the ttl that came with it', () => {
  const kit = openKit();
  pourMembers(kit, 1, 3_600_000);
  use(kit, { ...ABC, sessionTtlMs: 60_000 });
  kit.clock.advance(50_000);
  use(kit, { ...ABC, sessionTtlMs: 10_000 });
  expect(kit.pool.sessions()).toMatchObject([{ expiresInSeconds: 10 }]);
  kit.clock.advance(9_999);
  expect(kit.pool.sessionCount).toBe(1);
  kit.clock.advance(1);
  expect(kit.pool.sessionCount).toBe(0);
});

test('sessions: one that is rotated by hand gets another member and tells which leases were open', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const tunnel = lend(kit, ABC);
  accept(kit, tunnel);
  const rotated = kit.pool.rotateSession('abc');
  expect(rotated).toEqual({ from: tunnel.member, to: expect.any(String) });
  expect(rotated?.to).not.toBe(tunnel.member);
  expect(use(kit, ABC).member).toBe(rotated?.to);
  expect(kit.pool.rotateSession('nobody')).toBeUndefined();
});

test('sessions: an attempt through the old member does not undo a rotation', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const before = lend(kit, ABC);
  kit.clock.advance(10);
  const rotated = kit.pool.rotateSession('abc');
  kit.clock.advance(10);
  accept(kit, before);
  expect(kit.pool.sessions()).toMatchObject([{ member: rotated?.to }]);
});

test('sessions: a rotation keeps to the kind of member that was wished for', () => {
  const kit = openKit();
  for (let number = 0; number < 6; number += 1) {
    kit.pool.addMembers('city', [offer(kit, number, 180_000, { protocol: number < 4 ? 'http' : 'socks5' })]);
  }
  const own = use(kit, { ...ABC, protocol: 'socks5' });
  const to = kit.pool.rotateSession('abc')?.to;
  expect(to).not.toBe(own.member);
  expect(kit.pool.members().find(({ id }) => id === to)?.protocol).toBe('socks5');
});

test('sessions: with no other member a rotation leaves it without one until its next use', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const own = use(kit, ABC);
  expect(kit.pool.rotateSession('abc')).toEqual({ from: own.member, to: undefined });
  expect(kit.pool.sessions()).toMatchObject([{ member: null }]);
  expect(use(kit, ABC).member).toBe(own.member);
});

test('sessions: one that is forgotten starts anew', () => {
  const kit = openKit();
  pourMembers(kit, 3);
  const own = lend(kit, ABC);
  expect(kit.pool.forgetSession('abc')).toBe(true);
  expect(kit.pool.forgetSession('abc')).toBe(false);
  close(kit, own);
  expect(use(kit, ABC).member).not.toBe(own.member);
});

test('sessions: a member banned for a host is left by its session there, and used by no one else for it', () => {
  const kit = openKit();
  pourMembers(kit, 2);
  const own = use(kit, ABC);
  expect(kit.pool.ban({ of: { session: 'abc' }, host: 'example.com', verdict: 'banned' })).toBe(true);
  expect(kit.events('member.banned')).toMatchObject([{ member: own.member, host: 'example.com' }]);
  expect(use(kit, ABC).member).not.toBe(own.member);
  for (let round = 0; round < 5; round += 1) expect(use(kit).member).not.toBe(own.member);
  const elsewhere = Array.from({ length: 2 }, () => use(kit, {}, { targetHost: 'other.example' }).member);
  expect(elsewhere).toContain(own.member);
  expect(kit.pool.ban({ of: { member: own.member }, host: 'example.com', verdict: 'ok' })).toBe(true);
  expect([use(kit).member, use(kit).member]).toContain(own.member);
  expect(kit.pool.ban({ of: { member: 'nobody' }, host: 'example.com', verdict: 'banned' })).toBe(false);
});

test('sessions: spacing does not part one from its member', () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 60_000 } });
  pourMembers(kit, 1);
  const own = use(kit, ABC);
  kit.clock.advance(30_000);
  expect(use(kit, ABC).member).toBe(own.member);
  kit.clock.advance(30_000);
  expect(refusal(kit).refused, 'others count its uses').toBe('pool-empty');
  kit.clock.advance(30_000);
  expect(use(kit).member).toBe(own.member);
});

test('sessions: there is a most of them, and the one that would end first goes', () => {
  const kit = openKit({ limits: { sessions: 3 } });
  pourMembers(kit, 1);
  for (const session of ['a', 'b', 'c']) {
    use(kit, { session });
    kit.clock.advance(1_000);
  }
  use(kit, { session: 'a' });
  use(kit, { session: 'd' });
  expect(
    kit.pool
      .sessions()
      .map(({ id }) => id)
      .sort(),
  ).toEqual(['a', 'c', 'd']);
  expect(kit.events('session.ended')).toEqual([{ session: 'b', reason: 'too-many' }]);
});

test('sessions: a hundred thousand are kept on one timer', () => {
  const kit = openKit();
  pourMembers(kit, 20);
  for (let number = 0; number < 100_001; number += 1) {
    const answer = kit.pool.acquire(request({ session: `s${number}` }));
    if (answer instanceof Promise || !isLease(answer)) throw new Error('no lease');
    close(kit, answer);
  }
  expect(kit.pool.sessionCount).toBe(100_000);
  expect(kit.clock.armedCount).toBe(2);
});
