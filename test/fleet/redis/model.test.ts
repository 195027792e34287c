/** The in-memory pool is the model: the same random history must lead to the same state in the store. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { MemorySharedPool } from '../../../src/fleet/memory-shared-pool.ts';
import type { Beat, Fact, SharedMember, SharedSession, SharedState } from '../../../src/fleet/schemas.ts';
import type { SharedPool } from '../../../src/fleet/shared-pool.ts';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, TestStore } from '../../support/store-server.ts';
import { until } from '../../support/until.ts';
import { Recorder, sharedMember } from '../shared-pool-contract.ts';
import { openStoreStage } from './store-stage.ts';

const RUNS = Number(process.env['NORIA_FLEET_RUNS'] ?? 60);
const REPLICAS = ['a', 'b'];
/** All moments are multiples of this unit, so that the conversion between clocks can be reversed. */
const UNIT_MS = 100_000;

type Step =
  | { readonly kind: 'publish'; readonly by: number; readonly facts: readonly Fact[] }
  | { readonly kind: 'beat'; readonly by: number; readonly beat: Beat }
  | { readonly kind: 'bind'; readonly by: number; readonly session: SharedSession };

const member = fc.constantFrom('member01', 'member02', 'member03', 'member04');
const by = fc.nat(REPLICAS.length - 1);
const start = Math.round(systemClock.monotonic());
const units = fc.integer({ min: 1, max: 9 });
const moment = units.map((count) => start + count * UNIT_MS);
/**
 * Added to the ends of life in beats, so that they never equal those in facts: through a store, equal moments may differ by
 * a fraction of a unit.
 */
const LATER_MS = 0.3 * UNIT_MS;
const host = fc.constantFrom('one.example', 'two.example');
const session = fc.record({
  name: fc.constantFrom('s1', 's2'),
  owner: fc.constant({ user: '', address: '192.0.2.1' }),
  member,
  ttlMs: fc.constant(9 * UNIT_MS),
  usedAt: fc.constant(start),
  uses: fc.constant(0),
});

const fact: fc.Arbitrary<Fact> = fc.oneof(
  fc
    .tuple(member, units)
    .map(([id, count]): Fact => ({ kind: 'member.joined', member: memberOf(id, count) })),
  fc.record({
    kind: fc.constant('member.quarantined' as const),
    source: fc.constant('city'),
    member,
    quarantine: fc.record({
      untilAt: moment,
      fault: fc.constantFrom('member-silent' as const, 'member-closed' as const),
      health: fc.record({ inRow: fc.nat(3), rests: fc.nat(3) }),
    }),
  }),
  fc.record({ kind: fc.constant('member.restored' as const), source: fc.constant('city'), member }),
  fc.record({
    kind: fc.constant('member.left' as const),
    source: fc.constant('city'),
    member,
    reason: fc.constantFrom('failed' as const, 'evicted' as const),
  }),
  fc.record({
    kind: fc.constant('site.banned' as const),
    source: fc.constant('city'),
    site: host,
    exit: fc.constantFrom('203.0.113.7', '203.0.113.8'),
    sinceAt: moment,
    untilAt: moment,
    forMs: fc.constant(60_000),
    spacingMs: fc.constant(0),
  }),
  session.map((each): Fact => ({ kind: 'session.moved', session: each, reason: 'left' })),
  fc.record({ kind: fc.constant('session.ended' as const), name: fc.constantFrom('s1', 's2') }),
  fc.record({
    kind: fc.constant('source.commanded' as const),
    source: fc.constantFrom('city', 'backup'),
    command: fc.constantFrom('pause' as const, 'resume' as const, 'refill' as const),
  }),
);

const use = fc.record({
  member,
  uses: fc.nat(5),
  openLeases: fc.nat(2),
  endsAt: fc.option(
    moment.map((at) => at + LATER_MS),
    { nil: undefined },
  ),
});
const sessionUse = fc.record({
  session: fc.constantFrom('s1', 's2'),
  uses: fc.nat(5),
  openLeases: fc.nat(2),
  usedAt: moment,
  ttlMs: fc.constant(9 * UNIT_MS),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('publish' as const),
      by,
      facts: fc.array(fact, { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('beat' as const),
      by,
      beat: fc.record({
        waiting: fc.nat(3),
        demand: fc.constant({}),
        members: fc.uniqueArray(use, { maxLength: 3, selector: (each) => each.member }),
        sessions: fc.uniqueArray(sessionUse, { maxLength: 2, selector: (each) => each.session }),
      }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('bind' as const), by, session }) },
);

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  beforeAll(async () => {
    server = new TestStore(await freePort(), {});
    await server.start();
  });
  afterAll(() => server.close());

  test('redis: a random history leaves the state of the model, also after snapshots', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), async (steps) => {
        const stage = openStoreStage(server);
        const options = { minEntries: 1, beatEveryMs: 5 };
        // Facts are dropped when a connection is lost, as intended. On a busy machine a connection may be lost; the two states
        // are then not compared.
        const goOn = () => fc.pre(stage.lost.length === 0);
        const inStore = await play(steps, (replica) => stage.connect(replica, options), goOn);
        const model = new MemorySharedPool({ clock: systemClock });
        expect(inStore).toEqual(await play(steps, (replica) => model.connect(replica)));
      }),
      { numRuns: RUNS },
    );
  });
});

