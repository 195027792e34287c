/** The interfaces and the settings of refill. Durations are in ms, moments are monotonic ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import type { DrawnMember } from '../pool/drawn-member.ts';
import type { Pool } from '../pool/pool.ts';
import type { SourceCounts } from '../pool/snapshot.ts';
import type { SupplyConnection, UrlConnection } from '../service/client.ts';
import type { CountlessCall } from '../service/request.ts';
import type { Pace } from './pace.ts';
import type { InstanceReport } from './reaction.ts';
import type { SharedCount } from './source-statistics.ts';

export interface SourceContext {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pool: RefillPool;
  readonly paceOf: (key: string) => Pace;
  readonly extractor: Extractor;
  readonly settings: () => Omit<RefillSettings, 'sources'>;
  readonly isPreferredServing: (options: DrawSourceOptions) => boolean;
  readonly sharedCount?: ((source: string) => SharedCount) | undefined;
  readonly onReport?: ((source: string, report: InstanceReport) => void) | undefined;
  /** What the operator can do while members refuse the credentials of a source. */
  readonly adviceOnBlock?: ((source: string) => string | undefined) | undefined;
  /** Without it, no source has a `whitelist` or `rotate`. */
  readonly urls?: UrlAccess | undefined;
}

export interface UrlAccess {
  /** Opens a connection for one GET of a URL; its placeholders may be replaced later. Fails like `Extractor.connect`. */
  open(url: Secret, signal: AbortSignal): Promise<UrlConnection>;
  /** Returns the IP address that the answer of `url` through a member names; undefined if there is none. */
  exitOf(source: string, member: DrawnMember, url: string, signal: AbortSignal): Promise<string | undefined>;
}

export interface Extractor {
  /** `signal` cancels the opening and the call. After it has aborted, any error may be thrown; before, a NoriaError. */
  connect(call: CountlessCall, signal: AbortSignal): Promise<SupplyConnection>;
}

/** What refill needs of the pool: synchronous and fast, because a source calls it each time it checks whether to draw. */
export type RefillPool = Pick<
  Pool,
  | ('stockAt' | 'nextLossAt' | 'demand')
  | ('addMembers' | 'retainMembers' | 'drainMember' | 'limitTunnels' | 'unlimitTunnels')
> & {
  countsOf(source: string): Pick<SourceCounts, 'ready' | 'joining' | 'used' | 'blocked'> | undefined;
};

export interface DrawSourceOptions {
  readonly name: string;
  readonly call: CountlessCall;
  readonly secrets: readonly Secret[];
  /** The minimum time in ms between the arrivals of two calls at the service; 0: getting members costs no call. */
  readonly intervalMs: number;
  /** If set, each answer has all members, and noria reads it again after this time, even without demand. */
  readonly refreshMs?: number | undefined;
  readonly rotate?:
    | {
        readonly url: Secret;
        readonly everyMs: number;
        /** How long a member needs, in ms, until it has its new exit. */
        readonly settleMs: number;
        readonly check: string;
      }
    | undefined;
  readonly whitelist?:
    | {
        /** The vendor's binding URL, with `{ip}`. */
        readonly url: Secret;
        readonly everyMs: number;
        /** The address of this machine, or a URL that answers it. */
        readonly myIp: string | undefined;
      }
    | undefined;
  /** The most proxies of one call. If undefined, the product's default applies. */
  readonly count: number | undefined;
  /** The most usable members to hold while there is demand. */
  readonly size: number;
  /** A source draws only while no source with a smaller number can serve the clients. */
  readonly priority: number;
  readonly dailyBudget: number | undefined;
  /** The protocol of members for which the answer names no protocol. */
  readonly protocol: MemberProtocol | undefined;
  /** Whether members must pass a probe before their first use (free product). */
  readonly unproven: boolean;
  /** For members for which the answer names no lifetime. If undefined, the pool assumes one. */
  readonly defaultLifetimeMs: number | undefined;
}

export interface RefillSettings {
  readonly sources: readonly DrawSourceOptions[];
  readonly fill: 'demand' | 'size';
  readonly idleAfterMs: number;
  readonly callTimeoutMs: number;
}
