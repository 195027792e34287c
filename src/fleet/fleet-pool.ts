/** The shared pool of a fleet, with what a noria reports about the fleet. */
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
  /** The id of the store's epoch; empty before the first contact, and without a store. */
  readonly epochId: string;
  /** The distinct IPs drawn today, by key of the instance. */
  readonly dayCounts: {
    add(key: string, ips: readonly string[]): void;
    /** The last known number of distinct IPs that the fleet drew today from the instance. */
    used(key: string): number;
  };
  /** The replica that drew the member, if the shared pool has the member. */
  drawnBy(member: string): string | undefined;
  /** Gives the follower the whole state again. */
  reload(): void;
}
