/** One replica alone with a shared pool that a test plays: what it publishes, asks and announces, and what it does not. */
import { expect, test } from 'vitest';
import type { Beat, Fact, SharedMember, SharedSession } from '../../src/fleet/schemas.ts';
import type { SharedPool } from '../../src/fleet/shared-pool.ts';
import { NO_DEMAND } from '../../src/pool/drawn-member.ts';
import { accept, acquire, addMembers, close, drawn, fail, request, stateOf, use } from '../pool/pool-kit.ts';
import type { ManualClock } from '../support/manual-clock.ts';
import { CITY } from '../support/pool-settings.ts';
import { acquireAt, BEAT_MS, type Changes, openFleet, settled } from './replica-kit.ts';
import { EMPTY_STATE, sharedMember } from './shared-pool-contract.ts';

const TTL_MS = 60_000;

async function openOne(changes: Changes = {}) {
  const fleet = openFleet();
  const batches: (readonly Fact[])[] = [];
  const beats: Beat[] = [];
  const asked: string[] = [];
  const store: {
    session?: SharedSession | undefined;
    bind: (proposed: SharedSession) => Promise<SharedSession | undefined>;
  } = { bind: async (proposed) => proposed };
  const wrap = (shared: SharedPool): SharedPool => ({
    ...shared,
    publish: (facts) => void batches.push(facts),
    beat: (beat) => void beats.push(beat),
    bindSession(proposed, from) {
      asked.push(`${proposed.name} ${from ?? 'none'}`);
      return store.bind(proposed);
    },
    async findSession(name) {
      asked.push(`find ${name}`);
      return store.session;
    },
  });
  const kit = await fleet.open('a', {
    pool: { sources: [CITY, { ...CITY, name: 'town' }] },
    ...changes,
    wrap,
  });
  const facts = () => batches.flat();
  return { ...kit, clock: fleet.clock, kit, batches, beats, asked, store, facts };
}

const sessionOn = (name: string, member: string | undefined, usedAt = 0): SharedSession => ({
  ...{ name, owner: { user: '', address: '' }, ttlMs: TTL_MS, usedAt, uses: 0 },
  ...(member !== undefined && { member }),
});

const joinedElsewhere = (clock: ManualClock, id: string, changes: Partial<SharedMember> = {}): Fact => ({
  kind: 'member.joined',
  member: { ...sharedMember({ clock }, id, 600_000), ...changes },
});

test('one replica: the facts of one turn leave together, and none after it is closed', async () => {
  const { kit, batches, facts, replica, beats, clock } = await openOne();
  addMembers(kit, 2);
  expect(batches).toEqual([]);
  await settled();
  expect([batches.length, facts().map(({ kind }) => kind)]).toEqual([1, ['member.joined', 'member.joined']]);
  use(kit);
  await replica.close();
  addMembers(kit, 4);
  replica.commandSource('city', 'pause');
  use(kit);
  kit.bus.emit('demand.rose', { sources: ['city'] });
  await settled();
  clock.advance(10 * BEAT_MS);
  await settled();
  expect([batches.length, beats]).toEqual([1, []]);
});

test('one replica: members that end by themselves, or with their source, and idle sessions are no facts', async () => {
  const { kit, facts, clock } = await openOne();
  kit.pool.addMembers('city', [drawn(kit, 1, 20_000), drawn(kit, 2, 600_000)]);
  kit.pool.addMembers('town', [drawn(kit, 3, 600_000)]);
  await settled();
  close(kit, await acquireAt(kit, { session: 's1', sessionTtlMs: 1_000 }));
  const before = facts().length;
  clock.advance(30_000);
  await settled();
  expect(kit.pool.sessions()).toEqual([]);
  expect(kit.events('member.left').map(({ reason }) => reason)).toEqual(['expired']);
  expect(facts().slice(before)).toEqual([]);
  const [{ id = '' } = {}] = kit.pool.members();
  use(kit);
  kit.pool.evict(id);
  await settled();
  expect(facts().slice(before)).toMatchObject([{ kind: 'member.left', member: id, reason: 'evicted' }]);
});

