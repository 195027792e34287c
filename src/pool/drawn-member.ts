/**
 * What is poured into the pool and what the pool tells whoever pours: the types between pool and refill.
 */
import type { MemberProtocol } from '../core/protocol.ts';

/** A member as a draw brings it: the pool decides whether it is new. */
export interface DrawnMember {
  readonly protocol: MemberProtocol;
  /** IP literal in canonical form. */
  readonly host: string;
  readonly port: number;
  /** Monotonic moment at which its life ends; `undefined`: unknown, it lives `unknownLifetimeMs` of its source, renewed by success. */
  readonly endsAt: number | undefined;
  /** Must pass a probe before a client may have it. */
  readonly unproven: boolean;
  readonly exitIp?: string;
  /** Free text: province, city, carrier. */
  readonly location?: string;
  /** Further fields of the answer, for display only. */
  readonly facts?: Facts;
}

/** What else a draw said of a member. */
export type Facts = Readonly<Record<string, string | number | boolean>>;

/** What became of the offers of one draw; the three add up to their number. */
export interface AddedMembers {
  readonly joined: number;
  /** Known already: the later end of life was kept. */
  readonly renewed: number;
  /** Inside the safety margin on arrival, or removed for a reason that still holds (failed, used up, evicted). */
  readonly rejected: number;
}

/** How much a source is asked for. */
export interface Demand {
  /** Clients waiting that this source could serve. */
  readonly waiting: number;
  /** Monotonic moment of the last client request that this source could have served; start-up counts for sources of the first priority. */
  readonly lastWantedAt: number;
  /** Members used up a second by `maxUsesPerMember` or `perHostSpacing`, as seen lately; 0 where neither is set. */
  readonly usedUpPerSecond: number;
}
