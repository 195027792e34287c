/** What the pool tells those who share it with other replicas, and what it takes from them. */
import { expect, test } from 'vitest';
import type { Demand } from '../../src/pool/drawn-member.ts';
import { partOfProcess } from '../../src/pool/options.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY } from '../support/pool-settings.ts';
import { accept, acquire, addMembers, close, drawn, fail, openKit, type PoolKit, use } from './pool-kit.ts';

type Observer = PoolKit['pool']['parts']['observers'][number];

/** Records each call as the name of the method and the names of what it is about. */
function observe(kit: PoolKit): string[] {
  const calls: string[] = [];
  const observer: Observer = {
    memberJoined: ({ host }) => calls.push(`joined ${host}`),
    memberQuarantined: ({ host }) => calls.push(`quarantined ${host}`),
    memberReady: ({ host }) => calls.push(`ready ${host}`),
    memberSuspected: ({ host }) => calls.push(`suspected ${host}`),
    memberLeft: ({ host }, { reason }) => calls.push(`left ${host} ${reason}`),
    memberUsed: ({ host }, uses) => calls.push(`used ${host} ${uses}`),
    memberAnswered: ({ host }, client) => calls.push(`answered ${host} ${client}`),
    siteBanned: ({ site, untilAt }) => calls.push(`banned ${site} ${untilAt > 0}`),
    sourceRestricted: ({ name, blockedReason, leaseLimit }) =>
      calls.push(`restricted ${name} ${blockedReason} ${leaseLimit}`),
    evictionsFrozen: (on) => calls.push(`frozen ${on}`),
    sessionBound: ({ name }, reason) => calls.push(`bound ${name} ${reason}`),
    sessionMoved: ({ name, member }, reason, from) =>
      calls.push(`moved ${name} ${reason} ${from !== undefined} ${member !== undefined}`),
    sessionUsed: ({ name }, uses) => calls.push(`session ${name} ${uses}`),
    sessionEnded: ({ name }, reason) => calls.push(`ended ${name} ${reason}`),
  };
  kit.pool.parts.observers.push(observer);
  return calls;
}

const S = { session: 's', client: 'c' };

test('observers: learn each change of members, sessions, sites and sources once', () => {
  const kit = openKit();
  const calls = observe(kit);
  const { pool } = kit;
  const steps: [() => unknown, string[]][] = [
    [() => addMembers(kit, 2), ['joined 203.0.0.1', 'joined 203.0.0.2']],
    [() => pool.addMembers('city', [drawn(kit, 1, 200_000)]), ['joined 203.0.0.2']],
    [() => use(kit), ['used 203.0.0.1 0', 'used 203.0.0.1 1', 'used 203.0.0.1 0', 'answered 203.0.0.1 ']],
    [
      () => use(kit, S),
      [
        ...['bound s left', 'session s 1', 'used 203.0.0.2 0', 'used 203.0.0.2 1', 'session s 0'],
        ...['used 203.0.0.2 0', 'answered 203.0.0.2 c'],
      ],
    ],
    [() => pool.rotateSession('s'), ['moved s rotated true true']],
    [() => pool.ban({ holder: S, host: 'site.test', verdict: 'banned' }), ['banned site.test true']],
    [() => pool.ban({ holder: S, host: 'site.test', verdict: 'ok' }), ['banned site.test false']],
    [() => pool.ban({ holder: S, host: 'site.test', verdict: 'ok' }), []],
    [
      () => fail(kit, acquire(kit, S)),
      [...['session s 1', 'used 203.0.0.1 0', 'session s 0', 'used 203.0.0.1 0', 'quarantined 203.0.0.1']],
    ],
    [() => pool.limitTunnels('city', 0.5), ['restricted city undefined 1']],
    [() => pool.limitTunnels('city', 0.5), []],
    [() => pool.unlimitTunnels('city'), ['restricted city undefined Infinity']],
    [() => pool.blockSource('city', 'bad login'), ['restricted city bad login Infinity']],
    [() => pool.blockSource('city', 'bad login'), []],
    [() => pool.blockSource('city', undefined), ['restricted city undefined Infinity']],
    [() => pool.freezeEvictions(true), ['frozen true']],
    [() => pool.freezeEvictions(false), ['frozen false']],
    [
      () => accept(kit, acquire(kit, {}, { avoid: [pool.members()[1]?.id ?? ''] })),
      ['used 203.0.0.1 0', 'ready 203.0.0.1', 'used 203.0.0.1 1'],
    ],
    [() => pool.evict(pool.members()[1]?.id ?? ''), ['left 203.0.0.2 evicted']],
    [() => pool.rotateSession('s'), ['moved s rotated true false']],
    [() => pool.rotateSession('s'), ['bound s rotated']],
    [() => pool.parts.sessions.forget('s'), ['ended s forgotten']],
    [() => pool.evict(pool.members()[0]?.id ?? ''), ['left 203.0.0.1 evicted']],
  ];
  for (const [step, expected] of steps) {
    calls.length = 0;
    step();
    expect(calls, String(step)).toEqual(expected);
  }
});

