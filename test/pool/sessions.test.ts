import { expect, test } from 'vitest';
import { isLease } from '../../src/pool/lease.ts';
import { STRATEGIES } from '../../src/pool/options.ts';
import { CITY } from '../support/pool-settings.ts';
import { runsOf } from '../support/properties.ts';
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
  use,
} from './pool-kit.ts';

const ABC = { session: 'abc' };

test('sessions: a session keeps its member while other clients rotate', () => {
  const kit = openKit();
  addMembers(kit, 4);
  const own = use(kit, ABC);
  expect(own.session).toBe('abc');
  for (let round = 0; round < 10; round += 1) {
    use(kit);
    expect(use(kit, ABC).member).toBe(own.member);
  }
  expect(kit.events('session.bound')).toEqual([{ session: 'abc', member: own.member }]);
  expect(kit.pool.sessions()).toMatchObject([{ id: 'abc', member: own.member, uses: 11, idleSeconds: 0 }]);
});

test('sessions: two sessions get different members', () => {
  const kit = openKit();
  addMembers(kit, 2);
  expect(use(kit, { session: 'one' }).member).not.toBe(use(kit, { session: 'two' }).member);
});

test.each(STRATEGIES)(
  'sessions: by %s, a new session gets a member without a session while there is one',
  (strategy) => {
    const kit = openKit({ rotation: { strategy } });
    addMembers(kit, 6);
    const members = Array.from({ length: 6 }, (_, index) => {
      for (let other = 0; other < index; other += 1) use(kit); // the other clients' picks, so that each member gets its turn
      return use(kit, { session: `s${index}` }).member;
    });
    expect(new Set(members).size).toBe(6);
    expect(use(kit, { session: 'seventh' }).member).toBeOneOf(members);
  },
);

test('sessions: a session that moves gets a member without a session', () => {
  const kit = openKit();
  addMembers(kit, 5);
  const members = ['a', 'b', 'c', 'd'].map((session) => use(kit, { session }).member);
  use(kit); // after this pick, the member without a session is the last in turn
  const moved = kit.pool.rotateSession('a');
  expect(moved?.to).not.toBeOneOf(members);
  kit.pool.evict(members[1] ?? '');
  expect(use(kit, { session: 'b' }).member, 'the former member of a').toBe(members[0]);
});

test('sessions: the member of a forgotten session is free for another session', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const [first] = ['a', 'b', 'c'].map((session) => use(kit, { session }).member);
  kit.pool.parts.sessions.forget('a');
  for (const _turn of ['b', 'c']) use(kit);
  expect(use(kit, { session: 'd' }).member).toBe(first);
});

test('sessions: a session moves before its member expires, when another lasts longer', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
  const own = use(kit, ABC);
  kit.pool.addMembers('city', [drawn(kit, 2, 300_000)]);
  kit.clock.advance(49_999);
  expect(use(kit, ABC).member).toBe(own.member);
  kit.clock.advance(1);
  const next = use(kit, ABC);
  expect(next.member).not.toBe(own.member);
  expect(kit.events('session.moved')).toEqual([
    { session: 'abc', from: own.member, to: next.member, reason: 'ending' },
  ]);
});

test('sessions: without a longer-lived member a session stays to the end', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000), drawn(kit, 2, 60_000)]);
  const own = use(kit, ABC);
  kit.clock.advance(56_999);
  expect(use(kit, ABC).member).toBe(own.member);
});

test('sessions: a session moves when its member has left, is quarantined or is blocked', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  addMembers(kit, 3);
  const first = use(kit, ABC);
  kit.pool.evict(first.member);
  const second = use(kit, ABC);
  fail(kit, acquire(kit, ABC));
  const third = use(kit, ABC);
  kit.pool.addMembers('town', [drawn(kit, 9)]);
  kit.pool.blockSource('city', 'credentials refused');
  expect(use(kit, ABC).source).toBe('town');
  expect(new Set([first.member, second.member, third.member]).size).toBe(3);
  expect(kit.events('session.moved').map(({ reason }) => reason)).toEqual([
    'left',
    'quarantined',
    'source-blocked',
  ]);
});

