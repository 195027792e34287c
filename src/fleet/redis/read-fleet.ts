/** Reads the state of a fleet from its store for noria's commands. Does not join the fleet. */
import { SECOND_MS } from '../../core/duration.ts';
import type { ReplicaStatus, SourceRefusal } from '../fleet-pool.ts';
import type { SharedState } from '../shared-pool.ts';
import { REPLICA_SILENT_MS } from './fleet-log.ts';
import { FleetScript, FleetStore, type FleetStoreOptions } from './fleet-store.ts';
import { fieldsOf, loadState } from './log-reader.ts';
import { decodeReplica } from './schemas.ts';

/**
 * Connects to the store and does not follow the log.
 * @throws NoriaError fleet-store-lost, fleet-store-unusable
 */
export async function openFleetStore(
  access: Pick<FleetStoreOptions, 'address' | 'name' | 'clock' | 'random' | 'timekeeper'>,
): Promise<FleetStore> {
  const store = new FleetStore(access);
  store.connection.start();
  await store.connection.tried;
  const { fault } = store.connection;
  if (fault === undefined) return store;
  await store.close();
  throw fault;
}

export interface StoredReplica extends ReplicaStatus {
  readonly refusals: readonly SourceRefusal[];
}

const REPLICAS = new FleetScript('replicas', `return answer(redis.call('HGETALL', KEYS[4]))`);

/** Returns the replicas, sorted by name. A killed replica stays in the list for a few seconds. */
export async function readReplicas(store: FleetStore): Promise<StoredReplica[]> {
  const { epoch, values } = await store.run(REPLICAS);
  const found = Object.entries(fieldsOf(values[0])).flatMap(([name, text]): StoredReplica[] => {
    const [, at = '', record = ''] = /^(\d+) (.*)$/.exec(text) ?? [];
    const silentMs = epoch.now - Number(at);
    const { version, clients, refusals = [] } = decodeReplica(record) ?? {};
    if (version === undefined || clients === undefined || silentMs > REPLICA_SILENT_MS) return [];
    return [{ name, version, clients, lastSeenSeconds: Math.round(silentMs / SECOND_MS), refusals }];
  });
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Returns the members and sessions that have not ended. Moments are by the store's clock. */
export async function readSharedState(store: FleetStore): Promise<SharedState> {
  const { state } = await loadState(store);
  return state.read(store.clock.atMost() ?? 0);
}
