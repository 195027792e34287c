/**
 * What refill needs of the pool: how much will be there, how much is wanted, and where to pour.
 *
 * Synchronous and cheap: a source asks whenever something changed. Moments are monotonic ms.
 */
import type { AddedMembers, Demand, DrawnMember } from '../pool/drawn-member.ts';

export interface RefillPool {
  /** Members of the source that a client could have at that moment if nothing more were drawn; quarantined ones that will be back count. */
  usableAt(source: string, atMs: number): number;
  /** Members of the source that are alive at that moment, those that rest included: what drawing adds to. */
  heldAt(source: string, atMs: number): number;
  /** The next moment after `afterMs` at which a member of the source stops being usable; undefined when none will. */
  nextLossAt(source: string, afterMs: number): number | undefined;
  demand(source: string): Demand;
  /** Takes what a draw brought, in shuffled order; clients that wait are served at once. */
  addMembers(source: string, offers: readonly DrawnMember[]): AddedMembers;
  /**
   * Lets the source hold only `factor` of the tunnels it holds now, or may hold already: the service says that the instance
   * holds too many connections (12008 of the long-term residential product).
   */
  limitTunnels(source: string, factor: number): void;
  /** Takes that back, after a call has succeeded. */
  unlimitTunnels(source: string): void;
}