test('one replica: what others report of demand and uses is applied, and causes no beat of its own', async () => {
  const { kit, replica, beats, clock } = await openOne({ sameMachine: false });
  kit.pool.addMembers('city', [drawn(kit, 1, 0, { endsAt: undefined })]);
  await settled();
  const [{ id = '', uses } = {}] = kit.pool.members();
  expect(uses).toBe(0);
  const endsAt = clock.monotonic() + 900_000;
  const activity = {
    replicas: ['a', 'b'],
    beats: [],
    uses: { [id]: 7, unknown1: 3 },
    ends: { [id]: endsAt },
  };
  const waiting = (count: number) => ({ ...NO_DEMAND, waiting: count, lastWantedAt: clock.monotonic() });
  replica.receiveActivity({ ...activity, demand: { city: waiting(2), town: waiting(5) } });
  expect(kit.pool.members()).toMatchObject([{ id, uses: 7 }]);
  expect(kit.pool.snapshot().members[0]?.endsAt).toBe(kit.clock.now() + 900_000);
  expect([kit.pool.demand('city').waiting, kit.pool.waitingCount]).toEqual([2, 5]);
  expect(kit.events('demand.rose')).toEqual([{ sources: ['city', 'town'] }]);
  await settled();
  expect(beats).toEqual([]);
  replica.receiveActivity({ ...activity, uses: {}, ends: {} });
  expect(kit.pool.demand('city').waiting, 'nobody adds it up any more').toBe(0);
});

test('one replica: a session that is known, or that has come meanwhile, is not replaced by a found one', async () => {
  const { kit, replica, asked, store, clock } = await openOne();
  addMembers(kit, 3);
  await settled();
  const [one = '', two = ''] = kit.pool.members().map(({ id }) => id);
  store.session = sessionOn('s1', one, clock.monotonic());
  expect(await replica.findSession('s1')).toMatchObject({ name: 's1', member: one });
  expect(await replica.findSession('s1')).toMatchObject({ member: one });
  expect(asked).toEqual(['find s1']);
  store.session = sessionOn('s2', one, clock.monotonic());
  const finding = replica.findSession('s2');
  replica.receiveFacts([
    {
      by: 'b',
      fact: { kind: 'session.moved', session: sessionOn('s2', two, clock.monotonic()), reason: 'new' },
    },
  ]);
  expect(await finding).toMatchObject({ member: two });
  store.session = undefined;
  expect(await replica.findSession('s3')).toBeUndefined();
  await replica.close();
  expect(await replica.findSession('s4')).toBeUndefined();
  expect(await replica.findSession('s1')).toMatchObject({ member: one });
  expect(asked).toEqual(['find s1', 'find s2', 'find s3']);
});

test('one replica: it binds a session for another process once, and all of the machine get the first answer', async () => {
  const { kit, replica, asked, store, clock } = await openOne();
  addMembers(kit, 3);
  await settled();
  const [one = '', two = '', three = ''] = kit.pool.members().map(({ id }) => id);
  const propose = (name: string, member: string, from?: string) =>
    replica.bindSession(sessionOn(name, member, clock.monotonic()), from);
  const both = await Promise.all([propose('s1', one), propose('s1', two)]);
  expect(both.map(({ member }) => member)).toEqual([one, one]);
  expect((await propose('s1', two))?.member, 'it is bound').toBe(one);
  expect(asked).toEqual(['s1 none', 's1 none']);
  expect((await propose('s1', two, one))?.member).toBe(two);
  store.bind = async () => undefined;
  expect((await propose('s1', three, two))?.member, 'without an answer the proposal counts').toBe(three);
  store.bind = async (proposed) => ({ ...proposed, member: one });
  expect((await propose('s1', two, three))?.member).toBe(one);
  expect(kit.pool.memberOfSession('s1')).toBe(one);
});

