/**
 * Random histories on three replicas, and on a fleet of two machines with two workers each. Facts reach each process late and at
 * different times; when all have arrived, the pools are the same.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { LoggedFact } from '../../src/fleet/schemas.ts';
import type { FleetActivity, SharedPool } from '../../src/fleet/shared-pool.ts';
import { isLease, type Lease } from '../../src/pool/lease.ts';
import { accept, close, drawn, fail, type PoolKit, request } from '../pool/pool-kit.ts';
import type { ManualClock } from '../support/manual-clock.ts';
import { runsOf } from '../support/properties.ts';
import { openMachine } from './machine-kit.ts';
import { BEAT_MS, openFleet, type ReplicaKit, settled } from './replica-kit.ts';

/** A process of the model. */
interface Process {
  readonly kit: PoolKit;
  readonly late: LateConnection;
  /** Absent if the process serves no clients. */
  readonly replica?: ReplicaKit['replica'];
  /** Whether the process draws. */
  readonly draws: boolean;
}

/** A connection that withholds what its follower receives until `release`. */
class LateConnection {
  readonly #held: (() => void)[] = [];

  wrap(shared: SharedPool): SharedPool {
    return {
      ...shared,
      follow: (follower) =>
        shared.follow({
          receiveState: (state) => follower.receiveState(state),
          receiveFacts: (facts: readonly LoggedFact[]) => this.#held.push(() => follower.receiveFacts(facts)),
          receiveActivity: (view: FleetActivity) => this.#held.push(() => follower.receiveActivity(view)),
          heldSessions: () => follower.heldSessions(),
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
const MOST_PROCESSES = 6;
/** The most steps that a beat takes: from a worker to the workers of another machine. */
const HOPS = 3;
const history = fc.array(fc.tuple(fc.nat({ max: MOST_PROCESSES - 1 }), step), { maxLength: 40 });

class Model {
  readonly #clock: ManualClock;
  readonly #processes: readonly Process[];
  readonly #waiting: Promise<void>[] = [];

  constructor(clock: ManualClock, processes: readonly Process[]) {
    this.#clock = clock;
    this.#processes = processes;
  }

  async run([index, step]: readonly [number, Step]): Promise<void> {
    const process = this.#processes[index % this.#processes.length];
    if (process !== undefined) this.#do(process, step);
    await settled();
  }

  #do({ kit, late, replica, draws }: Process, step: Step): void {
    const { pool } = kit;
    const member = (which: number) =>
      pool.members()[which % Math.max(1, pool.members().length)]?.id ?? 'none';
    switch (step.do) {
      case 'draw': // the pace lets a replica draw only if it has received everything
        if (!draws) break;
        late.release();
        pool.addMembers(
          'city',
          step.numbers.map((number) => drawn(kit, number, 120_000)),
        );
        break;
      case 'use':
        if (replica !== undefined) this.#use({ ...kit, replica }, step.session, step.outcome);
        break;
      case 'evict':
        pool.evict(member(step.which));
        break;
      case 'rotate':
        pool.rotateSession(`s${step.which % 3}`);
        break;
      case 'forget':
        pool.parts.sessions.forget(`s${step.which % 3}`);
        break;
      case 'ban':
        pool.ban({
          holder: { member: member(step.which) },
          host: 'one.example',
          verdict: step.lifted ? 'ok' : 'banned',
        });
        break;
      case 'receive':
        late.release(step.count);
        break;
      case 'pass':
        this.#clock.advance(step.ms);
        break;
    }
  }

  #use(
    kit: PoolKit & Pick<ReplicaKit, 'replica'>,
    session: number | undefined,
    outcome: 'ok' | 'failed',
  ): void {
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
    await this.#deliverAll();
    await Promise.all(this.#waiting);
    for (let hop = 0; hop < HOPS; hop += 1) {
      this.#clock.advance(BEAT_MS);
      await this.#deliverAll();
    }
  }

  async #deliverAll(): Promise<void> {
    do {
      for (const { late } of this.#processes) late.release();
      await settled();
    } while (this.#processes.some(({ late }) => late.heldCount > 0));
  }

  states(): object[] {
    return this.#processes.map(({ kit: { pool } }) => ({
      members: pool
        .members()
        .filter(({ state }) => state !== 'draining')
        .map(({ id, host, state, remainingSeconds, uses }) => ({ id, host, state, remainingSeconds, uses }))
        .sort((one, other) => (one.id < other.id ? -1 : 1)),
      bans: pool
        .snapshot()
        .bans.map(({ site, exit }) => `${site} ${exit}`)
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

async function expectSame(history: readonly (readonly [number, Step])[], model: Model): Promise<void> {
  for (const each of history) await model.run(each);
  await model.settle();
  const [first, ...others] = model.states();
  for (const other of others) expect(other).toEqual(first);
}

test('replicas: after any history, all pools are the same', async () => {
  await fc.assert(
    fc.asyncProperty(history, async (steps) => {
      const fleet = openFleet();
      const processes: Process[] = [];
      for (const name of ['a', 'b', 'c']) {
        const late = new LateConnection();
        const kit = await fleet.open(name, { wrap: (shared) => late.wrap(shared) });
        processes.push({ kit, late, replica: kit.replica, draws: true });
      }
      await expectSame(steps, new Model(fleet.clock, processes));
    }),
    { numRuns: runsOf(300) },
  );
});

test('machines: after any history, the pools of all processes are the same', async () => {
  await fc.assert(
    fc.asyncProperty(history, async (steps) => {
      const { clock, memory } = openFleet();
      const processes: Process[] = [];
      for (const name of ['a', 'b']) {
        const links = new Map<string, LateConnection>();
        const wrap = (process: string, shared: SharedPool) => {
          const late = new LateConnection();
          links.set(process, late);
          return late.wrap(shared);
        };
        const shared = wrap(name, memory.connect(name));
        // Pools of different machines may differ where one trusts its own evidence more. Here they trust each other.
        const trust = { sameMachine: true, evictionVotes: () => 1 };
        const { primary, workers } = await openMachine({ name, clock, shared, wrap, ...trust });
        const late = (process: string) => links.get(process) ?? new LateConnection();
        processes.push({ kit: primary, late: late(name), draws: true });
        for (const [index, kit] of workers.entries()) {
          processes.push({ kit, late: late(`${name}${index + 1}`), replica: kit.replica, draws: false });
        }
      }
      await expectSame(steps, new Model(clock, processes));
    }),
    { numRuns: runsOf(300) },
  );
});
