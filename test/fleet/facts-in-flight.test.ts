/** What a replica learned while the shared pool was lost reaches the other replicas when the replica loads the state again. */
import { describe, expect, test } from 'vitest';
import { FactsInFlight, MAX_SUBJECTS } from '../../src/fleet/facts-in-flight.ts';
import type { Fact } from '../../src/fleet/schemas.ts';
import type { SharedPool } from '../../src/fleet/shared-pool.ts';
import { acquire, addMembers, close, drawn, fail, openKit, stateOf, use } from '../pool/pool-kit.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { acquireAt, type Changes, openFleet, type ReplicaKit, settled } from './replica-kit.ts';
import { EMPTY_STATE, sharedMember } from './shared-pool-contract.ts';

const LIFE_MS = 600_000;

/** Two replicas. The connection of `a` can be lost. */
async function openPair(changes: Changes = {}) {
  const fleet = openFleet();
  let isLost = false;
  const wrap = (shared: SharedPool): SharedPool => ({
    ...shared,
    follow: (follower) =>
      shared.follow({
        receiveState: (state) => follower.receiveState(state),
        receiveFacts: (facts) => isLost || follower.receiveFacts(facts),
        receiveActivity: (view) => isLost || follower.receiveActivity(view),
        heldSessions: () => follower.heldSessions(),
      }),
    publish: (facts) => isLost || shared.publish(facts),
    beat: (beat) => isLost || shared.beat(beat),
    bindSession: async (proposed, from) => (isLost ? undefined : shared.bindSession(proposed, from)),
  });
  const a = await fleet.open('a', { ...changes, wrap });
  const b = await fleet.open('b', changes);
  return {
    ...{ fleet, a, b },
    lose() {
      isLost = true;
    },
    async reconnect() {
      await settled(); // the replica has tried to publish its facts
      isLost = false;
      fleet.memory.reload('a');
      await settled();
    },
  };
}

const members = ({ pool }: ReplicaKit) => pool.members().map(({ id }) => id);
const names = ({ pool }: ReplicaKit) => pool.sessions().map(({ id }) => id);

async function openSession(kit: ReplicaKit, session: string): Promise<string> {
  const lease = await acquireAt(kit, { session });
  close(kit, lease);
  await settled();
  return lease.member;
}

