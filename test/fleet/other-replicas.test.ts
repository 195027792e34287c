/** What other replicas report. Their open leases count only for the member or session for which they were reported. */
import { expect, test } from 'vitest';
import { PoolSharing } from '../../src/fleet/pool-sharing.ts';
import type { Beat, Fact } from '../../src/fleet/schemas.ts';
import { isLease } from '../../src/pool/lease.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  openKit,
  type PoolKit,
  request,
  stateOf,
  use,
} from '../pool/pool-kit.ts';
import { CITY, type PoolChanges } from '../support/pool-settings.ts';

const TTL_MS = 60_000;
const SESSION = { session: 's1', sessionTtlMs: TTL_MS };

function openGroup() {
  const kit = openKit();
  const ignore = () => {};
  const callbacks = { onChange: ignore, onUse: ignore, onServed: ignore };
  const options = { ...callbacks, sameMachine: true, countsLeases: true };
  return { kit, sharing: new PoolSharing(kit.pool.parts, options) };
}

/** Reports how many leases of the session and of its member are open in a replica. */
function report({ kit, sharing }: ReturnType<typeof openGroup>, by: string, openLeases: number): void {
  const usedAt = kit.clock.monotonic();
  const member = kit.pool.members()[0]?.id ?? 'not known yet';
  sharing.record(by, {
    waiting: 0,
    demand: {},
    members: [{ member, uses: 0, openLeases }],
    sessions: [{ session: 's1', uses: 0, openLeases, usedAt, ttlMs: TTL_MS }],
  });
}

function openSession(kit: PoolKit): void {
  use(kit, SESSION);
}

const namesOf = (kit: PoolKit) => kit.pool.sessions().map(({ id }) => id);

test('other replicas: a lease that was reported before the session existed does not count when it ends', () => {
  const group = openGroup();
  const { kit } = group;
  report(group, 'one', 1);
  addMembers(kit, 1);
  openSession(kit);
  report(group, 'one', 0);
  report(group, 'two', 1);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual(['s1']);
  report(group, 'two', 0);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual([]);
});

test('other replicas: a lease of an ended session does not count for a new session of the same name', () => {
  const group = openGroup();
  const { kit } = group;
  addMembers(kit, 1);
  openSession(kit);
  report(group, 'one', 1);
  kit.pool.parts.sessions.forget('s1');
  openSession(kit);
  report(group, 'one', 0);
  report(group, 'two', 1);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual(['s1']);
});

test('other replicas: the leases of a replica that has left do not count for a new session', () => {
  const group = openGroup();
  const { kit, sharing } = group;
  addMembers(kit, 1);
  openSession(kit);
  report(group, 'one', 1);
  kit.pool.parts.sessions.forget('s1');
  openSession(kit);
  sharing.retain([]);
  report(group, 'two', 1);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual(['s1']);
});

/** A pool that belongs to two groups: the processes of its machine, and other machines. `heard` is what each is told. */
function openTwoGroups(changes: PoolChanges = {}) {
  const kit = openKit(changes);
  const join = (sameMachine: boolean) => {
    const heard = { facts: [] as Fact[], uses: 0, served: 0 };
    const sharing = new PoolSharing(kit.pool.parts, {
      onChange: (fact) => heard.facts.push(fact),
      onUse: () => (heard.uses += 1),
      onServed: () => (heard.served += 1),
      ...{ sameMachine, countsLeases: sameMachine },
    });
    return { heard, sharing };
  };
  const [here, away] = [join(true), join(false)];
  addMembers(kit, 1);
  const [{ id = '' } = {}] = kit.pool.members();
  for (const { sharing, heard } of [here, away]) {
    sharing.takeActivity();
    Object.assign(heard, { facts: [], uses: 0, served: 0 });
  }
  return { kit, here, away, id };
}

const emptyBeat: Beat = { waiting: 0, demand: {}, members: [], sessions: [] };
const demandOf = (waiting: number, lastWantedAt: number) => ({
  waiting,
  demand: { city: { waiting, lastWantedAt, usedUpPerSecond: 0, stranded: 0, perSecond: 0, held: 0 } },
});

