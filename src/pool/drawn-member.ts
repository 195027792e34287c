/** The types that refill and the pool share: the members that a draw adds, and the demand of the clients. */

import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';

export interface DrawnMember {
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  /**
   * Monotonic moment at which the life of the member ends. If undefined, the end is unknown: the member lives for the source's
   * `unknownLifetimeMs` after it joined or last had a success.
   */
  readonly endsAt: number | undefined;
  readonly unproven: boolean;
  readonly exitIp?: string | undefined;
  /** The made name of a gateway's exit; see `exitOf`. */
  readonly exitName?: string | undefined;
  /**
   * The member's own user name and password, which replace those of its source. A snapshot contains no secrets, so it
   * omits members with a login.
   */
  readonly login?: Login | undefined;
  readonly location?: string | undefined;
  readonly facts?: Facts | undefined;
  readonly drawnBy?: string | undefined;
}

export type Facts = Readonly<Record<string, string | number | boolean>>;

export interface AddedMembers {
  readonly joined: number;
  /** The number of proxies that were already in the pool. For each, the pool keeps the later of the old and the new end of life. */
  readonly renewed: number;
  /**
   * The number of proxies that the pool refused. Their remaining life was too short, or a member with the same address
   * failed, was used up or was evicted before.
   */
  readonly rejected: number;
}

export interface Demand {
  /** Number of waiting clients that a new member of this source could serve. */
  readonly waiting: number;
  /**
   * How many of these clients no held member can ever serve, at most `size`; for example, each member is banned for their
   * host. Absent if none. They need members above `size`.
   */
  readonly stranded?: number;
  /** Monotonic moment of the last client request for this source; -Infinity before the first. */
  readonly lastWantedAt: number;
  /**
   * Number of members per second that become unusable because they reach `maxUsesPerMember` or must wait for
   * `perHostSpacing`.
   */
  readonly usedUpPerSecond: number;
  /** Client requests per second that members of the source have accepted lately; absent: none. */
  readonly perSecond?: number | undefined;
  /** Number of members that the sessions in use and the open tunnels need; absent: none. */
  readonly held?: number | undefined;
}
