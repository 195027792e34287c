/** The types between refill and the pool: what a draw adds, and what the pool needs. */
import type { Login } from '../core/login.ts';
import type { MemberProtocol } from '../core/protocol.ts';

/** A proxy from a draw, before the pool decides whether it becomes a member. */
export interface DrawnMember {
  readonly protocol: MemberProtocol;
  /** IP literal in canonical form. */
  readonly host: string;
  readonly port: number;
  /** Monotonic end of life. When `undefined` (unknown), the member lives for its source's `unknownLifetimeMs`, renewed by each success. */
  readonly endsAt: number | undefined;
  /** Whether clients may use it only after a successful probe. */
  readonly unproven: boolean;
  readonly exitIp?: string | undefined;
  /** Its own user name and password. A snapshot leaves such members out, because it contains no secrets. */
  readonly login?: Login | undefined;
  /** Free text: province, city, carrier. */
  readonly location?: string | undefined;
  readonly facts?: Facts | undefined;
}

/** Further fields of the service's answer, for display only. */
export type Facts = Readonly<Record<string, string | number | boolean>>;

/** How many drawn members had each result. */
export interface AddedMembers {
  readonly joined: number;
  /** Already in the pool; the later end of life applies. */
  readonly renewed: number;
  /** Too short a life left, or the same address failed, was used up or was evicted before. */
  readonly rejected: number;
}

/** How much clients want members of a source. */
export interface Demand {
  /** Waiting clients that a new member of this source could serve. */
  readonly waiting: number;
  /** Monotonic moment of the last client request for this source; -Infinity before the first. */
  readonly lastWantedAt: number;
  /** Recent rate at which `maxUsesPerMember` or `perHostSpacing` uses members up; 0 when neither is set. */
  readonly usedUpPerSecond: number;
}
