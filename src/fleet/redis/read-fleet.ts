/** Reads the state of a fleet from its store without joining it, and compares the configurations of its replicas. */
import type { InstanceSettings, ReplicaRecord, SharedState } from '../schemas.ts';
import { InstanceLog } from './instance-log.ts';
import type { FleetInstance } from './seal.ts';
import { FleetStore, type FleetStoreOptions, listOf } from './store.ts';

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
  refuses: (host: string, port: number) => string | undefined = () => undefined,
): Promise<SharedState> {
  const log = new InstanceLog({ store, replica: '', instance, refuses, onUnreadable });
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

export function peerWarnings(
  instances: readonly FleetInstance[],
  others: readonly (Pick<ReplicaRecord, 'instances'> & { readonly name: string })[],
): string[] {
  const own = instances.map(({ key, settings }) => ({ source: key, ...settings }));
  const warnings = others.flatMap(({ name, instances: theirs = [] }) =>
    differencesOf(own, theirs).map(
      (difference) => `noria ${name} has ${difference}; give all norias of the fleet the same configuration`,
    ),
  );
  const shares = ({ instances: theirs = [] }: Pick<ReplicaRecord, 'instances'>) =>
    theirs.length === 0 || theirs.some(({ source }) => own.some((each) => each.source === source));
  if (own.length === 0 || others.length === 0 || others.some(shares)) return warnings;
  const names = others.slice(0, 3).map(({ name }) => name);
  return [
    ...warnings,
    `this noria shares no instance with another noria of the fleet (${names.join(', ')}), so they share no members and no sessions; set another fleet.name`,
  ];
}

export function differencesOf(
  own: readonly InstanceSettings[],
  other: readonly InstanceSettings[],
): string[] {
  return own.flatMap((mine) => {
    const theirs = other.find(({ source }) => source === mine.source);
    if (theirs === undefined) return [];
    const differences = [
      ...(theirs.intervalMs === mine.intervalMs
        ? []
        : [`interval ${theirs.intervalMs} ms instead of ${mine.intervalMs} ms`]),
      ...(theirs.size === mine.size ? [] : [`size ${theirs.size} instead of ${mine.size}`]),
      ...(theirs.params === mine.params ? [] : ['other params']),
    ];
    return differences.length === 0 ? [] : [`${differences.join(' and ')} for the instance ${mine.source}`];
  });
}
