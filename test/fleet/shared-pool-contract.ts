/** The contract of `SharedPool`. It runs against each implementation with a real store where there is one. */
import { expect, onTestFinished, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import type {
  Beat,
  Fact,
  FactFollower,
  FleetActivity,
  LoggedFact,
  SharedPool,
  SharedState,
} from '../../src/fleet/shared-pool.ts';
import type { SharedMember, SharedSession } from '../../src/pool/shared-member.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { until } from '../support/until.ts';

/** A shared pool that a test has opened. */
export interface SharedPoolStage {
  /** The clock of all replicas. */
  readonly clock: Clock;
  /** Opens a connection that the test has not used yet. */
  connect(replica: string): SharedPool | Promise<SharedPool>;
}

/** A follower that records what it receives. */
export class Recorder implements FactFollower {
  readonly loads: SharedState[] = [];
  readonly facts: LoggedFact[] = [];
  readonly views: FleetActivity[] = [];

  receiveState(state: SharedState): void {
    this.loads.push(state);
  }

  receiveFacts(facts: readonly LoggedFact[]): void {
    this.facts.push(...facts);
  }

  receiveActivity(view: FleetActivity): void {
    this.views.push(view);
  }

  get replicas(): readonly string[] {
    return this.views.at(-1)?.replicas ?? [];
  }

  /** All beats so far. */
  get beats(): FleetActivity['beats'] {
    return this.views.flatMap(({ beats }) => beats);
  }
}

interface Joined {
  readonly shared: SharedPool;
  readonly seen: Recorder;
}

async function join(stage: SharedPoolStage, replica: string): Promise<Joined> {
  const shared = await stage.connect(replica);
  onTestFinished(() => shared.close());
  const seen = new Recorder();
  await shared.follow(seen);
  return { shared, seen };
}

/** Creates a member that lives for a minute. */
export function sharedMember(
  { clock }: Pick<SharedPoolStage, 'clock'>,
  id: string,
  lifeMs = 60_000,
): SharedMember {
  const now = clock.monotonic();
  return {
    id,
    source: 'city',
    protocol: 'http',
    host: '203.0.113.7',
    port: 8000,
    joinedAt: now,
    endsAt: now + lifeMs,
    endIsAssumed: false,
    unproven: false,
    location: 'Lisbon',
    facts: { carrier: 'one' },
  };
}

function sharedSession({ clock }: SharedPoolStage, name: string, member: string): SharedSession {
  const owner = { user: 'me', address: '192.0.2.1' };
  return { name, owner, member, ttlMs: 60_000, usedAt: clock.monotonic(), uses: 0 };
}

const emptyBeat: Beat = { waiting: 0, demand: {}, members: [], sessions: [] };

const left = (member: string, votesNeeded: number): Fact => ({
  kind: 'member.left',
  member,
  reason: 'failed',
  fault: 'member-unreachable',
  votesNeeded,
});

/** Returns the state that a replica finds when it starts now. */
async function stateOf(stage: SharedPoolStage, replica: string): Promise<SharedState> {
  const { seen, shared } = await join(stage, replica);
  await shared.close();
  const [state] = seen.loads;
  if (state === undefined) throw new Error('nothing was loaded');
  return state;
}

/**
 * Moments may be converted between processes, so they may differ by up to 5 s. A conversion to a wrong clock is wrong
 * by far more.
 */
const near = (moment: number) => expect.closeTo(moment, -4);

/** @param open - opens an empty shared pool, which ends with the test. */
export function testSharedPool(name: string, open: () => SharedPoolStage | Promise<SharedPoolStage>): void {
  test(`${name}: every replica follows all facts in one order, its own included`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    for (let n = 0; n < 20; n += 1) {
      a.shared.publish([left(`a${n}`, 1), left(`a${n}b`, 1)]);
      b.shared.publish([left(`b${n}`, 1)]);
    }
    await until('both have all facts', () => a.seen.facts.length === 60 && b.seen.facts.length === 60);
    expect(a.seen.facts).toEqual(b.seen.facts);
    const ofA = a.seen.facts.filter(({ by }) => by === 'a').map(({ fact }) => fact);
    expect(ofA.map((fact) => 'member' in fact && fact.member)).toEqual(
      Array.from({ length: 20 }, (_, n) => [`a${n}`, `a${n}b`]).flat(),
    );
  });

  test(`${name}: a member arrives with all its data`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const member = sharedMember(stage, 'm1');
    a.shared.publish([{ kind: 'member.joined', member }]);
    await until('it has arrived', () => b.seen.facts.length === 1);
    const converted = { ...member, joinedAt: near(member.joinedAt), endsAt: near(member.endsAt) };
    expect(b.seen.facts).toEqual([{ by: 'a', fact: { kind: 'member.joined', member: converted } }]);
    expect(await stateOf(stage, 'late')).toEqual({
      members: [{ member: converted, drawnBy: 'a', bans: [], uses: 0, votes: [] }],
      sessions: [],
      paused: [],
    });
  });

  test(`${name}: a replica that starts gets the state, then only later facts`, async () => {
    const stage = await open();
    const a = await join(stage, 'a');
    const quarantine = {
      untilAt: stage.clock.monotonic() + 5_000,
      fault: 'member-unreachable',
      health: { inRow: 1, rests: 1 },
    } as const;
    const session = sharedSession(stage, 's1', 'm1');
    a.shared.publish([
      { kind: 'member.joined', member: sharedMember(stage, 'm1') },
      { kind: 'member.joined', member: sharedMember(stage, 'm2') },
      { kind: 'member.quarantined', member: 'm1', quarantine },
      { kind: 'member.quarantined', member: 'm2', quarantine },
      { kind: 'member.restored', member: 'm2' },
      { kind: 'member.banned', member: 'm1', host: 'one.example', lifted: false },
      { kind: 'member.banned', member: 'm1', host: 'two.example', lifted: false },
      { kind: 'member.banned', member: 'm1', host: 'one.example', lifted: true },
      { kind: 'session.moved', session, reason: 'new' },
      { kind: 'session.moved', session: { ...session, name: 's2' }, reason: 'new' },
      { kind: 'session.ended', name: 's2' },
      { kind: 'source.commanded', source: 'city', command: 'pause' },
      { kind: 'source.commanded', source: 'backup', command: 'pause' },
      { kind: 'source.commanded', source: 'backup', command: 'resume' },
    ]);
    await until('the facts are in the log', () => a.seen.facts.length === 14);
    const b = await join(stage, 'b');
    const [state] = b.seen.loads;
    const [m1, m2] = [...(state?.members ?? [])].sort((one, other) =>
      one.member.id < other.member.id ? -1 : 1,
    );
    expect(m1).toMatchObject({
      member: { id: 'm1' },
      quarantine: { ...quarantine, untilAt: near(quarantine.untilAt) },
      bans: ['two.example'],
    });
    expect(m2?.quarantine).toBeUndefined();
    expect(state?.sessions).toEqual([{ ...session, usedAt: near(session.usedAt) }]);
    expect(state?.paused).toEqual(['city']);
    expect(b.seen.facts).toEqual([]);
    a.shared.publish([left('m2', 1)]);
    await until('it follows', () => b.seen.facts.length === 1);
  });

  test(`${name}: a member is removed by as many replicas as the vote needs, and no late fact brings it back`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const joined: Fact = { kind: 'member.joined', member: sharedMember(stage, 'm1') };
    a.shared.publish([joined, left('m1', 2), left('m1', 2)]);
    await until('the votes are in the log', () => b.seen.facts.length === 3);
    const [before] = (await stateOf(stage, 'late')).members;
    expect([before?.votes, before?.left]).toEqual([['a'], undefined]);
    b.shared.publish([left('m1', 2), joined]);
    await until('the votes are in the log', () => a.seen.facts.length === 5);
    const [after] = (await stateOf(stage, 'later')).members;
    expect(after?.left).toEqual({ reason: 'failed', fault: 'member-unreachable' });
  });

  test(`${name}: of two ends of life the later one counts`, async () => {
    const stage = await open();
    const a = await join(stage, 'a');
    const member = sharedMember(stage, 'm1');
    const later = { ...member, endsAt: member.endsAt + 30_000 };
    a.shared.publish([member, later, member].map((each) => ({ kind: 'member.joined', member: each })));
    await until('the facts are in the log', () => a.seen.facts.length === 3);
    const [state] = (await stateOf(stage, 'late')).members;
    expect(state?.member.endsAt).toEqual(near(later.endsAt));
  });

  test(`${name}: replicas see each other and hear each other's beats`, async () => {
    const stage = await open();
    const a = await join(stage, 'a');
    expect(a.seen.replicas).toEqual(['a']);
    const b = await join(stage, 'b');
    await until('it is seen', () => a.seen.replicas.length === 2);
    expect(a.seen.replicas).toEqual(b.seen.replicas);
    const session = sharedSession(stage, 's1', 'm1');
    a.shared.publish([
      { kind: 'member.joined', member: sharedMember(stage, 'm1') },
      { kind: 'session.moved', session, reason: 'new' },
    ]);
    const demand = { waiting: 2, lastWantedAt: stage.clock.monotonic(), usedUpPerSecond: 0.5 };
    const use = { member: 'm1', uses: 3, openLeases: 1, latencyMs: 20 };
    const usedAt = session.usedAt + 5_000;
    const sessions = [{ session: 's1', uses: 2, openLeases: 1, usedAt, ttlMs: 90_000 }];
    a.shared.beat({ waiting: 2, demand: { city: demand }, members: [use], sessions });
    await until('it is heard', () => b.seen.beats.length > 0);
    expect(b.seen.beats.at(-1)).toEqual({
      by: 'a',
      beat: {
        waiting: 2,
        demand: { city: { ...demand, lastWantedAt: near(demand.lastWantedAt) } },
        members: [use],
        sessions: [{ session: 's1', uses: 2, openLeases: 1, usedAt: near(usedAt), ttlMs: 90_000 }],
      },
    });
    a.shared.beat({ ...emptyBeat, members: [{ ...use, uses: 1, openLeases: 0 }] });
    await until('it is heard', () => b.seen.beats.at(-1)?.beat.waiting === 0);
    expect(b.seen.beats.at(-1)?.beat.members).toMatchObject([{ member: 'm1', openLeases: 0 }]);
    for (const { seen } of [a, b]) {
      await until('it knows the sum', () => seen.views.some(({ uses }) => uses['m1'] === 4));
    }
    expect(a.seen.beats).toEqual([]);
    const state = await stateOf(stage, 'late');
    expect(state.members[0]?.uses).toBe(4);
    expect(state.sessions).toMatchObject([{ uses: 2, usedAt: near(usedAt), ttlMs: 90_000 }]);
    await b.shared.close();
    await until('it is no longer seen', () => a.seen.replicas.length === 1);
  });

  test(`${name}: replicas that open the same session at once agree on one`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const proposals = ['m1', 'm2'].map((member) => sharedSession(stage, 's1', member));
    const [first, second] = proposals as [SharedSession, SharedSession];
    const answers = await Promise.all([a.shared.bindSession(first), b.shared.bindSession(second)]);
    const members = answers.map(({ member }) => member);
    expect(members[0]).toBe(members[1]);
    expect(['m1', 'm2']).toContain(members[0]);
    await until('it is in the log', () => a.seen.facts.length === 1 && b.seen.facts.length === 1);
    expect(a.seen.facts[0]?.fact).toMatchObject({ kind: 'session.moved', session: { member: members[0] } });
    const moved = { ...first, member: 'm3' };
    b.shared.publish([{ kind: 'session.moved', session: moved, reason: 'left' }]);
    await until('it has moved', () => a.seen.facts.length === 2);
    expect((await a.shared.bindSession(first)).member).toBe('m3');
    b.shared.publish([{ kind: 'session.ended', name: 's1' }]);
    await until('it has ended', () => a.seen.facts.length === 3);
    expect((await a.shared.bindSession({ ...first, member: undefined })).member).toBeUndefined();
    expect((await b.shared.bindSession(first)).member, 'it had no member').toBe('m1');
  });

  test(`${name}: after close, it ignores what the replica publishes`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    await a.shared.close();
    await a.shared.close();
    const session = sharedSession(stage, 's1', 'm1');
    a.shared.publish([left('m1', 1)]);
    a.shared.beat(emptyBeat);
    expect(await a.shared.bindSession(session)).toEqual(session);
    b.shared.publish([left('m2', 1)]);
    await until('later facts arrive', () => b.seen.facts.length > 0);
    expect(b.seen.facts).toEqual([{ by: 'b', fact: left('m2', 1) }]);
    expect(a.seen.facts).toEqual([]);
  });
}

/** A timekeeper for pools whose replicas share a clock. */
export function timekeeperOf(clock: Clock) {
  return createTimekeeper(clock, {
    id: 'test',
    elapsedMs: () => clock.monotonic(),
    uptimeMs: () => clock.monotonic(),
  });
}
