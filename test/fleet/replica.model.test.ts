/**
 * Random histories on three replicas. Facts reach each replica late and at different times; when all have arrived, the pools
 * are the same.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { FleetView, LoggedFact, SharedPool } from '../../src/fleet/shared-pool.ts';
import { isLease, type Lease } from '../../src/pool/lease.ts';
import { accept, close, drawn, fail, request } from '../pool/pool-kit.ts';
import { openFleet, type ReplicaKit, settled } from './replica-kit.ts';

const NAMES = ['a', 'b', 'c'] as const;

/** A connection that withholds what its follower receives until `release`. */
class LateConnection {
  readonly #held: (() => void)[] = [];

  wrap(shared: SharedPool): SharedPool {
    return {
      ...shared,
      follow: (follower) =>
        shared.follow({
          loaded: (state) => follower.loaded(state),
          followed: (facts: readonly LoggedFact[]) => this.#held.push(() => follower.followed(facts)),
          heard: (view: FleetView) => this.#held.push(() => follower.heard(view)),
        }),
    };
  }

  release(count = this.#held.length): void {
    for (const deliver of this.#held.splice(0, count)) deliver();
  }

  get heldCount(): number {
    return this.#held.length;
  }
}

type Step =
  | { readonly do: 'draw'; readonly numbers: readonly number[] }
  | { readonly do: 'use'; readonly session: number | undefined; readonly outcome: 'ok' | 'failed' }
  | { readonly do: 'evict' | 'rotate' | 'forget'; readonly which: number }
  | { readonly do: 'ban'; readonly which: number; readonly lifted: boolean }
  | { readonly do: 'receive'; readonly count: number }
  | { readonly do: 'pass'; readonly ms: number };

const few = fc.nat({ max: 5 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('draw' as const), numbers: fc.array(few, { maxLength: 4 }) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('use' as const),
      session: fc.option(fc.nat({ max: 2 }), { nil: undefined }),
      outcome: fc.constantFrom('ok' as const, 'failed' as const),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('evict' as const, 'rotate' as const, 'forget' as const),
      which: few,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('ban' as const), which: few, lifted: fc.boolean() }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('receive' as const), count: fc.integer({ min: 1, max: 4 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1_000, 15_000) }),
  },
);
const history = fc.array(fc.tuple(fc.nat({ max: NAMES.length - 1 }), step), { maxLength: 40 });

class Model {
  readonly clock;
  readonly #kits: ReplicaKit[];
  readonly #late: LateConnection[];
  readonly #waiting: Promise<void>[] = [];

  constructor(clock: { advance(ms: number): void }, kits: ReplicaKit[], late: LateConnection[]) {
    this.clock = clock;
    this.#kits = kits;
    this.#late = late;
  }

  async run([index, step]: readonly [number, Step]): Promise<void> {
    const kit = this.#kits[index];
    if (kit === undefined) return;
    this.#do(kit, index, step);
    await settled();
  }

  #do(kit: ReplicaKit, index: number, step: Step): void {
    const { pool } = kit;
    const member = (which: number) =>
      pool.members()[which % Math.max(1, pool.members().length)]?.id ?? 'none';
    switch (step.do) {
      case 'draw': // the pace lets a replica draw only if it has received everything
        this.#late[index]?.release();
        pool.addMembers(
          'city',
          step.numbers.map((number) => drawn(kit, number, 120_000)),
        );
        break;
      case 'use':
        this.#use(kit, step.session, step.outcome);
        break;
      case 'evict':
        pool.evict(member(step.which));
        break;
      case 'rotate':
        pool.rotateSession(`s${step.which % 3}`);
        break;
      case 'forget':
        pool.forgetSession(`s${step.which % 3}`);
        break;
      case 'ban':
        pool.ban({
          of: { member: member(step.which) },
          host: 'one.example',
          verdict: step.lifted ? 'ok' : 'banned',
        });
        break;
      case 'receive':
        this.#late[index]?.release(step.count);
        break;
      case 'pass':
        this.clock.advance(step.ms);
        break;
    }
  }

  #use(kit: ReplicaKit, session: number | undefined, outcome: 'ok' | 'failed'): void {
    const routing = session === undefined ? {} : { session: `s${session}` };
    const end = (answer: Lease | object) => {
      if (!('member' in answer) || !isLease(answer as Lease)) return;
      const lease = answer as Lease;
      if (outcome === 'failed') fail(kit, lease);
      else {
        accept(kit, lease);
        close(kit, lease);
      }
    };
    const answer = kit.replica.acquire(request(routing));
    if (answer instanceof Promise) this.#waiting.push(answer.then(end));
    else end(answer);
  }

  /** Delivers everything that was published. */
  async settle(): Promise<void> {
    do {
      for (const late of this.#late) late.release();
      await settled();
    } while (this.#late.some(({ heldCount }) => heldCount > 0));
    await Promise.all(this.#waiting);
    this.clock.advance(1_000);
    do {
      for (const late of this.#late) late.release();
      await settled();
    } while (this.#late.some(({ heldCount }) => heldCount > 0));
  }

  states(): object[] {
    return this.#kits.map(({ pool }) => ({
      members: pool
        .members()
        .filter(({ state }) => state !== 'draining')
        .map(({ id, host, state, remainingSeconds, uses }) => ({ id, host, state, remainingSeconds, uses }))
        .sort((one, other) => (one.id < other.id ? -1 : 1)),
      bans: pool
        .snapshot()
        .members.map(({ id, bans }) => `${id} ${bans.join()}`)
        .sort(),
      sessions: pool
        .sessions()
        // A session that never had a member is known only to the replica on which it was requested.
        .filter(({ member }) => member !== null)
        .map(({ id, member }) => `${id} ${member}`)
        .sort(),
    }));
  }
}

test('replicas: after any history, all pools are the same', async () => {
  await fc.assert(
    fc.asyncProperty(history, async (steps) => {
      const fleet = openFleet();
      const late = NAMES.map(() => new LateConnection());
      const kits: ReplicaKit[] = [];
      for (const [index, name] of NAMES.entries()) {
        const wrap = (shared: SharedPool) => late[index]?.wrap(shared) ?? shared;
        kits.push(await fleet.open(name, { wrap }));
      }
      const model = new Model(fleet.clock, kits, late);
      for (const each of steps) await model.run(each);
      await model.settle();
      const [first, ...others] = model.states();
      for (const other of others) expect(other).toEqual(first);
    }),
    { numRuns: 300 },
  );
});