test('one replica: requests of a new session wait for one answer, those of an agreed one do not wait', async () => {
  const { kit, replica, asked, store, facts } = await openOne();
  addMembers(kit, 3);
  await settled();
  const answer = Promise.withResolvers<SharedSession>();
  store.bind = () => answer.promise;
  const waiting = [1, 2].map(() => replica.acquire(request({ session: 's1' })));
  expect(waiting.every((each) => each instanceof Promise)).toBe(true);
  expect(asked).toEqual(['s1 none']);
  const before = facts().length;
  const [other = ''] = kit.pool
    .members()
    .map(({ id }) => id)
    .filter((id) => id !== kit.pool.memberOfSession('s1'));
  answer.resolve({ ...sessionOn('s1', other, kit.clock.monotonic()) });
  const leases = await Promise.all(waiting);
  expect(leases).toMatchObject([{ member: other }, { member: other }]);
  expect(
    kit.pool.members().reduce((sum, { openTunnels }) => sum + openTunnels, 0),
    'the others ended',
  ).toBe(2);
  expect(replica.acquire(request({ session: 's1' }))).toMatchObject({ member: other, session: 's1' });
  expect(replica.acquire(request())).toMatchObject({ member: expect.any(String) });
  expect(
    replica.acquire(request({ session: 's2' }, { avoid: kit.pool.members().map(({ id }) => id) })),
  ).toMatchObject({
    code: expect.any(String),
  });
  await settled();
  expect(asked).toEqual(['s1 none']);
  expect(
    facts()
      .slice(before)
      .filter(({ kind }) => kind.startsWith('session')),
  ).toEqual([]);
  await replica.close();
  expect(replica.acquire(request({ session: 's3' })), 'alone').toMatchObject({ session: 's3' });
});

test('one replica: a session that moves twice before all agree is proposed from the member that they knew', async () => {
  const { kit, replica, asked } = await openOne();
  addMembers(kit, 4);
  await settled();
  const first = await acquireAt(kit, { session: 's1' });
  close(kit, first);
  await settled();
  for (let moves = 0; moves < 2; moves += 1) {
    const member = kit.pool.memberOfSession('s1') ?? '';
    for (let faults = 0; faults < 2; faults += 1) {
      const avoid = kit.pool.members().flatMap(({ id }) => (id === member ? [] : [id]));
      const lease = kit.pool.acquire(request({}, { avoid }));
      if ('member' in lease) fail(kit, lease);
      kit.clock.advance(20_000);
    }
    const moved = kit.pool.acquire(request({ session: 's1' }));
    if ('member' in moved) close(kit, moved);
  }
  expect(kit.pool.memberOfSession('s1')).not.toBe(first.member);
  close(kit, await acquireAt(kit, { session: 's1' }));
  expect(asked).toEqual(['s1 none', `s1 ${first.member}`]);
  await replica.close();
});

test('one replica: a fact about a member of another source, or of none, has no effect', async () => {
  const { kit, replica, clock } = await openOne();
  addMembers(kit, 1);
  await settled();
  const [{ id = '' } = {}] = kit.pool.members();
  const receive = (fact: Fact) => replica.receiveFacts([{ by: 'b', fact }]);
  receive({ kind: 'member.left', source: 'town', member: id, reason: 'evicted' });
  receive({ kind: 'member.left', source: 'city', member: 'unknown1', reason: 'evicted' });
  expect(stateOf(kit, id)).toBe('ready');
  receive(joinedElsewhere(clock, 'member01', { source: 'nowhere' }));
  expect(kit.pool.members()).toHaveLength(1);
  receive(joinedElsewhere(clock, 'member01'));
  expect(kit.pool.members()).toHaveLength(2);
  receive({ kind: 'member.left', source: 'city', member: id, reason: 'evicted', uses: 9 });
  expect(kit.events('member.left')).toMatchObject([{ member: id, reason: 'evicted', uses: 9 }]);
});