test('sessions: a session moves when its member does not fit new routing options', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { location: '广东' })]);
  const own = use(kit, ABC);
  kit.pool.addMembers('city', [drawn(kit, 2, 300_000, { location: '江苏', protocol: 'socks5' })]);
  expect(use(kit, { ...ABC, location: '江' }).member).not.toBe(own.member);
  expect(use(kit, { ...ABC, location: '广' }).member).toBe(own.member);
  expect(use(kit, { ...ABC, protocol: 'socks5' }).member).not.toBe(own.member);
  expect(use(kit, { ...ABC, protocol: 'http' }).member).toBe(own.member);
  expect(kit.events('session.moved').map(({ reason }) => reason)).toEqual(Array(4).fill('routing-options'));
});

test('sessions: a minimum life counts when the session gets its member, not at each request', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
  kit.pool.addMembers('city', [drawn(kit, 2, 120_000)]);
  const long = { ...ABC, minLifeMs: 100_000 };
  const own = use(kit, long);
  expect(own.remainingMs).toBe(120_000);
  kit.clock.advance(50_000);
  expect(use(kit, long).member, 'less than the minimum is left').toBe(own.member);
  kit.pool.evict(own.member);
  expect(refusal(kit, long).code, 'the next member needs the minimum again').toBe('pool-empty');
  expect(kit.events('session.moved')).toEqual([]);
});

test('sessions: a session moves to the member that accepts first, and ignores later ones', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, ABC);
  const slow = acquire(kit, ABC);
  kit.clock.advance(300);
  const faster = acquire(kit, ABC, { avoid: [slow.member] });
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

test('sessions: a hedge that loses does not move a session', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, ABC);
  const first = acquire(kit, ABC);
  kit.clock.advance(300);
  const hedge = acquire(kit, ABC, { avoid: [first.member] });
  kit.clock.advance(50);
  accept(kit, first);
  kit.clock.advance(50);
  accept(kit, hedge);
  expect(kit.events('session.moved')).toEqual([]);
  expect(use(kit, ABC).member).toBe(own.member);
});

test('sessions: a session waits for its member when that is only full', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 2);
  const own = acquire(kit, ABC);
  accept(kit, own);
  expect(refusal(kit, ABC).code).toBe('pool-empty');
  const client = kit.pool.acquire(request(ABC, { waitMs: 5_000 }));
  expect(kit.pool.demand('city').waiting, 'no draw helps').toBe(0);
  close(kit, own);
  await expect(client).resolves.toMatchObject({ member: own.member });
});

test('sessions: a session whose member failed waits for a newly drawn one', async () => {
  const kit = openKit();
  addMembers(kit, 1);
  const own = use(kit, ABC);
  const client = kit.pool.acquire(request(ABC, { waitMs: 5_000, avoid: [own.member] }));
  expect(kit.pool.demand('city').waiting).toBe(1);
  kit.pool.addMembers('city', [drawn(kit, 9)]);
  await expect(client).resolves.toMatchObject({ session: 'abc', waitedMs: 0 });
});

test('sessions: a session that waits for its member does not block clients behind it', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1);
  accept(kit, acquire(kit, ABC));
  const own = kit.pool.acquire(request(ABC, { waitMs: 5_000 }));
  const behind = kit.pool.acquire(request({}, { waitMs: 5_000 }));
  kit.pool.addMembers('city', [drawn(kit, 9)]);
  await expect(behind).resolves.toMatchObject({ waitedMs: 0 });
  expect(kit.pool.waitingCount).toBe(1);
  kit.clock.advance(5_000);
  await expect(own).resolves.toMatchObject({ code: 'pool-empty' });
});

