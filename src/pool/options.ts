/** The options of a pool. Durations are in ms. */
import { DAY_MS, MINUTE_MS } from '../core/duration.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { LocationParams } from './locations.ts';

export const STRATEGIES = [
  'round-robin',
  'random',
  'shuffle',
  'least-connections',
  'longest-lived',
  'fastest',
] as const;

export type Strategy = (typeof STRATEGIES)[number];

export interface PoolSourceOptions {
  readonly name: string;
  /** 1 is the highest. A source serves clients only if none of a higher priority can. */
  readonly priority: number;
  readonly size: number;
  readonly unknownLifetimeMs: number;
  readonly protocol?: MemberProtocol | undefined;
  readonly maxLifetimeMs?: number | undefined;
  readonly locationParams?: LocationParams;
  /** The source reports locations in several languages: the next one may be in Latin letters. */
  readonly mixedLocations?: boolean;
}

export interface SiteRule {
  /** The patterns of the site's hosts; the first one names the site. */
  readonly match: readonly string[];
  /** Least time in ms between two uses of an exit at the site. `auto`: learnt from bans. */
  readonly spacing: number | 'auto';
  /** Maximum number of tunnels through one exit to the site at once. 0: no limit. */
  readonly tunnelsPerMember: number;
  readonly rate: number | 'off';
  readonly ban: {
    readonly forMs: number;
    readonly maxMs: number;
    readonly onStatus: 'auto' | 'off' | readonly number[];
  };
  /** How many IPs an hour the bans of the site may cause noria to draw, per source. */
  readonly drawsForBans: number;
  readonly source?: string | undefined;
}

export const DEFAULT_SITE_RULE: SiteRule = {
  match: [],
  spacing: 'auto',
  tunnelsPerMember: 0,
  rate: 'off',
  ban: { forMs: 10 * MINUTE_MS, maxMs: DAY_MS, onStatus: 'auto' },
  drawsForBans: 60,
};

/** One of `count` about equal parts of a limit; `index` is from 0. */
export interface LimitPart {
  readonly count: number;
  readonly index: number;
}

/** This process's share of the limits that all `count` processes with one pool keep together. */
export interface ProcessPart extends LimitPart {
  /** In a fleet: this machine's part of the limits. The processes of the machine divide this part. */
  readonly machine?: LimitPart | undefined;
  /** Whether all these processes have the same monotonic time. If not, limits on uses may be slightly exceeded. */
  readonly sharesClock: boolean;
  readonly changedAt: number;
}

export interface PoolSettings {
  readonly sources: readonly PoolSourceOptions[];
  readonly rotation: {
    readonly strategy: Strategy;
    readonly maxTunnelsPerMember: number;
    readonly maxUsesPerMember: number;
    /** Minimum time between two uses of an exit at one site, unless its rule sets another. Does not apply to sessions. 0: no spacing. */
    readonly perHostSpacingMs: number;
    readonly sessionTtlMs: number;
    readonly maxSessionTtlMs: number;
    readonly maxSessionsPerClient: number;
  };
  readonly targets?: readonly SiteRule[];
  /** The pool treats a member as expired this long before the member's real end of life. */
  readonly safetyMarginMs: number;
  /** The pool picks a member with less remaining life than this only if no other member fits. */
  readonly minRemainingMs: number;
  readonly health: {
    /** Number of consecutive faults after which a member is evicted; at least 1. */
    readonly maxFailures: number;
    /** Of the first quarantine; each consecutive one is twice as long, up to the member's remaining life. */
    readonly quarantineMs: number;
  };
}

/** At least 1, so that every process can serve clients. */
export function partOf(limit: number, { count, index }: LimitPart): number {
  return Math.max(1, Math.floor(limit / count) + (index < limit % count ? 1 : 0));
}

export function partOfProcess(limit: number, part: ProcessPart): number {
  return partOf(part.machine === undefined ? limit : partOf(limit, part.machine), part);
}
