/** What refill and the pool exchange: the members that a draw adds, and the demand of the clients. */
import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';

export interface DrawnMember {
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  /** Monotonic; undefined: the member lives for the source's `unknownLifetimeMs` after it joined or last had a success. */
  readonly endsAt: number | undefined;
  readonly unproven: boolean;
  readonly exitIp?: string | undefined;
  /** The made name of a gateway's exit; see `Member.exit`. */
  readonly exitName?: string | undefined;
  /** Replaces that of the source. A snapshot contains no secrets, so it omits members with a login. */
  readonly login?: Login | undefined;
  readonly location?: string | undefined;
  readonly facts?: Facts | undefined;
  readonly drawnBy?: string | undefined;
}

export type Facts = Readonly<Record<string, string | number | boolean>>;

export interface AddedMembers {
  readonly joined: number;
  /** They were in the pool already, and keep the later end of life. */
  readonly renewed: number;
  /** Too little life left, or the address is barred (see `Members.departed`). */
  readonly rejected: number;
}

export interface Demand {
  readonly waiting: number;
  /** How many of these clients no held member can ever serve, at most `size`; they need members above `size`. */
  readonly stranded: number;
  /** Monotonic moment of the last client request for this source; -Infinity before the first. */
  readonly lastWantedAt: number;
  /** Members that become unusable because they reach `maxUsesPerMember`. */
  readonly usedUpPerSecond: number;
  readonly perSecond: number;
  /** Number of members that the sessions in use and the open tunnels need. */
  readonly held: number;
}

export const NO_DEMAND: Demand = {
  waiting: 0,
  stranded: 0,
  lastWantedAt: Number.NEGATIVE_INFINITY,
  usedUpPerSecond: 0,
  perSecond: 0,
  held: 0,
};