test('sessions: a session ends after its TTL, but not while it has an open tunnel', () => {
  const kit = openKit();
  addMembers(kit, 1, 3_600_000);
  const tunnel = acquire(kit, { session: 'long', sessionTtlMs: 60_000 });
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

test('sessions: an expired session is never reused, even when the timer is late', () => {
  const clock = new LateClock();
  const kit = openKit({ clock });
  addMembers(kit, 1, 3_600_000);
  use(kit, { ...ABC, sessionTtlMs: 60_000 });
  clock.lateMs = 60_000;
  use(kit, { ...ABC, sessionTtlMs: 60_000 });
  expect(kit.pool.sessions()).toMatchObject([{ uses: 1 }]);
  expect(kit.events('session.ended')).toEqual([{ session: 'abc', reason: 'idle' }]);
});

test('sessions: each use restarts the idle time with its own TTL', () => {
  const kit = openKit();
  addMembers(kit, 1, 3_600_000);
  use(kit, { ...ABC, sessionTtlMs: 60_000 });
  kit.clock.advance(50_000);
  use(kit, { ...ABC, sessionTtlMs: 10_000 });
  expect(kit.pool.sessions()).toMatchObject([{ expiresInSeconds: 10 }]);
  kit.clock.advance(9_999);
  expect(kit.pool.parts.sessions.byName.size).toBe(1);
  kit.clock.advance(1);
  expect(kit.pool.parts.sessions.byName.size).toBe(0);
});

test('sessions: a rotation on request moves a session to another member', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const tunnel = acquire(kit, ABC);
  accept(kit, tunnel);
  const rotated = kit.pool.rotateSession('abc');
  expect(rotated).toEqual({ from: tunnel.member, to: expect.any(String) });
  expect(rotated?.to).not.toBe(tunnel.member);
  expect(use(kit, ABC).member).toBe(rotated?.to);
  expect(kit.pool.rotateSession('nobody')).toBeUndefined();
});

test('sessions: an attempt through the former member does not undo a rotation', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const before = acquire(kit, ABC);
  kit.clock.advance(10);
  const rotated = kit.pool.rotateSession('abc');
  kit.clock.advance(10);
  accept(kit, before);
  expect(kit.pool.sessions()).toMatchObject([{ member: rotated?.to }]);
});

test('sessions: a rotation keeps to the filter of the last request', () => {
  const kit = openKit();
  for (let number = 0; number < 6; number += 1) {
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { protocol: number < 4 ? 'http' : 'socks5' })]);
  }
  const own = use(kit, { ...ABC, protocol: 'socks5' });
  const to = kit.pool.rotateSession('abc')?.to;
  expect(to).not.toBe(own.member);
  expect(kit.pool.members().find(({ id }) => id === to)?.protocol).toBe('socks5');
});

test('sessions: a rotation without another member leaves the session without one until its next use', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const own = use(kit, ABC);
  expect(kit.pool.rotateSession('abc')).toEqual({ from: own.member, to: undefined });
  expect(kit.pool.sessions()).toMatchObject([{ member: null }]);
  expect(use(kit, ABC).member).toBe(own.member);
});

test('sessions: a forgotten session starts again', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = acquire(kit, ABC);
  expect(kit.pool.parts.sessions.forget('abc')).toBe(true);
  expect(kit.pool.parts.sessions.forget('abc')).toBe(false);
  close(kit, own);
  expect(use(kit, ABC).member).not.toBe(own.member);
});