test('one replica: a ban of an exit names the source of a member with this exit', async () => {
  const { kit, facts } = await openOne();
  kit.pool.addMembers('town', [drawn(kit, 1, 600_000)]);
  await settled();
  const before = facts().length;
  const [{ id: member = '', host = '' } = {}] = kit.pool.members();
  kit.pool.ban({ holder: { member }, host: 'one.example', verdict: 'banned' });
  await settled();
  expect(facts().slice(before)).toMatchObject([{ kind: 'site.banned', source: 'town', exit: host }]);
});

test('one replica: a larger part of a limit serves a client that waits', async () => {
  const { kit, replica } = await openOne({ pool: { rotation: { maxTunnelsPerMember: 4 } } });
  addMembers(kit, 1);
  await settled();
  replica.receiveActivity({ replicas: ['a', 'b'], beats: [], uses: {} });
  for (let open = 0; open < 2; open += 1) acquire(kit);
  expect(kit.pool.acquire(request())).toMatchObject({ code: 'pool-empty' });
  const waiting = kit.pool.acquire(request({}, { waitMs: 30_000 }));
  replica.receiveActivity({ replicas: ['a', 'b'], beats: [], uses: {} });
  await settled();
  expect(kit.pool.waitingCount).toBe(1);
  replica.receiveActivity({ replicas: ['a'], beats: [], uses: {} });
  expect(await waiting).toMatchObject({ member: expect.any(String) });
  acquire(kit);
  expect(kit.pool.acquire(request())).toMatchObject({ code: 'pool-empty' });
});

test('one replica: after the store lost a member, its uses are reported again by the first that puts it back', async () => {
  const { kit, replica, beats, facts, clock } = await openOne({ sameMachine: false });
  addMembers(kit, 2);
  await settled();
  replica.receiveFacts(facts().map((fact) => ({ by: 'a', fact })));
  const lease = acquire(kit, { client: 'me' });
  accept(kit, lease);
  kit.pool.report({ lease: lease.id, kind: 'accepted', latencyMs: 1 });
  close(kit, lease);
  clock.advance(BEAT_MS);
  await settled();
  const used = () => beats.flatMap(({ members }) => members.map(({ member, uses }) => [member, uses]));
  expect(used().length).toBeGreaterThan(0);
  beats.length = 0;
  const before = facts().length;
  replica.receiveState(EMPTY_STATE);
  await settled();
  const again = facts()
    .slice(before)
    .filter(({ kind }) => kind === 'member.joined');
  expect(again).toHaveLength(2);
  replica.receiveFacts(again.map((fact) => ({ by: 'a', fact })));
  replica.receiveFacts(again.map((fact) => ({ by: 'a', fact })));
  clock.advance(BEAT_MS);
  await settled();
  const [{ uses = 0 } = {}] = kit.pool.members().filter(({ id }) => id === lease.member);
  expect(used(), 'the other one was never used').toEqual([[lease.member, uses]]);
  beats.length = 0;
  replica.receiveState(EMPTY_STATE);
  await settled();
  replica.receiveFacts(again.map((fact) => ({ by: 'b', fact })));
  clock.advance(BEAT_MS);
  await settled();
  expect(used(), 'b was first').toEqual([]);
  replica.receiveState(EMPTY_STATE);
  for (const { id } of kit.pool.members()) kit.pool.evict(id);
  replica.receiveFacts(again.map((fact) => ({ by: 'a', fact })));
  expect(kit.pool.members(), 'they have left meanwhile').toEqual([]);
});

test('one replica: a beat follows as long as its numbers will fall, and at once when nobody waits any longer', async () => {
  const { kit, replica, beats, clock } = await openOne();
  void replica.acquire(request({}, { waitMs: 30_000 }));
  await settled();
  expect(beats).toMatchObject([{ waiting: 1, demand: { city: { waiting: 1 }, town: { waiting: 1 } } }]);
  clock.advance(BEAT_MS);
  expect(beats.length, 'while somebody waits').toBe(2);
  addMembers(kit, 1, 3_600_000);
  await settled();
  expect(beats.at(-1)).toMatchObject({
    waiting: 0,
    demand: { city: { waiting: 0, lastWantedAt: expect.any(Number) } },
  });
  const [lease] = [kit.pool.members()[0]?.openTunnels];
  expect(lease).toBe(1);
  const sent = beats.length;
  clock.advance(BEAT_MS);
  expect(beats.length).toBe(sent + 1);
});

