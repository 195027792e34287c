/** Compares the configuration of this replica with those of the others, and warns about what they should have alike. */
import type { InstanceSettings, ReplicaRecord } from '../schemas.ts';
import type { FleetInstance } from './seal.ts';

export class Peers {
  readonly #own: string;
  readonly #instances: () => readonly FleetInstance[];
  readonly #warn: (message: string) => void;

  constructor(own: string, instances: () => readonly FleetInstance[], warn: (message: string) => void) {
    this.#own = own;
    this.#instances = instances;
    this.#warn = warn;
  }

  compare(records: ReadonlyMap<string, ReplicaRecord>): void {
    const others = [...records].filter(([name]) => name !== this.#own);
    const own = this.#instances().map(({ key, settings }) => ({ source: key, ...settings }));
    for (const [name, { instances = [] }] of others) {
      for (const difference of differencesOf(own, instances)) {
        this.#warn(`noria ${name} has ${difference}; give all norias of the fleet the same configuration`);
      }
    }
    const shares = ({ instances = [] }: ReplicaRecord) =>
      instances.length === 0 || instances.some(({ source }) => own.some((each) => each.source === source));
    if (own.length === 0 || others.length === 0 || others.some(([, record]) => shares(record))) return;
    const names = others.slice(0, 3).map(([name]) => name);
    this.#warn(
      `this noria shares no instance with another noria of the fleet (${names.join(', ')}), so they share no members and no sessions; set another fleet.name`,
    );
  }
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