test('sessions: a banned member is used for that host neither by its session nor by other clients', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const own = use(kit, ABC);
  expect(kit.pool.ban({ holder: { session: 'abc' }, host: 'example.com', verdict: 'banned' })).toBe(true);
  expect(kit.events('site.banned')).toMatchObject([
    { site: 'example.com', exit: own.host, evidence: 'report', forMs: 600_000 },
  ]);
  expect(use(kit, ABC).member).not.toBe(own.member);
  for (let round = 0; round < 5; round += 1) expect(use(kit).member).not.toBe(own.member);
  const elsewhere = Array.from({ length: 2 }, () => use(kit, {}, { targetHost: 'other.example' }).member);
  expect(elsewhere).toContain(own.member);
  expect(kit.pool.ban({ holder: { member: own.member }, host: 'example.com', verdict: 'ok' })).toBe(true);
  expect([use(kit).member, use(kit).member]).toContain(own.member);
  expect(kit.pool.ban({ holder: { member: 'nobody' }, host: 'example.com', verdict: 'banned' })).toBe(false);
});

test('sessions: spacing does not apply to a session', () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 60_000 } });
  addMembers(kit, 1);
  const own = use(kit, ABC);
  kit.clock.advance(30_000);
  expect(use(kit, ABC).member).toBe(own.member);
  kit.clock.advance(30_000);
  expect(refusal(kit).code, 'it applies to other clients').toBe('pool-empty');
  kit.clock.advance(30_000);
  expect(use(kit).member).toBe(own.member);
});

test('sessions: at the limit, the session that would end first is removed', () => {
  const kit = openKit({ limits: { sessions: 3 } });
  addMembers(kit, 1);
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

test('sessions: many sessions share one timer', () => {
  const sessions = runsOf(100_000);
  const kit = openKit({ limits: { sessions } });
  addMembers(kit, 20);
  for (let number = 0; number < sessions + 1; number += 1) {
    const answer = kit.pool.acquire(request({ session: `s${number}` }));
    if (answer instanceof Promise || !isLease(answer)) throw new Error('no lease');
    close(kit, answer);
  }
  expect(kit.pool.parts.sessions.byName.size).toBe(sessions);
  expect(kit.clock.armedCount).toBe(2);
});

test('sessions: one ends exactly its TTL after the last use, and a shorter TTL counts from that use', () => {
  const kit = openKit();
  addMembers(kit, 1, 3_600_000);
  const start = kit.clock.monotonic();
  const ends: number[] = [];
  kit.bus.on('session.ended', () => ends.push(kit.clock.monotonic() - start));
  use(kit, { session: 'a', sessionTtlMs: 40_000 });
  use(kit, { session: 'b', sessionTtlMs: 600_000 });
  kit.clock.advance(5_000);
  use(kit, { session: 'a', sessionTtlMs: 40_000 });
  use(kit, { session: 'b', sessionTtlMs: 4_000 });
  kit.clock.advance(60_000);
  expect(ends).toEqual([9_000, 45_000]);
});

test('sessions: a request does not end its session that has an open tunnel, even when the timer is late', () => {
  const clock = new LateClock();
  const kit = openKit({ clock });
  addMembers(kit, 2, 3_600_000);
  const tunnel = acquire(kit, { session: 'a', sessionTtlMs: 10_000 });
  accept(kit, tunnel);
  clock.lateMs = 20_000;
  expect(acquire(kit, { session: 'a', sessionTtlMs: 10_000 }).member).toBe(tunnel.member);
  expect(kit.events('session.ended')).toEqual([]);
});

test('sessions: a restored one may move, shares its exit, and a hedge does not move it', () => {
  const restored = () => {
    const kit = openKit();
    addMembers(kit, 3);
    const ids = kit.pool.members().map(({ id }) => id);
    const record = { user: '', address: '', member: ids[0] ?? '', ttlMs: 600_000, idleMs: 0, uses: 1 };
    kit.pool.parts.sessions.restore(['s', 't', 'u'].map((name) => [name, { record, ageMs: 0 }]));
    return { kit, ids };
  };
  const { kit, ids } = restored();
  const avoid = ids.slice(0, 1);
  accept(kit, acquire(kit, { session: 's' }, { avoid, hedge: true }));
  expect(kit.pool.memberOfSession('s')).toBe(ids[0]);
  const { to } = kit.pool.rotateSession('t') ?? {};
  expect(ids.slice(1)).toContain(to);
  expect(
    [1, 2, 3].map(() => use(kit).member),
    'nothing is reserved',
  ).toContain(to);
  const limited = openKit({ rotation: { maxSessionsPerClient: 2 } });
  limited.pool.parts.sessions.restore(
    ['s', 't', 'u'].map((name) => [
      name,
      { record: { user: '', address: '', ttlMs: 9_000, idleMs: 0, uses: 1 }, ageMs: 0 },
    ]),
  );
  expect(limited.pool.sessions(), 'without an owner, as before').toHaveLength(3);
});

test('sessions: after a failover, a hedge that wins leaves the session on its new member', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, { session: 's' }).member;
  fail(kit, acquire(kit, { session: 's' }));
  const next = use(kit, { session: 's' }, { avoid: [own] }).member;
  accept(kit, acquire(kit, { session: 's' }, { avoid: [own, next], hedge: true }));
  expect(kit.pool.memberOfSession('s')).toBe(next);
});

