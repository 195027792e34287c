/**
 * What refill needs of the pool: how much will be there, how much is wanted, and where to pour.
 *
 * Synchronous and cheap: a source asks whenever something changed. Moments are monotonic ms.
 */
import type { MemberProtocol } from '../core/protocol.ts';

/** A member as a source brings it: the pool decides whether it is new. */
export interface Offer {
  readonly protocol: MemberProtocol;
  /** IP literal in canonical form. */
  readonly host: string;
  readonly port: number;
  /** Monotonic moment at which its life ends; `undefined`: unknown, it lives `lifetime` of its source, renewed by success. */
  readonly endsAt: number | undefined;
  /** Must pass a probe before a client may have it (free product). */
  readonly unproven: boolean;
  readonly exitIp?: string;
  readonly location?: string;
  /** Further fields of the answer, for display: area, serverId, lastScore, yesterdayScore, level, isNew. */
  readonly facts?: Readonly<Record<string, string | number | boolean>>;
}

export interface Poured {
  readonly joined: number;
  /** Known already: the later end of life was kept. */
  readonly renewed: number;
  /** Would have been expired on arrival, inside the safety margin, or evicted for failures a moment ago. */
  readonly rejected: number;
}

/** How much a source is asked for. */
export interface Demand {
  /** Clients waiting that this source could serve. */
  readonly waiting: number;
  /** Monotonic moment of the last client request that this source could have served; start-up counts. */
  readonly lastWantedAt: number;
  /**
   * Members used up a second by `maxUsesPerMember` or `perHostSpacing`, as seen lately; 0 where neither is set. Members
   * needed beyond `size` are this times the lead.
   */
  readonly usedUpPerSecond: number;
}

export interface Reservoir {
  /** Members of the source that a client could have at that moment if nothing more were drawn; quarantined ones that will be back count. */
  usableAt(source: string, atMs: number): number;
  /** Members of the source that are alive at that moment, those that rest included: what drawing adds to. */
  heldAt(source: string, atMs: number): number;
  /** The next moment after `afterMs` at which a member of the source stops being usable; undefined when none will. */
  nextLossAt(source: string, afterMs: number): number | undefined;
  demand(source: string): Demand;
  /** Takes what a draw brought, in shuffled order; clients that wait are served at once. */
  pour(source: string, offers: readonly Offer[]): Poured;
  /**
   * Lets the source hold only `factor` of the tunnels it holds now, or may hold already: the service says that the instance
   * holds too many connections (12008 of the long-term residential product).
   */
  limitTunnels(source: string, factor: number): void;
  /** Takes that back, after a call has succeeded. */
  unlimitTunnels(source: string): void;
}
