/** Reads the state of a fleet from its store for noria's commands. Does not join the fleet. */
import type { SharedState } from '../schemas.ts';
import { InstanceLog } from './instance-log.ts';
import type { FleetInstance } from './seal.ts';
import { FleetStore, type FleetStoreOptions, listOf } from './store.ts';

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

export async function readInstance(
  store: FleetStore,
  instance: FleetInstance,
  onUnreadable: (where: string, why: string) => void,
): Promise<SharedState> {
  const log = new InstanceLog({ store, replica: '', instance, refuses: () => undefined, onUnreadable });
  await log.load();
  return log.state.read(store.now);
}

const KEYS_PER_SCAN = '1000';

export async function countSessions({ connection, keys }: FleetStore): Promise<number> {
  let count = 0;
  for (let cursor = '0'; ; ) {
    const command = ['SCAN', cursor, 'MATCH', `${keys.prefix}:s:*`, 'COUNT', KEYS_PER_SCAN];
    const [next, found] = listOf(await connection.call(command));
    count += listOf(found).length;
    cursor = String(next);
    if (cursor === '0') return count;
  }
}
