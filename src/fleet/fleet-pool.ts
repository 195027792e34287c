/** The shared pool of a fleet, and what a noria shows its operator about the fleet. */
import type { NoriaError } from '../core/faults.ts';
import type { PacedSharedPool } from './shared-pool.ts';

/** The status of one noria of the fleet. All norias of the fleet can see it. */
export interface ReplicaStatus {
  readonly name: string;
  readonly version: string;
  readonly clients: number;
  readonly lastSeenSeconds: number;
}

/** The service has refused a call of one noria, so this noria does not draw from the source. */
export interface SourceRefusal {
  /** The key of the instance. */
  readonly source: string;
  readonly reason: string;
  readonly advice: string;
}

export interface FleetPool extends PacedSharedPool {
  /** Why the store is unavailable; undefined while connected. */
  readonly fault: NoriaError | undefined;
  /** How long the store has been unavailable, in ms; 0 while connected. */
  readonly lostMs: number;
  readonly replicas: readonly ReplicaStatus[];
  /**
   * The id of the store's epoch. The store gets another epoch when it may have lost data. Empty before the first answer
   * of the store, and in a fleet without a store.
   */
  readonly epochId: string;
  /**
   * Counts the distinct IPs that the fleet drew today from each instance of the service. `key` is the key of the
   * instance.
   */
  readonly dayCounts: {
    add(key: string, ips: readonly string[]): void;
    /** The last known number of distinct IPs that the fleet drew from the instance today. */
    used(key: string): number;
  };
  /** Returns the name of the replica that drew the member; undefined if the shared pool does not have the member. */
  drawnBy(member: string): string | undefined;
  /** Loads the whole shared state again and passes it to this noria's replica. */
  reload(): void;
}