test('one replica: a state that it loads drops its old votes, and a removed member does not come back', async () => {
  const votes = { sameMachine: false, evictionVotes: () => 2 };
  const { kit, replica, clock } = await openOne(votes);
  replica.receiveActivity({ replicas: ['a', 'b', 'c'], beats: [], uses: {} });
  const member = sharedMember({ clock }, 'member01', 600_000);
  const record = { member, drawnBy: 'b', uses: 3, votes: ['b'] };
  const vote = (by: string) =>
    replica.receiveFacts([
      { by, fact: { kind: 'member.left', source: 'city', member: 'member01', reason: 'failed' } },
    ]);
  replica.receiveState({ ...EMPTY_STATE, members: [record] });
  expect(kit.pool.members()).toMatchObject([{ id: 'member01', uses: 3 }]);
  vote('b');
  expect(kit.pool.members(), 'the same vote').toHaveLength(1);
  replica.receiveState({ ...EMPTY_STATE, members: [{ ...record, votes: [] }] });
  vote('c');
  expect(kit.pool.members(), 'one vote since then').toHaveLength(1);
  vote('b');
  expect(kit.pool.members()).toHaveLength(0);
  expect(kit.events('member.left')).toMatchObject([{ member: 'member01', reason: 'failed' }]);
  replica.receiveState({ ...EMPTY_STATE, members: [{ ...record, votes: ['b', 'c'] }] });
  kit.pool.addMembers('city', [{ ...drawn(kit, 1), host: member.host, port: member.port }]);
  expect(kit.pool.members()).toHaveLength(0);
  const other = {
    ...record,
    member: { ...member, id: 'member02', host: '203.0.113.8' },
    left: { reason: 'evicted' as const },
  };
  replica.receiveState({ ...EMPTY_STATE, members: [other] });
  kit.pool.addMembers('city', [{ ...drawn(kit, 1), host: '203.0.113.8', port: member.port }]);
  expect(kit.pool.members(), 'evicted elsewhere').toHaveLength(0);
});

test('one replica: it needs the state of its own sessions, and of those that have just ended here', async () => {
  const { kit, replica, facts } = await openOne();
  addMembers(kit, 2);
  await settled();
  for (const name of ['s1', 's2']) close(kit, await acquireAt(kit, { session: name }));
  kit.pool.rotateSession('s2');
  kit.pool.parts.sessions.forget('s1');
  await settled();
  expect(replica.heldSessions()).toEqual(['s2', 's1']);
  replica.receiveFacts(facts().map((fact) => ({ by: 'a', fact })));
  expect(replica.heldSessions()).toEqual(['s2']);
});