test('other replicas: their demand is summed up, and rises once', () => {
  const { kit, here, away } = openTwoGroups();
  const now = kit.clock.monotonic();
  here.sharing.record('one', { ...emptyBeat, ...demandOf(2, now) });
  here.sharing.record('two', { ...emptyBeat, ...demandOf(3, now) });
  here.sharing.applyDemand();
  expect(away.heard.uses).toBe(1);
  expect(away.sharing.waiting).toBe(5);
  expect(away.sharing.takeActivity()).toMatchObject({ waiting: 5, demand: { city: { waiting: 5 } } });
  expect(here.sharing.takeActivity(), 'its own group').toMatchObject({ waiting: 0, demand: {} });
  here.sharing.applyDemand();
  expect([away.heard.uses, kit.events('demand.rose')], 'the same again').toEqual([
    1,
    [{ sources: ['city'] }],
  ]);
  here.sharing.record('one', { ...emptyBeat, ...demandOf(3, now) });
  here.sharing.applyDemand();
  expect([away.heard.uses, kit.events('demand.rose').length], 'one client more').toEqual([2, 2]);
  expect(away.heard.served).toBe(0);
});

test('other replicas: the other group learns once that their clients no longer wait', () => {
  const { kit, here, away } = openTwoGroups();
  here.sharing.applyDemand();
  expect(away.heard.served, 'nobody has waited').toBe(0);
  here.sharing.record('one', { ...emptyBeat, ...demandOf(2, kit.clock.monotonic()) });
  here.sharing.applyDemand();
  here.sharing.record('one', { ...emptyBeat, ...demandOf(0, kit.clock.monotonic()) });
  here.sharing.applyDemand();
  here.sharing.applyDemand();
  expect([away.heard.served, here.heard.served, away.sharing.waiting]).toEqual([1, 0, 0]);
});

test('other replicas: their uses count towards the limit, and the other group hears of the new ones', () => {
  const { kit, here, away, id } = openTwoGroups({ rotation: { maxUsesPerMember: 5 } });
  here.sharing.setUses(id, 3);
  expect(away.sharing.takeActivity().members).toMatchObject([{ member: id, uses: 3 }]);
  here.sharing.setUses(id, 4);
  here.sharing.setUses(id, 4);
  here.sharing.setUses(id, 2); // an older count
  const [told] = away.sharing.takeActivity().members;
  expect(told, 'the service told its end, and nothing went through it here').toEqual({
    ...{ member: id, uses: 1, openLeases: 0 },
  });
  expect(here.sharing.takeActivity().members).toEqual([]);
  expect(stateOf(kit, id)).toBe('ready');
  here.sharing.setUses(id, 5);
  expect(stateOf(kit, id)).toBe('left');
  expect(kit.events('member.left')).toMatchObject([{ reason: 'used-up' }]);
});

test('other replicas: without a limit of uses a member stays', () => {
  const { kit, here, id } = openTwoGroups();
  here.sharing.setUses(id, 1_000);
  expect(stateOf(kit, id)).toBe('ready');
});

test.each([true, false])('other replicas: a use on this machine (%s) refutes other machines', (onMachine) => {
  const { kit, here, away, id } = openTwoGroups();
  (onMachine ? here : away).sharing.setUses(id, 1);
  const quarantine = {
    ...{ untilAt: kit.clock.monotonic() + 5_000, fault: 'member-unreachable' as const, replaced: undefined },
    health: { inRow: 2, rests: 1 },
  } as const;
  away.sharing.apply([{ kind: 'member.quarantined', source: 'city', member: id, quarantine }]);
  expect(stateOf(kit, id)).toBe(onMachine ? 'ready' : 'quarantined');
});

test('other replicas: a later assumed end of life counts, and the other group hears it', () => {
  const { kit, here, away } = openTwoGroups();
  const endsAt = kit.clock.monotonic() + 600_000;
  kit.pool.addMembers('city', [
    { protocol: 'http', host: '192.0.2.9', port: 1, endsAt: undefined, unproven: false },
  ]);
  const member = kit.pool.members().find(({ host }) => host === '192.0.2.9')?.id ?? '';
  away.sharing.takeActivity();
  const beat = (later: number): Beat => ({
    ...emptyBeat,
    members: [{ member, uses: 0, openLeases: 0, endsAt: endsAt + later }],
  });
  here.sharing.record('one', beat(-1));
  expect(away.sharing.takeActivity().members).toEqual([]);
  here.sharing.record('one', beat(30_000));
  expect(away.sharing.takeActivity().members).toMatchObject([{ member, uses: 0, endsAt: endsAt + 30_000 }]);
});

