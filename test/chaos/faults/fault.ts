/** What a fault is, and what it may touch. */
import type { Random } from '../../../src/core/random.ts';
import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { Subject } from '../subject.ts';

export interface FaultStage {
  readonly sandbox: Sandbox;
  /** The norias of this run: one, or the replicas of a fleet. */
  readonly subjects: readonly Subject[];
  readonly random: Random;
  /** Writes the configuration of every subject anew, with these changes. Without any: as at the start. */
  configure(changes: ConfigChanges): void;
}

/** Text that replaces parts of the configuration. */
export interface ConfigChanges {
  readonly serviceUrl?: string;
  /** Further lines under `listeners`. */
  readonly moreListeners?: string;
  /** Added at the end of the file. */
  readonly appended?: string;
}

/** Ends the fault. */
export type EndFault = () => void | Promise<void>;

export interface Fault {
  readonly name: string;
  /**
   * What clients may expect while it lasts. `served`: well-behaved clients succeed. `broken`: clients may fail, because their
   * noria, the service or their connections are gone, and are served again soon after its end.
   */
  readonly promise: 'served' | 'broken';
  begin(stage: FaultStage): Promise<EndFault>;
}

export function oneOf<T>(random: Random, items: readonly T[]): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new TypeError('there is nothing to choose from');
  return item;
}