test.each<[string, readonly string[], number | undefined, readonly number[]]>([
  ['the first', ['a', 'b', 'c'], undefined, [1, 2, 3, 4, 5, 6]],
  ['the second', ['b', 'a', 'c'], undefined, [3, 4, 5, 6, 1, 2]],
  ['the third', ['b', 'c', 'a'], undefined, [5, 6, 1, 2, 3, 4]],
  ['the second of a machine of two', ['b', 'a', 'c'], 2, [2, 3, 4, 5, 6, 1]],
  ['one without clients', ['b', 'c'], undefined, [1, 2, 3, 4, 5, 6]],
])('one replica: each begins with another member of a draw: %s', async (_, replicas, machines, order) => {
  const { kit, replica, clock } = await openOne();
  const machine = machines === undefined ? {} : { machine: { count: machines, index: 0 } };
  replica.receiveActivity({ replicas, beats: [], uses: {}, ...machine });
  const joined = order.map((_each, at) =>
    joinedElsewhere(clock, `member0${at + 1}`, { host: `203.0.113.${at + 1}` }),
  );
  const about = { source: 'city', member: 'member01' };
  const left: Fact = { kind: 'member.left', ...about, reason: 'evicted' };
  replica.receiveFacts([left, ...joined].map((fact) => ({ by: 'b', fact })));
  expect(kit.events('member.joined').map(({ member }) => Number(member.slice(-1)))).toEqual(order);
  const expected = replicas.indexOf('a') > 0 ? 5 : 6;
  expect(kit.pool.members(), 'other facts come after them').toHaveLength(expected);
  replica.receiveFacts([
    { by: 'b', fact: joinedElsewhere(clock, 'member08', { host: '203.0.113.8' }) },
    { by: 'b', fact: { ...left, member: 'member08' } },
  ]);
  expect(kit.pool.members(), 'a single one has no order').toHaveLength(expected);
});

test('one replica: a member that enough have given up does not join from a state, and one with fewer votes does', async () => {
  const { kit, replica, clock } = await openOne({ sameMachine: false, evictionVotes: () => 2 });
  replica.receiveActivity({ replicas: ['a', 'b', 'c'], beats: [], uses: {} });
  const record = (id: string, votes: string[], host: string) => ({
    ...{ member: { ...sharedMember({ clock }, id, 600_000), host }, drawnBy: 'b', uses: 0, votes },
  });
  replica.receiveState({
    ...EMPTY_STATE,
    members: [
      record('member01', ['b', 'c'], '203.0.113.1'),
      record('member02', ['b'], '203.0.113.2'),
      record('member03', [], '203.0.113.3'),
    ],
  });
  expect(kit.pool.members().map(({ id }) => id)).toEqual(['member02', 'member03']);
  replica.receiveFacts([
    { by: 'c', fact: { kind: 'member.left', source: 'city', member: 'member02', reason: 'failed' } },
    { by: 'c', fact: { kind: 'member.left', source: 'city', member: 'member03', reason: 'failed' } },
  ]);
  expect(kit.pool.members().map(({ id }) => id)).toEqual(['member03']);
});

test.each([true, false])(
  'one replica: it remembers who drew a member on another machine (the same one: %s)',
  async (sameMachine) => {
    const { kit, replica, clock } = await openOne({ sameMachine });
    const join = (id: string, host: string, by: string) =>
      replica.receiveFacts([{ by, fact: joinedElsewhere(clock, id, { host }) }]);
    join('member01', '203.0.113.1', 'b');
    const record = (id: string, drawnBy: string, host: string) => ({
      ...{ member: { ...sharedMember({ clock }, id, 600_000), host }, drawnBy, uses: 0, votes: [] },
    });
    replica.receiveState({
      ...EMPTY_STATE,
      members: [record('member02', 'c', '203.0.113.2'), record('member03', 'a', '203.0.113.3')],
    });
    expect(kit.pool.snapshot().members.map(({ drawnBy }) => drawnBy)).toEqual(
      sameMachine ? [undefined, undefined, undefined] : ['b', 'c', undefined],
    );
  },
);