test('other replicas: the open leases of all replicas count, until their replica leaves', () => {
  const { kit, here, id } = openTwoGroups();
  const held = (openLeases: number): Beat => ({
    ...emptyBeat,
    members: [{ member: id, uses: 0, openLeases }],
  });
  here.sharing.record('one', held(2));
  here.sharing.record('two', held(1));
  expect(kit.pool.parts.members.find(id)?.openLeases).toBe(3);
  here.sharing.record('one', held(1));
  expect(kit.pool.parts.members.find(id)?.openLeases).toBe(2);
  here.sharing.retain(['two']);
  expect(kit.pool.parts.members.find(id)?.openLeases).toBe(1);
  here.sharing.retain([]);
  expect(kit.pool.parts.members.find(id)?.openLeases).toBe(0);
});

test('other replicas: uses and the end of sessions reach the other group', () => {
  const { kit, here, away } = openTwoGroups();
  const lease = acquire(kit, SESSION);
  accept(kit, lease);
  close(kit, lease);
  away.sharing.takeActivity();
  const usesBefore = away.heard.uses;
  const usedAt = kit.clock.monotonic();
  here.sharing.record('one', {
    ...emptyBeat,
    sessions: [{ session: 's1', uses: 4, openLeases: 0, usedAt, ttlMs: TTL_MS }],
  });
  expect(away.heard.uses, 'it sends them soon').toBe(usesBefore + 1);
  expect(away.sharing.takeActivity().sessions).toMatchObject([{ session: 's1', uses: 4 }]);
  expect(kit.pool.sessions()).toMatchObject([{ id: 's1', uses: 5 }]);
  here.sharing.apply([{ kind: 'session.ended', name: 's1' }]);
  expect(away.heard.facts.filter(({ kind }) => kind === 'session.ended')).toHaveLength(1);
  expect(here.heard.facts.filter(({ kind }) => kind === 'session.ended')).toEqual([]);
});

test('other replicas: an answer of a target there reaches the other group without a new use', () => {
  const { here, away, id } = openTwoGroups();
  const answered = { member: id, uses: 0, openLeases: 0, answeredTo: '192.0.2.1' };
  here.sharing.record('one', { ...emptyBeat, members: [answered] });
  expect(away.heard.uses).toBe(1);
  expect(away.sharing.takeActivity().members).toMatchObject([{ uses: 0, answeredTo: '192.0.2.1' }]);
  expect(away.sharing.takeActivity().members).toEqual([]);
});

test('other replicas: they hear that a session is in use now while it has an open lease', () => {
  const { kit, away } = openTwoGroups();
  const lease = acquire(kit, SESSION);
  accept(kit, lease);
  const usedAt = kit.clock.monotonic();
  kit.clock.advance(5_000);
  expect(away.sharing.takeActivity().sessions).toMatchObject([
    { session: 's1', uses: 1, openLeases: 1, usedAt: usedAt + 5_000, ttlMs: TTL_MS },
  ]);
  close(kit, lease);
  const closedAt = kit.clock.monotonic();
  use(kit, SESSION);
  kit.clock.advance(5_000);
  expect(away.sharing.takeActivity().sessions).toMatchObject([{ openLeases: 0, usedAt: closedAt }]);
});

test('other replicas: a ban that was lifted there serves a client that waits here', async () => {
  const { kit, here, id } = openTwoGroups();
  const exit = kit.pool.parts.members.find(id)?.exit ?? '';
  const now = kit.clock.monotonic();
  const ban = (untilAt: number): Fact => ({
    ...{ kind: 'site.banned', source: 'city', site: 'shop.test', exit },
    ...{ sinceAt: now, untilAt, forMs: 60_000, spacingMs: 0 },
  });
  here.sharing.apply([ban(now + 60_000)]);
  const waiting = kit.pool.acquire(request({}, { targetHost: 'shop.test', waitMs: 15_000 }));
  expect(waiting).toBeInstanceOf(Promise);
  here.sharing.apply([ban(now)]);
  expect(await waiting).toMatchObject({ member: id });
});

