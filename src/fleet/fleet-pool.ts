/** The shared pool of a fleet, and the facts about the fleet that a noria shows to its operator. */
import type { NoriaError } from '../core/faults.ts';
import type { PacedSharedPool } from './shared-pool.ts';

/** A noria of the fleet, as the other norias see it. */
export interface ReplicaStatus {
  readonly name: string;
  readonly version: string;
  readonly clients: number;
  readonly lastSeenSeconds: number;
}

export interface FleetPool extends PacedSharedPool {
  /** Why the store is unavailable; undefined while connected. */
  readonly fault: NoriaError | undefined;
  /** How long the store has been unavailable, in ms; 0 while connected. */
  readonly lostMs: number;
  /** The replicas of the fleet, by name. */
  readonly replicas: readonly ReplicaStatus[];
  /**
   * The id of the store's epoch, which changes if the store may have lost data. Empty before the first contact, and without a
   * store.
   */
  readonly epochId: string;
  /**
   * Counts the distinct IPs that the fleet drew today, separately for each instance of the service. `key` is the key of an
   * instance.
   */
  readonly dayCounts: {
    add(key: string, ips: readonly string[]): void;
    /** The last known number of distinct IPs that the fleet drew from the instance today. */
    used(key: string): number;
  };
  /** The replica that drew the member; undefined if the shared pool does not have the member. */
  drawnBy(member: string): string | undefined;
  /** Passes the whole state to the follower again. */
  reload(): void;
}