test('one replica: what a loaded state lacks is published, and what it has is not', async () => {
  const { kit, replica, facts, bus, clock } = await openOne({ sameMachine: false });
  const loads: number[] = [];
  bus.on('fleet.loaded', ({ movedSessions }) => loads.push(movedSessions));
  addMembers(kit, 3);
  await settled();
  for (const session of ['s1', 's2', 's3']) close(kit, await acquireAt(kit, { session }));
  const [one = '', two = '', three = ''] = kit.pool.members().map(({ id }) => id);
  fail(kit, acquire(kit, {}, { avoid: [one, two] }));
  replica.commandSource('city', 'pause');
  replica.commandSource('town', 'refill');
  await settled();
  replica.receiveFacts(facts().map((fact) => ({ by: 'a', fact })));
  replica.receiveFacts([{ by: 'b', fact: { kind: 'source.commanded', source: 'town', command: 'refill' } }]);
  const before = facts().length;
  const member = (id: string) => ({
    ...sharedMember({ clock }, id, 600_000),
    host: kit.pool.parts.members.find(id)?.host ?? '',
  });
  const moved = kit.pool.memberOfSession('s1') === one ? two : one;
  replica.receiveState({
    ...EMPTY_STATE,
    members: [one, two].map((id) => ({ member: member(id), drawnBy: 'a', uses: 0, votes: [] })),
    sessions: [
      sessionOn('s1', moved, clock.monotonic()),
      sessionOn('s9', one, clock.monotonic()),
      sessionOn('s8', undefined, clock.monotonic()),
    ],
  });
  await settled();
  const published = facts().slice(before);
  expect(
    published.map((fact) => [
      fact.kind,
      'member' in fact ? fact.member : 'session' in fact ? fact.session.name : '',
    ]),
  ).toEqual([
    ['source.commanded', ''],
    ['member.joined', expect.objectContaining({ id: three })],
    ['member.quarantined', three],
    ['session.moved', 's2'],
    ['session.moved', 's3'],
  ]);
  expect(loads, 'one of its own sessions').toEqual([1]);
  expect(kit.pool.memberOfSession('s1')).toBe(moved);
  replica.receiveFacts(published.map((fact) => ({ by: 'a', fact })));
  const later = facts().length;
  replica.receiveState({
    ...EMPTY_STATE,
    paused: ['city'],
    members: kit.pool.members().map(({ id }) => ({ member: member(id), drawnBy: 'a', uses: 0, votes: [] })),
    sessions: ['s1', 's2', 's3', 's8', 's9'].map((name) =>
      sessionOn(name, kit.pool.memberOfSession(name), clock.monotonic()),
    ),
  });
  await settled();
  expect(
    facts()
      .slice(later)
      .map(({ kind }) => kind),
  ).toEqual([]);
  expect(loads).toEqual([1, 0]);
  expect((await openOne()).replica.receiveState(EMPTY_STATE)).toBeUndefined();
});

test('one replica: only its own fact that came back is no longer in flight', async () => {
  const { kit, replica, facts } = await openOne({ sameMachine: false });
  addMembers(kit, 2);
  await settled();
  const [one = '', two = ''] = kit.pool.members().map(({ id }) => id);
  for (const id of [one, two]) kit.pool.evict(id);
  await settled();
  const left = (id: string): Fact =>
    facts().find((fact) => fact.kind === 'member.left' && fact.member === id) ?? expect.unreachable();
  replica.receiveFacts([
    { by: 'a', fact: left(one) },
    { by: 'b', fact: left(two) },
  ]);
  const before = facts().length;
  replica.receiveState(EMPTY_STATE);
  await settled();
  expect(facts().slice(before)).toEqual([left(two)]);
});

test('one replica: one that is not listed has all of a limit, and a state brings the restrictions of its machine', async () => {
  const { kit, replica } = await openOne({ pool: { rotation: { maxTunnelsPerMember: 4 } } });
  addMembers(kit, 1);
  await settled();
  const openable = () => {
    const leases = [];
    for (let answer = kit.pool.acquire(request()); 'member' in answer; answer = kit.pool.acquire(request()))
      leases.push(answer);
    for (const lease of leases) close(kit, lease);
    return leases.length;
  };
  replica.receiveActivity({ replicas: ['x', 'y'], beats: [], uses: {} });
  expect(openable()).toBe(4);
  replica.receiveActivity({ replicas: ['x', 'a'], beats: [], uses: {} });
  expect(openable()).toBe(2);
  replica.receiveState({
    ...EMPTY_STATE,
    restrictions: [{ kind: 'source.restricted', source: 'city', leaseLimit: 2 }],
  });
  expect(openable()).toBe(1);
});
