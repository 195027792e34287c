/** The types that refill and the pool share: what a draw adds, and how much the pool needs. */
import type { Login } from '../core/login.ts';
import type { MemberProtocol } from '../core/protocol.ts';

/** A proxy from a draw, before the pool decides whether it becomes a member. */
export interface DrawnMember {
  readonly protocol: MemberProtocol;
  /** IP literal in canonical form. */
  readonly host: string;
  readonly port: number;
  /**
   * Monotonic moment. Undefined: unknown. The member then lives for its source's `unknownLifetimeMs`, which each success renews.
   */
  readonly endsAt: number | undefined;
  /** Whether clients may use it only after a successful probe. */
  readonly unproven: boolean;
  readonly exitIp?: string | undefined;
  /** The member's own user name and password. Snapshots omit such members, because a snapshot contains no secrets. */
  readonly login?: Login | undefined;
  /** Text of the service: province, city, carrier. */
  readonly location?: string | undefined;
  readonly facts?: Facts | undefined;
}

/** Further fields of the service's answer, only for display. */
export type Facts = Readonly<Record<string, string | number | boolean>>;

/** How many members of a draw had each result. */
export interface AddedMembers {
  readonly joined: number;
  /** Already in the pool. The later of both ends of life applies. */
  readonly renewed: number;
  /** Not added: its remaining life is too short, or the same address failed, was used up or was evicted before. */
  readonly rejected: number;
}

/** How much clients want members of a source. */
export interface Demand {
  /** Waiting clients that a new member of this source could serve. */
  readonly waiting: number;
  /** Monotonic moment of the last client request for this source; -Infinity before the first. */
  readonly lastWantedAt: number;
  /** Rate at which `maxUsesPerMember` or `perHostSpacing` uses members up; 0 when neither is set. */
  readonly usedUpPerSecond: number;
}