describe('without the shared pool', () => {
  test('a session that ended ends in all replicas', async () => {
    const { a, b, lose, reconnect } = await openPair();
    addMembers(a, 3, LIFE_MS);
    for (const session of ['s1', 's2']) await openSession(a, session);
    lose();
    a.pool.parts.sessions.forget('s1');
    await settled();
    expect(names(b)).toEqual(['s1', 's2']);
    await reconnect();
    expect([names(a), names(b)]).toEqual([['s2'], ['s2']]);
  });

  test('a session that ended and was opened again has its new member in all replicas', async () => {
    const { a, b, lose, reconnect } = await openPair();
    addMembers(a, 3, LIFE_MS);
    const before = await openSession(a, 's1');
    lose();
    a.pool.parts.sessions.forget('s1');
    const after = await openSession(a, 's1');
    expect(after, 'the next member of the rotation').not.toBe(before);
    await reconnect();
    expect([a, b].map(({ pool }) => pool.memberOfSession('s1'))).toEqual([after, after]);
  });

  test('a session that was rotated has its new member in all replicas', async () => {
    const { a, b, lose, reconnect } = await openPair();
    addMembers(a, 3, LIFE_MS);
    await openSession(a, 's1');
    lose();
    const moved = a.pool.rotateSession('s1');
    await reconnect();
    expect([a, b].map(({ pool }) => pool.memberOfSession('s1'))).toEqual([moved?.to, moved?.to]);
  });

  test('a member that was restored is restored in all replicas', async () => {
    const { fleet, a, b, lose, reconnect } = await openPair();
    a.pool.addMembers('city', [drawn(a, 1, LIFE_MS, { unproven: true }), drawn(a, 2, LIFE_MS)]);
    await settled();
    const unproven = members(a).find((id) => stateOf(a, id) === 'joining') ?? '';
    const [failed = ''] = members(a).filter((id) => id !== unproven);
    fail(a, acquire(a));
    await settled();
    expect([unproven, failed].map((id) => stateOf(b, id))).toEqual(['joining', 'quarantined']);
    lose();
    const [probe] = a.pool.acquireForProbe(1);
    a.pool.report({ lease: probe?.id ?? 0, kind: 'accepted', latencyMs: 5 });
    fleet.clock.advance(10_000);
    use(a, {}, { avoid: [unproven] });
    fleet.clock.advance(61_000); // success no longer protects the member from a quarantine of another machine
    await reconnect();
    for (const kit of [a, b])
      expect([unproven, failed].map((id) => stateOf(kit, id))).toEqual(['ready', 'ready']);
  });

  test('of two quarantines, the longer one applies in all replicas', async () => {
    const { fleet, a, b, lose, reconnect } = await openPair({
      pool: { health: { maxFailures: 10, quarantineMs: 10_000 } },
    });
    addMembers(a, 3, LIFE_MS);
    await settled();
    const [restored = '', longerHere = '', longerThere = ''] = members(a);
    const others = (id: string) => members(a).filter((other) => other !== id);
    const failAt = (kit: ReplicaKit, id: string) => fail(kit, acquire(kit, {}, { avoid: others(id) }));
    failAt(a, restored);
    await settled();
    lose();
    fleet.clock.advance(10_000);
    use(a, {}, { avoid: others(restored) });
    failAt(b, restored);
    failAt(b, longerHere);
    failAt(a, longerThere);
    fleet.clock.advance(2_000);
    failAt(a, longerHere);
    failAt(b, longerThere);
    const startedAt = fleet.clock.monotonic();
    await reconnect();
    const restMs = (kit: ReplicaKit, id: string) => {
      const { at, members: found } = kit.pool.snapshot();
      return (found.find((member) => member.id === id)?.rest?.untilAt ?? at) - at;
    };
    expect(fleet.clock.monotonic()).toBe(startedAt);
    for (const kit of [a, b]) {
      expect(restMs(kit, restored), 'quarantined elsewhere after the restore').toBe(restMs(b, restored));
      expect([longerHere, longerThere].map((id) => restMs(kit, id))).toEqual([10_000, 10_000]);
    }
    expect(restMs(a, restored)).toBeGreaterThan(0);
  });

  test('one event reports how many sessions the fleet moved in the meantime', async () => {
    const { a, b, lose, reconnect } = await openPair({ sameMachine: false });
    addMembers(a, 5, LIFE_MS);
    for (const session of ['s1', 's2', 's3', 's4']) await openSession(a, session);
    const counts: number[] = [];
    a.bus.on('fleet.loaded', ({ movedSessions }) => void counts.push(movedSessions));
    lose();
    for (const session of ['s1', 's2', 's3']) b.pool.rotateSession(session);
    await settled();
    await reconnect();
    await reconnect();
    expect(counts).toEqual([3, 0]);
  });

  test('a member that is put back into an emptied shared pool keeps the name of the replica that drew it', async () => {
    const published: Fact[] = [];
    const fleet = openFleet();
    const a = await fleet.open('a', { sameMachine: false });
    addMembers(a, 1, LIFE_MS);
    await settled();
    const wrap = (shared: SharedPool): SharedPool => ({
      ...shared,
      publish: (facts) => void published.push(...facts),
    });
    const b = await fleet.open('b', { sameMachine: false, wrap });
    b.replica.receiveState(EMPTY_STATE);
    await settled();
    expect(published).toMatchObject([{ kind: 'member.joined', member: { drawnBy: 'a' } }]);
    a.replica.receiveState(EMPTY_STATE);
    const restarted = openKit();
    restarted.pool.restore(b.pool.snapshot(), 0);
    expect(restarted.pool.snapshot().members).toMatchObject([{ drawnBy: 'a' }]);
    expect(a.pool.snapshot().members[0]?.drawnBy, 'its own member').toBeUndefined();
  });

  test('a replica remembers a bounded number of facts, the latest ones', () => {
    const facts = new FactsInFlight();
    const banned = (number: number): Fact => ({
      ...{ kind: 'site.banned', source: 'city', exit: '203.0.113.7', site: `host${number}.example` },
      ...{ sinceAt: 0, untilAt: 60_000, forMs: 60_000, spacingMs: 0 },
    });
    const count = 3 * MAX_SUBJECTS;
    for (let number = 1; number <= count; number += 1) facts.add(banned(number));
    const missing = facts.missingIn(EMPTY_STATE, () => false, 0);
    expect(missing).toHaveLength(MAX_SUBJECTS);
    expect(missing.at(-1)).toEqual(banned(count));
  });
});

const about = { source: 'city', member: 'member01' };
const health = { inRow: 1, rests: 1 };
const session = { name: 's1', owner: { user: '', address: '' }, ttlMs: 1_000, usedAt: 0, uses: 0 };
const FACTS = {
  left: { kind: 'member.left', ...about, reason: 'failed' },
  member: { kind: 'member.quarantined', ...about, quarantine: { untilAt: 1, fault: 'internal', health } },
  restored: { kind: 'member.restored', ...about },
  ban: {
    ...{ kind: 'site.banned', source: 'city', site: 'shop.test', exit: '203.0.113.7' },
    ...{ sinceAt: 0, untilAt: 1, forMs: 1, spacingMs: 0 },
  },
  moved: { kind: 'session.moved', session, reason: 'new' },
  ended: { kind: 'session.ended', name: 's1' },
  command: { kind: 'source.commanded', source: 'city', command: 'pause' },
  report: { kind: 'source.reported', source: 'city', quota: {} },
  restriction: { kind: 'source.restricted', source: 'city', leaseLimit: 1 },
  frozen: { kind: 'evictions.frozen', on: true },
  suspected: { kind: 'member.suspected', ...about },
} as const satisfies Record<string, Fact>;
/** The names of the facts that a fact in flight overrides: those with its subject. */
const SAME: Record<string, readonly string[]> = {
  ...{ member: ['member', 'restored'], restored: ['member', 'restored'] },
  ...{ moved: ['moved', 'ended'], ended: ['moved', 'ended'], suspected: [] },
};