test('observers: hear four times per TTL of a session with an open tunnel', () => {
  const kit = openKit({ rotation: { sessionTtlMs: 40_000 } });
  addMembers(kit, 1, 600_000);
  for (let tunnel = 0; tunnel < 2; tunnel += 1) accept(kit, acquire(kit, S));
  const calls = observe(kit);
  kit.clock.advance(39_999);
  expect(calls).toEqual(['session s 0', 'session s 0', 'session s 0']);
});

const WANTED: Demand = {
  waiting: 2,
  stranded: 1,
  lastWantedAt: 5,
  usedUpPerSecond: 1,
  perSecond: 3,
  held: 4,
};

test('replicas: their demand adds to that of this pool, at most twice the size, until a draw', () => {
  const kit = openKit();
  const source = kit.pool.parts.members.sources.get('city');
  const [one, other] = [{}, {}];
  source?.demandElsewhere.set(one, WANTED);
  source?.demandElsewhere.set(other, { ...WANTED, waiting: 1_000, stranded: 1_000, held: 1_000 });
  expect(kit.pool.demand('city')).toEqual({
    ...{ waiting: 12, stranded: 11, lastWantedAt: 5, usedUpPerSecond: 2, perSecond: 6, held: 14 },
  });
  if (source === undefined) throw new Error('no source');
  expect(kit.pool.demandFor(source, other)).toEqual(WANTED);
  kit.pool.addMembers('city', [drawn(kit, 1, 0)]);
  expect(kit.pool.demand('city'), 'none joined').toMatchObject({ waiting: 12, stranded: 11 });
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  expect(kit.pool.demand('city')).toMatchObject({ waiting: 0, stranded: 0, held: 14 });
  source.demandElsewhere.set(one, WANTED);
  addMembers(kit, 9);
  source.demandElsewhere.set(one, WANTED);
  expect(kit.pool.demandFor(source, other)).toMatchObject({ waiting: 1, stranded: 1, held: 4 });
  kit.pool.addMembers('city', [drawn(kit, 20)]);
  source.demandElsewhere.set(one, WANTED);
  expect(kit.pool.demandFor(source, other)).toEqual({
    ...{ waiting: 0, stranded: 0, lastWantedAt: 5, usedUpPerSecond: 0, perSecond: 0, held: 0 },
  });
});

