/** What a fault is, and what it may touch. */
import type { Random } from '../../../src/core/random.ts';
import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { Subject } from '../subject.ts';

export interface FaultStage {
  readonly sandbox: Sandbox;
  /** The norias of this run: one, or the replicas of a fleet. */
  readonly subjects: readonly Subject[];
  readonly random: Random;
  /**
   * Writes the configuration of every subject with these changes, and makes it read that. With an empty object, it restores the
   * original configuration.
   */
  configure(changes: ConfigChanges): Promise<void>;
}

/** Changes of the configuration. Each text replaces a part of it. */
export interface ConfigChanges {
  readonly serviceUrl?: string;
  /** Further lines under `listeners`. */
  readonly moreListeners?: string;
  /** Text to append to the file. */
  readonly appended?: string;
}

export type EndFault = () => void | Promise<void>;

export interface Fault {
  readonly name: string;
  /**
   * What clients may expect during the fault. `served`: well-behaved clients succeed. `broken`: clients may fail,
   * because their noria, the service or their connections do not work; they succeed again soon after the end of the
   * fault.
   */
  readonly promise: 'served' | 'broken';
  /** Each noria learns anew which members misbehave: the three attempts of a request before that may find only those. */
  readonly isLearnt?: boolean;
  begin(stage: FaultStage): Promise<EndFault>;
}

export function oneOf<T>(random: Random, items: readonly T[]): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new TypeError('there is nothing to choose from');
  return item;
}
