/** The contract of `SharedPool`. It runs against each implementation with a real store where there is one. */
import { expect, onTestFinished, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import type {
  Beat,
  Fact,
  FactOf,
  LoggedFact,
  SharedMember,
  SharedSession,
  SharedState,
} from '../../src/fleet/schemas.ts';
import type { FactFollower, FleetActivity, SharedPool } from '../../src/fleet/shared-pool.ts';
import { NO_DEMAND } from '../../src/pool/drawn-member.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { until } from '../support/until.ts';

export const EMPTY_STATE: SharedState = {
  members: [],
  bans: [],
  sessions: [],
  paused: [],
  resumed: [],
  reports: [],
  restrictions: [],
};

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

  /** The sessions that the replica has. A test may add some. */
  readonly held: string[] = [];

  heldSessions(): readonly string[] {
    return this.held;
  }

  get replicas(): readonly string[] {
    return this.views.at(-1)?.replicas ?? [];
  }

  /** All beats so far. */
  get beats(): FleetActivity['beats'] {
    return this.views.flatMap(({ beats }) => beats);
  }

  /** The end of life of a member that other replicas last announced. */
  endOf(member: string): number | undefined {
    return this.views
      .flatMap(({ beats, ends = {} }) => [
        ...beats.flatMap(({ beat }) => beat.members.filter((use) => use.member === member)),
        ...(ends[member] === undefined ? [] : [{ endsAt: ends[member] }]),
      ])
      .at(-1)?.endsAt;
  }

  /** The demand of all other replicas, of which there is only one. */
  get demand(): Beat['demand'] {
    return (
      this.views.findLast(({ demand }) => demand !== undefined)?.demand ??
      this.beats.at(-1)?.beat.demand ??
      {}
    );
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

/** A ban by a site that lasts a minute. */
export function siteBan(
  { clock }: Pick<SharedPoolStage, 'clock'>,
  site: string,
  changes: Partial<FactOf<'site.banned'>> = {},
): FactOf<'site.banned'> {
  const now = clock.monotonic();
  return {
    ...{ kind: 'site.banned', source: 'city', site, exit: '203.0.113.7' },
    ...{ sinceAt: now, untilAt: now + 60_000, forMs: 60_000, spacingMs: 0, ...changes },
  };
}

function sharedSession({ clock }: SharedPoolStage, name: string, member: string): SharedSession {
  const owner = { user: 'me', address: '192.0.2.1' };
  return { name, owner, member, ttlMs: 60_000, usedAt: clock.monotonic(), uses: 0 };
}

const emptyBeat: Beat = { waiting: 0, demand: {}, members: [], sessions: [] };

const left = (member: string): Fact => ({
  kind: 'member.left',
  source: 'city',
  member,
  reason: 'failed',
  fault: 'member-unreachable',
});

const named = (letter: string, n: number): string => `${letter}${String(n).padStart(7, '0')}`;

/** Returns the state that a replica finds when it starts now. */
async function stateOf(stage: SharedPoolStage, replica: string): Promise<SharedState> {
  const { seen, shared } = await join(stage, replica);
  await until('the state is loaded', () => seen.loads.length > 0);
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
      a.shared.publish([left(named('a', n)), left(named('c', n))]);
      b.shared.publish([left(named('b', n))]);
    }
    await until('both have all facts', () => a.seen.facts.length === 60 && b.seen.facts.length === 60);
    expect(a.seen.facts).toEqual(b.seen.facts);
    const ofA = a.seen.facts.filter(({ by }) => by === 'a').map(({ fact }) => fact);
    expect(ofA.map((fact) => 'member' in fact && fact.member)).toEqual(
      Array.from({ length: 20 }, (_, n) => [named('a', n), named('c', n)]).flat(),
    );
  });

  test(`${name}: a member arrives with all its data`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const member = sharedMember(stage, 'member01');
    a.shared.publish([{ kind: 'member.joined', member }]);
    await until('it has arrived', () => b.seen.facts.length === 1);
    const converted = { ...member, joinedAt: near(member.joinedAt), endsAt: near(member.endsAt) };
    expect(b.seen.facts).toEqual([{ by: 'a', fact: { kind: 'member.joined', member: converted } }]);
    expect(await stateOf(stage, 'late')).toEqual({
      ...EMPTY_STATE,
      members: [{ member: converted, drawnBy: 'a', uses: 0, votes: [] }],
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
    a.shared.publish([
      { kind: 'member.joined', member: sharedMember(stage, 'member01') },
      { kind: 'member.joined', member: sharedMember(stage, 'member02') },
      { kind: 'member.quarantined', source: 'city', member: 'member01', quarantine },
      { kind: 'member.quarantined', source: 'city', member: 'member02', quarantine },
      { kind: 'member.restored', source: 'city', member: 'member02' },
      siteBan(stage, 'one.example'),
      siteBan(stage, 'two.example'),
      siteBan(stage, 'one.example', {
        sinceAt: stage.clock.monotonic() + 5,
        untilAt: stage.clock.monotonic() - 5,
      }),
      { kind: 'source.commanded', source: 'city', command: 'pause' },
      { kind: 'source.commanded', source: 'backup', command: 'pause' },
      { kind: 'source.commanded', source: 'backup', command: 'resume' },
    ]);
    await until('the facts are in the log', () => a.seen.facts.length === 11);
    const b = await join(stage, 'b');
    await until('the state is loaded', () => b.seen.loads.length > 0);
    const [state] = b.seen.loads;
    const [m1, m2] = [...(state?.members ?? [])].sort((one, other) =>
      one.member.id < other.member.id ? -1 : 1,
    );
    expect(m1).toMatchObject({
      member: { id: 'member01' },
      quarantine: { ...quarantine, untilAt: near(quarantine.untilAt) },
    });
    expect(state?.bans).toMatchObject([{ site: 'two.example', exit: '203.0.113.7', forMs: 60_000 }]);
    expect(m2?.quarantine).toBeUndefined();
    expect(state?.paused).toEqual(['city']);
    expect(b.seen.facts).toEqual([]);
    a.shared.publish([left('member02')]);
    await until('it follows', () => b.seen.facts.length === 1);
  });

  test(`${name}: the state has the votes of all replicas, and no late fact removes them`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const joined: Fact = { kind: 'member.joined', member: sharedMember(stage, 'member01') };
    a.shared.publish([joined, left('member01'), left('member01')]);
    await until('the votes are in the log', () => b.seen.facts.length === 3);
    const [before] = (await stateOf(stage, 'late')).members;
    expect([before?.votes, before?.left]).toEqual([['a'], undefined]);
    b.shared.publish([left('member01'), joined]);
    await until('the votes are in the log', () => a.seen.facts.length === 5);
    const [after] = (await stateOf(stage, 'later')).members;
    expect([after?.votes, after?.fault]).toEqual([['a', 'b'], 'member-unreachable']);
  });

  test(`${name}: of two ends of life the later one counts`, async () => {
    const stage = await open();
    const a = await join(stage, 'a');
    const member = sharedMember(stage, 'member01');
    const later = { ...member, endsAt: member.endsAt + 30_000 };
    a.shared.publish([member, later, member].map((each) => ({ kind: 'member.joined', member: each })));
    await until('the facts are in the log', () => a.seen.facts.length === 3);
    const [state] = (await stateOf(stage, 'late')).members;
    expect(state?.member.endsAt).toEqual(near(later.endsAt));
  });

  test(`${name}: an end of life that the service reported replaces an assumed one, in any order`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const ends = (id: string, lifeMs: number, endIsAssumed: boolean): Fact => ({
      kind: 'member.joined',
      member: { ...sharedMember(stage, id, lifeMs), endIsAssumed },
    });
    const ids = ['assumed1', 'changed1', 'reported'];
    a.shared.publish([
      ends('assumed1', 60_000, true),
      ends('changed1', 60_000, true),
      ends('reported', 60_000, false),
    ]);
    await until('the members are in the log', () => a.seen.facts.length === 3 && b.seen.facts.length === 3);
    const renewedAt = stage.clock.monotonic() + 120_000;
    const use = { uses: 1, openLeases: 0, endsAt: renewedAt };
    a.shared.beat({ ...emptyBeat, members: ids.map((member) => ({ member, ...use })) });
    await until('the other replica knows the new ends', () => b.seen.endOf('assumed1') !== undefined);
    expect(b.seen.endOf('assumed1')).toEqual(near(renewedAt));
    b.shared.publish([ends('changed1', 90_000, false), ends('changed1', 180_000, true)]);
    await until('the new ends are in the log', () => a.seen.facts.length === 5);
    const { members } = await stateOf(stage, 'late');
    const lives = members.map(({ member: { id, endsAt, endIsAssumed } }) => [
      id,
      Math.round((endsAt - stage.clock.monotonic()) / 30_000),
      endIsAssumed,
    ]);
    expect(lives.sort()).toEqual([
      ['assumed1', 4, true],
      ['changed1', 3, false],
      ['reported', 2, false],
    ]);
  });

  test(`${name}: replicas see each other and hear each other's beats`, async () => {
    const stage = await open();
    const a = await join(stage, 'a');
    expect(a.seen.replicas).toEqual(['a']);
    const b = await join(stage, 'b');
    await until('it is seen', () => a.seen.replicas.length === 2);
    expect(a.seen.replicas).toEqual(b.seen.replicas);
    const session = sharedSession(stage, 's1', 'member01');
    a.shared.publish([
      { kind: 'member.joined', member: sharedMember(stage, 'member01') },
      { kind: 'session.moved', session, reason: 'new' },
    ]);
    await until('the member is in the log', () => b.seen.facts.length >= 1 && a.seen.facts.length >= 2);
    const lastWantedAt = stage.clock.monotonic();
    const demand = { ...NO_DEMAND, waiting: 2, lastWantedAt, usedUpPerSecond: 0.5 };
    const use = { member: 'member01', uses: 3, openLeases: 1, latencyMs: 20 };
    const usedAt = session.usedAt + 5_000;
    const sessions = [{ session: 's1', uses: 2, openLeases: 1, usedAt, ttlMs: 90_000 }];
    a.shared.beat({ waiting: 2, demand: { city: demand }, members: [use], sessions });
    await until('it is heard', () => b.seen.demand['city']?.waiting === 2);
    expect(b.seen.demand).toEqual({ city: { ...demand, lastWantedAt: near(demand.lastWantedAt) } });
    a.shared.beat({ ...emptyBeat, members: [{ ...use, uses: 1, openLeases: 0 }] });
    await until('it is heard', () => (b.seen.demand['city']?.waiting ?? 0) === 0);
    for (const { seen } of [a, b]) {
      await until('it knows the sum', () => seen.views.some(({ uses }) => uses['member01'] === 4));
    }
    expect(a.seen.demand['city']?.waiting ?? 0, 'its own demand is not the demand of others').toBe(0);
    const state = await stateOf(stage, 'late');
    expect(state.members[0]?.uses).toBe(4);
    const found = await b.shared.bindSession({ ...session, member: 'member02' }, undefined);
    expect(found).toMatchObject({ member: 'member01', uses: 2, usedAt: near(usedAt), ttlMs: 90_000 });
    await b.shared.close();
    await until('it is no longer seen', () => a.seen.replicas.length === 1);
  });

  test(`${name}: replicas that open the same session at once agree on one`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const proposals = ['member01', 'member02'].map((member) => sharedSession(stage, 's1', member));
    const [first, second] = proposals as [SharedSession, SharedSession];
    const answers = await Promise.all([
      a.shared.bindSession(first, undefined),
      b.shared.bindSession(second, undefined),
    ]);
    const members = answers.map((answer) => answer?.member);
    expect(members[0]).toBe(members[1]);
    expect(['member01', 'member02']).toContain(members[0]);
    const [from = ''] = members;
    const moves = ['member03', 'member04'].map((member) => ({ ...first, member }));
    const moved = await Promise.all([
      a.shared.bindSession(moves[0] as SharedSession, from),
      b.shared.bindSession(moves[1] as SharedSession, from),
    ]);
    expect(moved[0]?.member, 'they move it to one member').toBe(moved[1]?.member);
    expect(['member03', 'member04']).toContain(moved[0]?.member);
    expect((await a.shared.bindSession({ ...first, member: from }, from))?.member, 'it is late').toBe(
      moved[0]?.member,
    );
    b.shared.publish([{ kind: 'session.ended', name: 's1' }]);
    await until('it has ended', () => a.seen.facts.some(({ fact }) => fact.kind === 'session.ended'));
    const unbound = { ...first };
    delete (unbound as { member?: string }).member;
    expect((await a.shared.bindSession(unbound, undefined))?.member).toBeUndefined();
    expect((await b.shared.bindSession(first, undefined))?.member, 'it had no member').toBe('member01');
  });

  test(`${name}: a session of another replica can be found`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const session = sharedSession(stage, 's1', 'member01');
    await a.shared.bindSession(session, undefined);
    expect(await b.shared.findSession('s1')).toEqual({ ...session, usedAt: near(session.usedAt) });
    expect(await b.shared.findSession('s2')).toBeUndefined();
    b.shared.publish([
      {
        kind: 'session.moved',
        session: { ...session, member: 'member02' },
        from: 'member01',
        reason: 'left',
      },
    ]);
    const moved = () => a.seen.facts.some(({ fact }) => JSON.stringify(fact).includes('member02'));
    await until('it has moved', moved);
    expect(await a.shared.findSession('s1')).toMatchObject({ member: 'member02' });
    await a.shared.close();
    expect(await a.shared.findSession('s1')).toBeUndefined();
  });

  test(`${name}: a move that comes too late has no effect, and its replica learns the member`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    const session = sharedSession(stage, 's1', 'member01');
    await a.shared.bindSession(session, undefined);
    await b.shared.bindSession(session, undefined);
    const membersAt = ({ seen }: Joined) =>
      seen.facts.flatMap(({ fact }) => (fact.kind === 'session.moved' ? [fact.session.member] : []));
    const to = (member: string): Fact => ({
      kind: 'session.moved',
      session: { ...session, member },
      from: 'member01',
      reason: 'rotated',
    });
    a.shared.publish([to('member02')]);
    await until('the other replica has heard of the move', () => membersAt(b).includes('member02'));
    await until('it has its own fact', () => membersAt(a).length > 0);
    const moves = membersAt(a).length;
    b.shared.publish([to('member03')]);
    await until('it has its own fact and the session of the state', () => {
      const seen = membersAt(b);
      return seen.includes('member03') && seen.at(-1) === 'member02';
    });
    expect(membersAt(a)).not.toContain('member03');
    expect(membersAt(a), 'its own move once').toHaveLength(moves);
    expect(membersAt(a).filter((member) => member === 'member02')).toHaveLength(1);
  });

  test(`${name}: after close, it ignores what the replica publishes`, async () => {
    const stage = await open();
    const [a, b] = [await join(stage, 'a'), await join(stage, 'b')];
    await a.shared.close();
    await a.shared.close();
    const session = sharedSession(stage, 's1', 'member01');
    a.shared.publish([left('member01')]);
    a.shared.beat(emptyBeat);
    expect(await a.shared.bindSession(session, undefined)).toBeUndefined();
    b.shared.publish([left('member02')]);
    await until('later facts arrive', () => b.seen.facts.length > 0);
    expect(b.seen.facts).toEqual([{ by: 'b', fact: left('member02') }]);
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