/** All members and sessions are created first, because a beat about unknown ones is unspecified. */
const BEGINNING: Step = {
  kind: 'publish',
  by: 0,
  facts: [
    ...['member01', 'member02', 'member03', 'member04'].map(
      (id): Fact => ({ kind: 'member.joined', member: memberOf(id, 1) }),
    ),
    ...['s1', 's2'].map(
      (name): Fact => ({
        kind: 'session.moved',
        reason: 'new',
        session: { name, owner: { user: '', address: '' }, ttlMs: 9 * UNIT_MS, usedAt: start, uses: 1 },
      }),
    ),
  ],
};

/**
 * Plays the steps one after the other. Returns the answers to binds, and the state that a new replica finds at the end.
 * @param goOn - called during waits; throws to stop the run.
 */
async function play(steps: readonly Step[], connect: (replica: string) => SharedPool, goOn = () => {}) {
  const pools = REPLICAS.map(connect);
  try {
    const bound = await playOn(pools, steps, goOn);
    const late = new Recorder();
    late.held.push('s1', 's2');
    const state = await loadedBy(connect('late'), late);
    goOn();
    return { bound, state: comparable(state) };
  } finally {
    await Promise.all(pools.map((pool) => pool.close()));
  }
}

async function playOn(pools: readonly SharedPool[], steps: readonly Step[], goOn: () => void) {
  const seen = pools.map(() => new Recorder());
  for (const [index, pool] of pools.entries()) await pool.follow(seen[index] as Recorder);
  const bound: unknown[] = [];
  for (const [number, { by: index, ...each }] of [BEGINNING, ...steps].entries()) {
    const pool = pools[index] as SharedPool;
    const other = seen[1 - index] as Recorder;
    const own = seen[index] as Recorder;
    const [beats, views] = [other.beats.length, own.views.length];
    if (each.kind === 'publish') pool.publish(each.facts);
    else if (each.kind === 'bind') bound.push((await pool.bindSession(each.session, undefined))?.member);
    else {
      pool.beat(each.beat);
      await until('the beat has arrived', () => {
        goOn();
        return other.beats.length > beats || own.views.length >= views + 2;
      });
    }
    await untilAllHaveFollowed(`step${String(number).padStart(4, '0')}`, pool, seen, goOn);
  }
  return bound;
}

/** Publishes a fact about an unknown member, which changes no state, and waits until every replica has it. Facts arrive in order. */
async function untilAllHaveFollowed(
  mark: string,
  pool: SharedPool,
  seen: readonly Recorder[],
  goOn: () => void,
): Promise<void> {
  pool.publish([{ kind: 'member.restored', source: 'city', member: mark }]);
  await until(`${mark} has arrived`, () => {
    goOn();
    return seen.every(({ facts }) =>
      facts.some(({ fact }) => fact.kind === 'member.restored' && fact.member === mark),
    );
  });
}

async function loadedBy(pool: SharedPool, recorder: Recorder): Promise<SharedState> {
  await pool.follow(recorder);
  await until('the state is loaded', () => recorder.loads.length > 0);
  await pool.close();
  const [state] = recorder.loads;
  if (state === undefined) throw new Error('nothing was loaded');
  return state;
}

/** Puts a state into a fixed order, with moments in whole units. */
function comparable({ members, bans, sessions, paused }: SharedState) {
  const unitsOf = (at: number) => Math.round((at - start) / UNIT_MS) + 0; // + 0 avoids a negative zero
  return {
    members: members
      .map((record) => ({
        ...record,
        member: {
          ...record.member,
          joinedAt: unitsOf(record.member.joinedAt),
          endsAt: unitsOf(record.member.endsAt),
        },
        ...(record.quarantine && {
          quarantine: { ...record.quarantine, untilAt: unitsOf(record.quarantine.untilAt) },
        }),
      }))
      .sort((a, b) => (a.member.id < b.member.id ? -1 : 1)),
    sessions: sessions
      .map((each) => ({ ...each, usedAt: unitsOf(each.usedAt) }))
      .sort((a, b) => (a.name < b.name ? -1 : 1)),
    bans: bans
      .map((ban) => ({ ...ban, sinceAt: unitsOf(ban.sinceAt), untilAt: unitsOf(ban.untilAt) }))
      .sort((a, b) => (a.site + a.exit < b.site + b.exit ? -1 : 1)),
    paused: [...paused].sort(),
  };
}

/** @param count - how many units later the member ends. */
function memberOf(id: string, count: number): SharedMember {
  const end = { endsAt: start + count * UNIT_MS, endIsAssumed: count % 2 === 1 };
  return { ...sharedMember({ clock: systemClock }, id), joinedAt: start, ...end };
}
