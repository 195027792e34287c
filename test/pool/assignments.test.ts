/** Members that noria hands out for a session before its client connects, and what it tells of those it could hand out. */
import { expect, test } from 'vitest';
import { ManualClock } from '../support/manual-clock.ts';
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
  type PoolKit,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

const OWN = { session: 'own' };
type Mode = 'keep' | 'fill' | 'move';

function assign(kit: PoolKit, mode: Mode, taken: readonly string[] = [], routing = {}) {
  const entries = taken.map((id) => [id, undefined] as const);
  return kit.pool.assignMember({
    session: 'own',
    routing: { ...OWN, ...routing },
    taken: new Map(entries),
    mode,
  });
}

/** A session with a member that lives for 60 s, and two members that live for 180 s. */
function openAssigned(changes: Parameters<typeof openKit>[0] = {}) {
  const kit = openKit(changes);
  addMembers(kit, 1, 60_000);
  const own = assign(kit, 'fill')?.id ?? '';
  kit.pool.addMembers('city', [drawn(kit, 1), drawn(kit, 2)]);
  return { kit, own };
}

/** What happens to the session's own member, and in which modes the session keeps it, gets another one or gets none. */
test.each<[string, (kit: PoolKit, own: string) => void, Record<Mode, 'own' | 'other' | 'none'>]>([
  ['works', () => {}, { keep: 'own', fill: 'own', move: 'own' }],
  ['expires soon', (kit) => kit.clock.advance(50_001), { keep: 'own', fill: 'other', move: 'other' }],
  ['has left', (kit, own) => kit.pool.evict(own), { keep: 'none', fill: 'other', move: 'other' }],
  ['is quarantined', (kit) => fail(kit, acquire(kit, OWN)), { keep: 'none', fill: 'other', move: 'other' }],
  [
    'is full, with a tunnel of the session',
    (kit) => acquire(kit, OWN),
    { keep: 'none', fill: 'none', move: 'none' },
  ],
  [
    'is full, with a tunnel of another client',
    (kit, own) => {
      const others = kit.pool.members().filter(({ id }) => id !== own);
      expect(acquire(kit, {}, { avoid: others.map(({ id }) => id) }).member).toBe(own);
    },
    { keep: 'none', fill: 'none', move: 'other' },
  ],
])('assignment: if the own member %s', (_, happen, modes) => {
  for (const [mode, expected] of Object.entries(modes) as [Mode, string][]) {
    const { kit, own } = openAssigned({ rotation: { maxTunnelsPerMember: 1 } });
    happen(kit, own);
    const found = assign(kit, mode)?.id;
    expect([mode, found === undefined ? 'none' : found === own ? 'own' : 'other']).toEqual([mode, expected]);
    if (expected === 'other') expect(kit.pool.memberOfSession('own')).toBe(found);
  }
});

test('assignment: a member that another session has is kept only without a free one', () => {
  const { kit, own } = openAssigned();
  const [, one = '', two = ''] = kit.pool.members().map(({ id }) => id);
  expect(assign(kit, 'keep', [own])?.id).toBe(own);
  expect(assign(kit, 'fill', [own, one, two])?.id).toBe(own);
  expect(assign(kit, 'fill', [own, one])?.id).toBe(two);
  expect(kit.events('session.moved')).toMatchObject([{ from: own, to: two, reason: 'rotated' }]);
});

test('assignment: from a working member the session moves to none that expires soon, too', () => {
  const kit = openKit();
  addMembers(kit, 2, 13_500);
  const own = assign(kit, 'fill')?.id;
  kit.clock.advance(4_000);
  expect(assign(kit, 'fill')?.id).toBe(own);
  expect(assign(kit, 'fill', [own ?? ''])?.id).toBe(own);
});

test('assignment: a blocked source serves no session, and another source takes over', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  addMembers(kit, 1);
  const own = assign(kit, 'fill');
  kit.pool.addMembers('town', [drawn(kit, 7)]);
  kit.pool.blockSource('city', 'credentials refused');
  expect([own?.source, assign(kit, 'keep')?.source, assign(kit, 'fill')?.source]).toEqual([
    'city',
    undefined,
    'town',
  ]);
});

test('assignment: describes the member, and is a use of the session and demand for its source', () => {
  const kit = openKit({ clock: new ManualClock() });
  kit.pool.addMembers('city', [
    drawn(kit, 1, 180_000, { location: 'East' }),
    drawn(kit, 2, 0, { endsAt: undefined }),
  ]);
  kit.clock.advance(4_000);
  const found = [assign(kit, 'fill'), assign(kit, 'fill', [kit.pool.memberOfSession('own') ?? ''])];
  expect(found.sort((one, other) => ((one?.location ?? '') < (other?.location ?? '') ? 1 : -1))).toEqual([
    expect.objectContaining({
      source: 'city',
      protocol: 'http',
      location: 'East',
      uses: 0,
      faults: 0,
      remainingMs: 176_000,
    }),
    expect.objectContaining({ location: '', remainingMs: undefined, sinceSuccessMs: 4_000 }),
  ]);
  use(kit, OWN);
  kit.clock.advance(2_000);
  expect(assign(kit, 'keep')).toMatchObject({ uses: 1, sinceSuccessMs: 2_000 });
  expect(kit.pool.demand('city').lastWantedAt).toBe(6_000);
  expect(kit.pool.sessions()).toMatchObject([{ id: 'own', idleSeconds: 0 }]);
  expect(kit.events('demand.rose')).toHaveLength(2);
});

test('assignment: none for impossible routing options or from a closed pool', () => {
  const { kit } = openAssigned();
  expect(assign(kit, 'fill', [], { source: 'nowhere' })).toBeUndefined();
  kit.pool.close();
  expect(assign(kit, 'keep')).toBeUndefined();
});