test.each([true, false])(
  'other replicas: with the network down there (%s), faults of members count or not',
  (on) => {
    const { kit, here, id } = openTwoGroups();
    here.sharing.apply([{ kind: 'evictions.frozen', on }]);
    for (let time = 0; time < 2; time += 1) {
      const lease = kit.pool.acquire(request());
      if (!(lease instanceof Promise) && isLease(lease)) fail(kit, lease);
    }
    expect(stateOf(kit, id)).toBe(on ? 'ready' : 'left');
  },
);

test('other replicas: a use there is a success of the member here, and only of one that is ready', () => {
  const { kit, here, id } = openTwoGroups();
  const of = (member: string) => kit.pool.parts.members.find(member);
  const used = (member: string, uses: number): Beat => ({
    ...emptyBeat,
    members: [{ member, uses, openLeases: 0, latencyMs: 30 }],
  });
  here.sharing.record('one', used(id, 0));
  expect(of(id)).toMatchObject({ lastSuccessAt: undefined, latencyMs: 30 });
  kit.clock.advance(1_000);
  here.sharing.record('one', used(id, 2));
  expect(of(id)?.lastSuccessAt).toBe(kit.clock.monotonic());
  kit.pool.addMembers('city', [
    { protocol: 'http', host: '192.0.2.9', port: 1, endsAt: 600_000, unproven: true },
  ]);
  const joining = kit.pool.members().find(({ host }) => host === '192.0.2.9')?.id ?? '';
  here.sharing.record('one', used(joining, 1));
  expect(of(joining)?.lastSuccessAt).toBeUndefined();
});

test('other replicas: a restored member says whether it was restored on another machine', () => {
  const { kit, here, away, id } = openTwoGroups();
  const quarantine = {
    ...{ untilAt: kit.clock.monotonic() + 5_000, fault: 'member-unreachable' as const, replaced: undefined },
    health: { inRow: 1, rests: 1 },
  } as const;
  const about = { source: 'city', member: id };
  const restoredAs = (restore: () => void) => {
    for (const { sharing } of [here, away])
      sharing.apply([{ kind: 'member.quarantined', ...about, quarantine }]);
    Object.assign(here.heard, { facts: [] });
    Object.assign(away.heard, { facts: [] });
    restore();
    expect(stateOf(kit, id)).toBe('ready');
    return [here, away].map(({ heard }) => heard.facts.filter(({ kind }) => kind === 'member.restored'));
  };
  const fact = { kind: 'member.restored', ...about } as const;
  expect(
    restoredAs(() => away.sharing.apply([fact])),
    'there',
  ).toEqual([[{ ...fact, elsewhere: true }], []]);
  expect(
    restoredAs(() => here.sharing.apply([fact])),
    'on this machine',
  ).toEqual([[], [fact]]);
  kit.clock.advance(61_000);
  const own = restoredAs(() => {
    kit.clock.advance(5_001);
    use(kit);
  });
  expect(own, 'in this process').toEqual([[fact], [fact]]);
});

test('other replicas: they hear of a member that has to be probed', () => {
  const { kit, here, away, id } = openTwoGroups();
  const suspected = { kind: 'member.suspected', source: 'city', member: id } as const;
  away.sharing.apply([suspected]);
  expect(kit.pool.parts.members.sources.get('city')?.suspected.size).toBe(1);
  const member = kit.pool.parts.members.find(id);
  if (member === undefined) throw new Error('no member');
  for (const observer of kit.pool.parts.observers)
    (observer as Partial<PoolSharing>).memberSuspected?.(member);
  expect([here, away].map(({ heard }) => heard.facts.at(-1))).toEqual([suspected, suspected]);
});

