/** Reads the state of a fleet from its store for noria's commands, without joining the fleet. */
import type { Clock } from '../../core/clock.ts';
import { SECOND_MS } from '../../core/duration.ts';
import type { Random } from '../../core/random.ts';
import type { Timekeeper } from '../../state/moment.ts';
import type { SharedState } from '../shared-pool.ts';
import { REPLICA_SILENT_MS } from './fleet-log.ts';
import { FleetScript, FleetStore } from './fleet-store.ts';
import { fieldsOf, loadState } from './log-reader.ts';
import { decodeReplica } from './schemas.ts';
import type { StoreAddress } from './store-address.ts';

interface StoreAccess {
  readonly address: StoreAddress;
  readonly name: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly timekeeper: Timekeeper;
}

export interface FoundReplica {
  readonly name: string;
  readonly version: string;
  readonly clients: number;
  readonly lastSeenSeconds: number;
}

/** Connects without following the log. @throws NoriaError fleet-store-lost, fleet-store-unusable */
export async function openFleetStore(access: StoreAccess): Promise<FleetStore> {
  const store = new FleetStore(access);
  store.connection.start();
  await store.connection.tried;
  const { fault } = store.connection;
  if (fault === undefined) return store;
  await store.close();
  throw fault;
}

const REPLICAS = new FleetScript('replicas', `return answer(redis.call('HGETALL', KEYS[4]))`);

/** The replicas, sorted by name. A killed replica stays in the list for a few seconds. */
export async function readReplicas(store: FleetStore): Promise<FoundReplica[]> {
  const { epoch, values } = await store.run(REPLICAS);
  const found = Object.entries(fieldsOf(values[0])).flatMap(([name, text]): FoundReplica[] => {
    const [, at = '', record = ''] = /^(\d+) (.*)$/.exec(text) ?? [];
    const silentMs = epoch.now - Number(at);
    const { version, clients } = decodeReplica(record) ?? {};
    if (version === undefined || clients === undefined || silentMs > REPLICA_SILENT_MS) return [];
    return [{ name, version, clients, lastSeenSeconds: Math.round(silentMs / SECOND_MS) }];
  });
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** The members and sessions that have not ended. Moments are by the store's clock. */
export async function readSharedState(store: FleetStore): Promise<SharedState> {
  const { state } = await loadState(store);
  return state.read(store.clock.atMost() ?? 0);
}