test('sessions: the member that a session left counts as one without a session', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const own = use(kit, { session: 's' }).member;
  kit.pool.rotateSession('s');
  for (const session of ['t', 'u']) {
    expect(use(kit, { session }).member).toBe(own);
    kit.pool.parts.sessions.forget(session);
  }
});

test('sessions: a rotation that finds no other member leaves none, once, and frees the exit', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const own = use(kit, { session: 's', exclusive: true }).member;
  expect(refusal(kit).code).toBe('pool-empty');
  expect(kit.pool.rotateSession('s')).toEqual({ from: own, to: undefined });
  expect(use(kit).member).toBe(own);
  kit.pool.evict(own);
  const moves: string[] = [];
  kit.pool.parts.observers.push({
    ...({} as (typeof kit.pool.parts.observers)[number]),
    sessionMoved: ({ name }) => moves.push(name),
  });
  expect(kit.pool.rotateSession('s')).toEqual({ from: undefined, to: undefined });
  expect(moves).toEqual([]);
  expect(
    kit.pool.ban({ holder: { session: 's' }, host: 'x.test', verdict: 'banned' }),
    'no exit to ban',
  ).toBe(true);
  expect(kit.pool.ban({ holder: { session: 't' }, host: 'x.test', verdict: 'banned' })).toBe(false);
});

test('sessions: one that is no longer exclusive frees its exit when it moves, one that another replica names keeps it', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, { session: 's', exclusive: true }).member;
  const { sessions } = kit.pool.parts;
  const session = sessions.byName.get('s');
  if (session === undefined) throw new Error('no session');
  sessions.adopt(
    { ...session, member: own, owner: session.owner, name: 's' },
    'bound',
    kit.clock.monotonic(),
  );
  expect([1, 2, 3].map(() => use(kit).member)).not.toContain(own);
  use(kit, { session: 's' }, { avoid: [own] });
  expect([1, 2, 3].map(() => use(kit).member)).toContain(own);
});

test('sessions: a session moves because its member drains, with the reason of that', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const tunnel = acquire(kit, { session: 's' });
  kit.pool.evict(tunnel.member);
  acquire(kit, { session: 's' });
  expect(kit.events('session.moved')).toMatchObject([{ reason: 'evicted' }]);
});

test('sessions: after a rejection, the exit of an exclusive session serves a client that waits', async () => {
  const kit = openKit();
  addMembers(kit, 1);
  use(kit, { session: 's', exclusive: true });
  const waiting = kit.pool.acquire(request({}, { waitMs: 5_000 }));
  expect(waiting).toBeInstanceOf(Promise);
  kit.pool.rejectMemberOf('s');
  await expect(waiting).resolves.toMatchObject({ waitedMs: 0 });
  expect(kit.pool.rejectMemberOf('nobody')).toBe(false);
});