test('other replicas: a session moves to the member of a lease only if its own member has failed', () => {
  const { kit, here } = openTwoGroups();
  kit.pool.addMembers('city', [drawn(kit, 5, 600_000)]);
  const { member } = use(kit, SESSION);
  const [other = ''] = kit.pool.members().flatMap(({ id }) => (id === member ? [] : [id]));
  const { sharing } = here;
  const session = kit.pool.parts.sessions.byName.get('s1');
  if (session === undefined) throw new Error('no session');
  expect(sharing.isUnconfirmed('s1'), 'it is new').toBe(true);
  sharing.confirm({ ...sessionOf(kit), member });
  expect(sharing.isUnconfirmed('s1'), 'all know it').toBe(false);
  const moves = kit.events('session.moved').length;
  sharing.failOver('unknown', other);
  sharing.failOver('s1', other);
  expect([session.member, sharing.isUnconfirmed('s1')], 'its member works').toEqual([member, false]);
  session.memberFailed = true;
  sharing.failOver('s1', member);
  expect([kit.events('session.moved').length, sharing.isUnconfirmed('s1')]).toEqual([moves, false]);
  sharing.failOver('s1', other);
  expect([session.member, sharing.isUnconfirmed('s1')]).toEqual([other, true]);
  expect(sharing.propose('s1')).toMatchObject({ session: { member: other }, from: member });
  expect(sharing.isUnconfirmed('s1')).toBe(false);
  sharing.confirm(sessionOf(kit));
  session.memberFailed = true;
  expect(session.member).toBeUndefined();
  sharing.failOver('s1', member);
  expect(session.member, 'one without a member gets its next one as usual').toBeUndefined();
});

const sessionOf = (kit: PoolKit) => {
  const usedAt = kit.clock.monotonic();
  return { name: 's1', owner: { user: '', address: '' }, ttlMs: TTL_MS, usedAt, uses: 0 };
};

test('other replicas: a session that is used there does not end here', () => {
  const { kit, here } = openTwoGroups();
  use(kit, SESSION);
  const usedAt = kit.clock.monotonic() + 50_000;
  kit.clock.advance(50_000);
  here.sharing.record('one', {
    ...emptyBeat,
    sessions: [{ session: 's1', uses: 1, openLeases: 0, usedAt, ttlMs: TTL_MS }],
  });
  kit.clock.advance(59_000);
  expect(namesOf(kit)).toEqual(['s1']);
  kit.clock.advance(2_000);
  expect(namesOf(kit)).toEqual([]);
});

test('other replicas: a ban whose source is not known has that of a member with this exit, if there is one', () => {
  const { kit, here } = openTwoGroups({ sources: [CITY, { ...CITY, name: 'town' }] });
  kit.pool.addMembers('town', [drawn(kit, 7, 600_000)]);
  const exit =
    kit.pool.parts.members.find(kit.pool.members().find(({ source }) => source === 'town')?.id)?.exit ?? '';
  const times = { sinceAt: 0, untilAt: 9, forMs: 9, spacingMs: 0 };
  const sourceOf = (source: string, of: string) => {
    here.sharing.siteBanned({ source, site: 'shop.test', exit: of, ...times } as Parameters<
      PoolSharing['siteBanned']
    >[0]);
    const fact = here.heard.facts.at(-1);
    return fact?.kind === 'site.banned' ? [fact.source, fact.exit] : [];
  };
  expect(sourceOf('', exit)).toEqual(['town', exit]);
  expect(sourceOf('city', exit)).toEqual(['city', exit]);
  expect(sourceOf('', 'gone')).toEqual(['', 'gone']);
});

test('other replicas: a session that ends need not be agreed on, and a draining member is not told of', () => {
  const { kit, here, id } = openTwoGroups();
  const lease = acquire(kit, SESSION);
  accept(kit, lease);
  expect(here.sharing.isUnconfirmed('s1')).toBe(true);
  kit.pool.parts.sessions.forget('s1');
  expect(here.sharing.isUnconfirmed('s1')).toBe(false);
  expect(here.sharing.members().map(({ member }) => member.id)).toEqual([id]);
  kit.pool.evict(id);
  expect(stateOf(kit, id)).toBe('draining');
  expect(here.sharing.members()).toEqual([]);
  here.sharing.apply([{ kind: 'source.restricted', source: 'nowhere', leaseLimit: 1 }]);
  close(kit, lease);
});

test('other replicas: they hear that the network is down, and of no demand before a client has come', () => {
  const { kit, here, away } = openTwoGroups();
  expect([here, away].map(({ sharing }) => sharing.takeActivity().demand)).toEqual([{}, {}]);
  for (const on of [true, false]) {
    kit.pool.freezeEvictions(on);
    expect([here, away].map(({ heard }) => heard.facts.at(-1))).toEqual(
      Array(2).fill({ kind: 'evictions.frozen', on }),
    );
  }
  use(kit);
  expect(away.sharing.takeActivity().demand).toMatchObject({ city: { waiting: 0 } });
});
