/** Machines with a primary and workers, as replicas of one fleet, all in one process. */
import { onTestFinished } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { MemorySharedPool } from '../../src/fleet/memory-shared-pool.ts';
import { Replica } from '../../src/fleet/replica.ts';
import type { SharedPool } from '../../src/fleet/shared-pool.ts';
import type { PoolKit } from '../pool/pool-kit.ts';
import { BEAT_MS, type Changes, openPool, type ReplicaKit, replicasOf, settled } from './replica-kit.ts';

export interface Machine {
  readonly primary: PoolKit;
  /** The machine as a replica of the fleet. */
  readonly replica: Replica;
  readonly workers: readonly ReplicaKit[];
  /** Starts one more worker. */
  openWorker(name: string): Promise<ReplicaKit>;
}

export interface MachineOptions {
  readonly name: string;
  /** The common time of all its processes. */
  readonly clock: Clock;
  /** The machine's connection to the fleet. */
  readonly shared: SharedPool;
  readonly workers?: number;
  readonly pool?: Changes['pool'];
  /** Changes the connection of a worker. */
  readonly wrap?: (worker: string, shared: SharedPool) => SharedPool;
  readonly sameMachine?: boolean;
  readonly evictionVotes?: (replicas: number) => number;
}

/** Opens the parts in the order of the daemon. */
export async function openMachine(options: MachineOptions): Promise<Machine> {
  const { name, clock, shared, workers = 2, pool, wrap = (_, connection) => connection } = options;
  const primary = openPool(clock, name, pool);
  const replica = new Replica({
    name,
    clock: primary.clock,
    bus: primary.bus,
    pool: primary.pool,
    shared,
    sameMachine: options.sameMachine ?? false,
    servesClients: true,
    evictionVotes: options.evictionVotes ?? ((replicas) => Math.min(2, replicas)),
    beatMs: BEAT_MS,
  });
  onTestFinished(() => replica.close());
  const openReplica = replicasOf(clock, new MemorySharedPool({ clock, machine: replica }));
  await openReplica('primary', { kit: primary, servesClients: false });
  const openWorker = (worker: string) =>
    openReplica(worker, {
      ...(pool !== undefined && { pool }),
      wrap: (connection) => wrap(worker, connection),
    });
  const open: ReplicaKit[] = [];
  for (let n = 1; n <= workers; n += 1) open.push(await openWorker(`${name}${n}`));
  await replica.open();
  await settled();
  return { primary, replica, workers: open, openWorker };
}