test('rejection: the member is quarantined once, its session moves, and a waiting client gets the next member', async () => {
  const kit = openKit();
  addMembers(kit, 1);
  const own = use(kit, OWN).member;
  const other = use(kit, { session: 'other' });
  expect(other.member).toBe(own);
  expect(kit.pool.rejectMemberOf('nobody')).toBe(false);
  expect([kit.pool.rejectMemberOf('own'), kit.pool.rejectMemberOf('other')]).toEqual([true, true]);
  expect(kit.events('member.quarantined')).toMatchObject([
    { member: own, fault: 'member-rejected', faults: 1 },
  ]);
  expect([kit.pool.memberOfSession('own'), kit.pool.memberOfSession('other')]).toEqual([
    undefined,
    undefined,
  ]);
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  expect(use(kit, OWN).member).not.toBe(own);
  kit.pool.rejectMemberOf('own');
  expect(stateOf(kit, own)).toBe('quarantined');
});

test('rejection: a success after the quarantine clears the fault', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const own = use(kit, OWN).member;
  kit.pool.rejectMemberOf('own');
  kit.clock.advance(10_000);
  use(kit, OWN);
  expect(stateOf(kit, own)).toBe('ready');
  fail(kit, acquire(kit, OWN));
  kit.clock.advance(10_000);
  accept(kit, acquire(kit, OWN));
  expect(stateOf(kit, own)).toBe('ready');
});

test('forecast: waiting is worth it only while a source may get a member in time', () => {
  let suspendedMs = 0;
  const forecasts = () => [
    { name: 'city', state: 'halted', reason: 'key', suspendedMs, nextMemberMs: 7_000 },
  ];
  const kit = openKit({ forecasts });
  expect(kit.pool.isWorthWaiting({}, 15_000)).toBe(true);
  expect(kit.pool.isWorthWaiting({ source: 'nowhere' }, 15_000)).toBe(false);
  suspendedMs = 15_000;
  expect(kit.pool.isWorthWaiting({}, 15_000)).toBe(false);
  expect(kit.pool.isWorthWaiting({}, 15_001)).toBe(true);
  expect(kit.pool.refusalFor({})).toEqual({
    code: 'pool-empty',
    reason: 'No member that can serve this request is free.',
    sources: [{ name: 'city', state: 'halted', reason: 'key' }],
    retryAfterMs: 7_000,
  });
  expect(kit.pool.refusalFor({ source: 'nowhere' })).toMatchObject({ code: 'bad-routing', sources: [] });
  kit.pool.close();
  expect(kit.pool.isWorthWaiting({}, 15_001)).toBe(false);
});

test('list: members that an answer lacks leave, and drain while a tunnel is open', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const busy = acquire(kit);
  kit.pool.retainMembers('nowhere', []);
  kit.pool.retainMembers('city', [drawn(kit, 1), drawn(kit, 9)]);
  expect(kit.pool.members().map(({ host, state }) => [host, state])).toEqual([
    ['203.0.0.1', 'draining'],
    ['203.0.0.2', 'ready'],
  ]);
  close(kit, busy);
  expect(kit.events('member.left').map(({ reason }) => reason)).toEqual(['removed', 'removed']);
  expect(kit.pool.addMembers('city', [drawn(kit, 0)]), 'it may come back').toMatchObject({ joined: 1 });
});

test('list: a drained member is named while it has a tunnel', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const busy = acquire(kit);
  expect(kit.pool.drainMember('city', drawn(kit, 9))).toBeUndefined();
  expect(kit.pool.drainMember('city', drawn(kit, 0))).toBe(busy.member);
  expect(kit.pool.drainMember('city', drawn(kit, 1))).toBeUndefined();
  expect(kit.pool.countsOf('city')).toEqual({
    ...{ source: 'city', size: 5, joining: 0, ready: 0, quarantined: 0, draining: 1 },
    ...{ openTunnels: 1, used: 0, blocked: null },
  });
  expect(kit.pool.countsOf('nowhere')).toBeUndefined();
});

test('comparison: with the member of the source that worked last, if it works', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const compare = (withinMs: number) => kit.pool.acquireForComparison('city', withinMs)?.member;
  expect([compare(60_000), kit.pool.acquireForComparison('nowhere', 60_000)]).toEqual([undefined, undefined]);
  const first = use(kit).member;
  kit.clock.advance(1_000);
  const second = use(kit).member;
  kit.clock.advance(1_000);
  const leased = kit.pool.acquireForComparison('city', 60_000);
  expect(leased?.member).toBe(second);
  expect(compare(60_000), 'while that one is tested').toBe(first);
  expect(compare(60_000), 'while both are tested').toBeUndefined();
  kit.pool.report({ lease: leased?.id ?? 0, kind: 'failed', blame: 'target', fault: 'target-unreachable' });
  expect([compare(999), compare(1_000)]).toEqual([undefined, second]);
});

test('assignment: clients that wait get a member first, even when the timer is late', async () => {
  const clock = new LateClock();
  const kit = openKit({ clock, rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1);
  kit.pool.banExit({ host: 'example.com', exit: '203.0.0.1', evidence: 'report', forMs: 5_000 });
  const waiting = kit.pool.acquire(request({}, { waitMs: 15_000 }));
  clock.lateMs = 5_000;
  expect(assign(kit, 'fill')).toBeUndefined();
  await expect(waiting).resolves.toMatchObject({ source: 'city' });
});

test('steering: a source that is not configured is ignored', () => {
  const { pool } = openKit();
  pool.blockSource('nowhere', 'bad login');
  pool.limitTunnels('nowhere', 0.5);
  expect(pool.counts()).toMatchObject([{ source: 'city', blocked: null }]);
});
