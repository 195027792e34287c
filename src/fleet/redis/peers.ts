/** Compares the configuration of a replica with those of the others, and warns about what they should have alike. */
import type { InstanceSettings, ReplicaRecord } from '../schemas.ts';
import type { FleetInstance } from './seal.ts';

/** @param others - the names of the other replicas, and the instances that they have. */
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

/** Returns how the other configuration differs, for each instance that both have. */
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
