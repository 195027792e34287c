/** Replicas of one pool in one process, on one manual clock and a shared pool in memory. */
import { onTestFinished } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { seededRandom } from '../../src/core/random.ts';
import { MemorySharedPool } from '../../src/fleet/memory-shared-pool.ts';
import { Replica, type ReplicaOptions } from '../../src/fleet/replica.ts';
import type { SourceCommand, SourceReport } from '../../src/fleet/schemas.ts';
import type { SharedPool } from '../../src/fleet/shared-pool.ts';
import { isLease, type Lease, type RoutingOptions } from '../../src/pool/lease.ts';
import type { MemberView } from '../../src/pool/snapshot.ts';
import { openKit, type PoolKit, request } from '../pool/pool-kit.ts';
import { ManualClock } from '../support/manual-clock.ts';

export interface ReplicaKit extends PoolKit {
  readonly replica: Replica;
  readonly commands: SourceCommand[];
  readonly reports: SourceReport[];
}

export interface FleetKit {
  readonly clock: ManualClock;
  readonly memory: MemorySharedPool;
  open: OpenReplica;
}

/** Opens one more replica. */
type OpenReplica = (name: string, changes?: Changes) => Promise<ReplicaKit>;

export type Changes = Partial<Pick<ReplicaOptions, 'sameMachine' | 'servesClients' | 'evictionVotes'>> & {
  readonly pool?: Omit<NonNullable<Parameters<typeof openKit>[0]>, 'clock'>;
  /** The pool that the replica shares. By default it has a pool of its own. */
  readonly kit?: PoolKit;
  /** Wraps the connection to the shared pool. */
  readonly wrap?: (shared: SharedPool) => SharedPool;
};

export const BEAT_MS = 250;

/** The clock of one replica. It has the common time, but counts only its own timers. */
class ReplicaClock extends ManualClock {
  readonly #common: Clock;
  readonly #armed = new Set<object>();

  constructor(common: Clock) {
    super();
    this.#common = common;
  }

  override now(): number {
    return this.#common.now();
  }

  override monotonic(): number {
    return this.#common.monotonic();
  }

  override get armedCount(): number {
    return this.#armed.size;
  }

  override after(ms: number, fn: () => void): Disposable {
    const key = {};
    this.#armed.add(key);
    const timer = this.#common.after(ms, () => {
      this.#armed.delete(key);
      fn();
    });
    return {
      [Symbol.dispose]: () => {
        this.#armed.delete(key);
        timer[Symbol.dispose]();
      },
    };
  }
}

/** The pool of a replica, on the common clock. */
export function openPool(common: Clock, name: string, pool: Changes['pool'] = {}): PoolKit {
  return openKit({ random: seededRandom(name.charCodeAt(0)), ...pool, clock: new ReplicaClock(common) });
}

export function openFleet(): FleetKit {
  const clock = new ManualClock();
  const memory = new MemorySharedPool({ clock });
  return { clock, memory, open: replicasOf(clock, memory) };
}

/** @param clock - the common time of the replicas. */
export function replicasOf(clock: Clock, memory: MemorySharedPool): OpenReplica {
  return async (name, { pool, wrap, kit = openPool(clock, name, pool), ...changes } = {}) => {
    const commands: SourceCommand[] = [];
    const reports: SourceReport[] = [];
    const connection = memory.connect(name, { servesClients: changes.servesClients ?? true });
    const replica = new Replica({
      name,
      clock: kit.clock,
      bus: kit.bus,
      pool: kit.pool,
      shared: wrap?.(connection) ?? connection,
      sameMachine: true,
      servesClients: true,
      evictionVotes: () => 1,
      beatMs: BEAT_MS,
      onCommand: (command) => commands.push(command),
      onReport: (report) => reports.push(report),
      ...changes,
    });
    onTestFinished(() => replica.close());
    await replica.open();
    await settled();
    return { ...kit, replica, commands, reports };
  };
}

/** Resolves when all published facts have been applied. */
export async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

/** Resolves when all published facts and beats have been applied. */
export async function beaten(clock: ManualClock): Promise<void> {
  await settled();
  clock.advance(BEAT_MS);
  await settled();
}

/** Acquires a lease. The replica must grant it. */
export async function acquireAt({ replica }: ReplicaKit, routing: RoutingOptions = {}): Promise<Lease> {
  const answer = await replica.acquire(request(routing));
  if (!isLease(answer)) throw new Error(`refused: ${answer.code}: ${answer.reason}`);
  return answer;
}

export function viewOf({ pool }: PoolKit, member: string): MemberView | undefined {
  return pool.members().find(({ id }) => id === member);
}