test('replicas: a member that another one drew joins, and a reported end replaces an assumed one', () => {
  const kit = openKit({ clock: new ManualClock() });
  const { members } = kit.pool.parts;
  const source = members.sources.get('city');
  if (source === undefined) throw new Error('no source');
  const shared = (changes: object) => ({
    ...{ ...drawn(kit, 1), id: 'theirs', joinedAt: 0, endsAt: 60_000, endIsAssumed: false },
    ...changes,
  });
  const add = (changes = {}) => members.addShared(source, shared(changes), kit.clock.monotonic());
  add({ endsAt: 3_000 });
  expect(kit.pool.members(), 'too late').toEqual([]);
  add({ endIsAssumed: true });
  expect(kit.pool.members()).toMatchObject([{ id: 'theirs', remainingSeconds: null }]);
  add({ id: 'drawn here, too', endsAt: 40_000 });
  expect(kit.pool.members()).toMatchObject([{ id: 'theirs', remainingSeconds: 40 }]);
  const joined = kit.events('member.joined').length;
  add({ id: 'drawn here, too', endsAt: 40_000 });
  expect(kit.events('member.joined'), 'nothing new').toHaveLength(joined);
  add({ endsAt: 600_000, endIsAssumed: true });
  add({ endsAt: 30_000 });
  expect(kit.pool.members()).toMatchObject([{ id: 'theirs', remainingSeconds: 40 }]);
  add({ host: '203.0.113.9', endsAt: 50_000 });
  expect(kit.pool.members(), 'the id is known').toMatchObject([{ host: '203.0.0.2', remainingSeconds: 50 }]);
  const tunnel = acquire(kit);
  kit.pool.evict('theirs');
  add({ endsAt: 90_000 });
  expect(kit.pool.members(), 'drains').toMatchObject([{ id: 'theirs', remainingSeconds: 50 }]);
  close(kit, tunnel);
  add({ id: 'again', endsAt: 90_000 });
  expect(kit.pool.members(), 'barred').toEqual([]);
});

test('replicas: a session of another one keeps its member, its uses and the later of two moments of use', () => {
  const kit = openKit({ clock: new ManualClock() });
  addMembers(kit, 2);
  const { sessions } = kit.pool.parts;
  const [a = '', b = ''] = kit.pool.members().map(({ id }) => id);
  kit.clock.advance(10_000);
  const owner = { user: 'ann', address: '' };
  const adopt = (changes = {}) =>
    sessions.adopt(
      { name: 's', owner, member: a, ttlMs: 20_000, usedAt: 4_000, uses: 7, ...changes },
      'bound',
      10_000,
    );
  adopt({ usedAt: -10_000 });
  expect(kit.pool.sessions(), 'its time is over').toEqual([]);
  adopt();
  expect(kit.pool.sessions()).toMatchObject([
    { id: 's', member: a, uses: 7, idleSeconds: 6, expiresInSeconds: 14 },
  ]);
  adopt({ member: b, usedAt: 1_000, ttlMs: 30_000 });
  expect(kit.pool.sessions()).toMatchObject([{ member: b, idleSeconds: 6, expiresInSeconds: 24 }]);
  adopt({ member: undefined, usedAt: 9_000 });
  expect(kit.pool.sessions()).toMatchObject([{ member: null, idleSeconds: 1 }]);
  expect(kit.events('session.bound')).toEqual([{ session: 's', member: a }]);
  expect(kit.events('session.moved')).toEqual([{ session: 's', from: a, to: b, reason: 'bound' }]);
});

test('replicas: this process keeps its part of the limits', () => {
  const part = { count: 2, index: 0, sharesClock: false, changedAt: 0 };
  const kit = openKit({ rotation: { maxTunnelsPerMember: 5 } });
  const { members } = kit.pool.parts;
  addMembers(kit, 1);
  const open = (index: number) => {
    members.index.part = { ...part, index };
    let count = 0;
    for (const member of members.byId.values()) members.index.update(member, 0);
    while (count < 9 && kit.pool.upcoming({ routing: {}, count: 1, isKnown: () => false }).length > 0) {
      acquire(kit);
      count += 1;
    }
    return count;
  };
  expect([open(1), open(0)]).toEqual([2, 1]);
  const machine = { count: 2, index: 0 };
  expect([7, 8, 9, 1].map((limit) => partOfProcess(limit, { ...part, machine }))).toEqual([2, 2, 3, 1]);
  expect([0, 1].map((index) => partOfProcess(9, { ...part, index }))).toEqual([5, 4]);
});

test('sources: one that is blocked serves no request, and its members wait', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town', priority: 2 }] });
  addMembers(kit, 1);
  kit.pool.addMembers('town', [drawn(kit, 7)]);
  kit.pool.blockSource('city', 'bad login');
  expect(use(kit).source).toBe('town');
  kit.pool.blockSource('city', undefined);
  expect(use(kit).source).toBe('city');
});