test.each(Object.entries(FACTS))(
  'facts in flight: %s covers the facts with its subject, until it returned',
  (name, fact) => {
    const inFlight = new FactsInFlight();
    const covered = () =>
      Object.entries(FACTS).flatMap(([other, each]) => (inFlight.covers(each) ? [other] : []));
    for (const _ of [1, 2]) inFlight.add(fact);
    expect(covered()).toEqual(SAME[name] ?? [name]);
    expect(inFlight.hasCommandFor('city')).toBe(name === 'command');
    inFlight.returned(fact);
    expect(covered(), 'one of two').toEqual(SAME[name] ?? [name]);
    inFlight.returned(fact);
    inFlight.returned(fact);
    expect(covered()).toEqual([]);
  },
);

test('facts in flight: nothing is missing about a member or a session that the state does not have', () => {
  const inFlight = new FactsInFlight();
  for (const fact of [FACTS.restored, FACTS.ended, FACTS.report, FACTS.left, FACTS.ban]) inFlight.add(fact);
  expect(inFlight.missingIn(EMPTY_STATE, () => false, 0)).toEqual([FACTS.left, FACTS.ban]);
  const state = { ...EMPTY_STATE, sessions: [session] };
  expect(inFlight.missingIn(state, () => false, 0)).toEqual([FACTS.ended, FACTS.left, FACTS.ban]);
  expect(
    inFlight.missingIn(state, () => true, 0),
    'it was opened again',
  ).toEqual([FACTS.left, FACTS.ban]);
});

test('facts in flight: the state of the sessions that have moved or ended is needed', () => {
  const inFlight = new FactsInFlight();
  for (const fact of Object.values(FACTS)) inFlight.add(fact);
  inFlight.add({ kind: 'session.ended', name: 's2' });
  inFlight.add({ kind: 'session.moved', session: { ...session, name: 's3' }, reason: 'new' });
  expect(inFlight.sessions()).toEqual(['s1', 's2', 's3']);
});

test('facts in flight: only an end, or a move that somebody asked for, replaces a loaded session', () => {
  const replaces = (fact: Fact) => {
    const inFlight = new FactsInFlight();
    inFlight.add(fact);
    return [inFlight.replacesSession('s1'), inFlight.replacesSession('s2')];
  };
  expect(replaces(FACTS.moved)).toEqual([false, false]);
  expect(replaces({ ...FACTS.moved, reason: 'rotated' })).toEqual([true, false]);
  expect(replaces(FACTS.ended)).toEqual([true, false]);
});

test('facts in flight: subjects of one kind are apart, and facts without a subject cover nothing', () => {
  const inFlight = new FactsInFlight();
  const joined: Fact = {
    kind: 'member.joined',
    member: sharedMember({ clock: new ManualClock() }, 'member01'),
  };
  for (const fact of [FACTS.restriction, FACTS.report, FACTS.command, joined]) inFlight.add(fact);
  for (const fact of [FACTS.restriction, FACTS.report, FACTS.command])
    expect(inFlight.covers({ ...fact, source: 'town' }), fact.kind).toBe(false);
  expect(inFlight.covers(FACTS.suspected)).toBe(false);
});

test('facts in flight: of two ends of a quarantine the later one counts, and one that has come replaces none', () => {
  const replaces = (fact: Fact, loadedUntilAt: number | undefined, now: number) => {
    const inFlight = new FactsInFlight();
    inFlight.add(fact);
    const quarantine =
      loadedUntilAt === undefined ? undefined : { ...FACTS.member.quarantine, untilAt: loadedUntilAt };
    const member = sharedMember({ clock: new ManualClock() }, 'member01');
    return inFlight.replacesQuarantine({ member, drawnBy: 'a', uses: 0, votes: [], quarantine }, now);
  };
  const until = (untilAt: number): Fact => ({
    ...FACTS.member,
    quarantine: { ...FACTS.member.quarantine, untilAt },
  });
  expect([replaces(until(9), 8, 0), replaces(until(9), 9, 0), replaces(until(9), undefined, 8)]).toEqual([
    true,
    false,
    true,
  ]);
  expect(replaces(until(9), undefined, 9)).toBe(false);
  expect([replaces(FACTS.restored, 9, 8), replaces(FACTS.restored, 9, 9)]).toEqual([false, true]);
});
