/** What refill is told when it opens, and again at a reload. Durations in ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import type { DrawAnswer } from '../service/answer.ts';
import type { ExtractCall } from '../service/request.ts';
import type { PaceStore } from '../state/pace-file.ts';
import type { RefillPool } from './refill-pool.ts';

/** What refill needs of the service client. */
export interface Extractor {
  /**
   * One draw. Resolves with whatever code the service gave.
   *
   * @throws NoriaError where none came; once `signal` has aborted, anything.
   */
  extract(
    call: ExtractCall,
    options: { readonly signal: AbortSignal; readonly secrets: readonly Secret[] },
  ): Promise<DrawAnswer>;
}

export interface DrawSourceOptions {
  readonly name: string;
  /** The call as it is made, but for the count. */
  readonly call: Omit<ExtractCall, 'count'>;
  /** Masked in whatever text of an answer is kept, besides the key of the call. */
  readonly secrets: readonly Secret[];
  /** The pace, start to start. */
  readonly intervalMs: number;
  /** The most to ask for in one call; absent: the product's. */
  readonly count: number | undefined;
  /** Usable members to hold while there is demand. */
  readonly size: number;
  /** 1 is first; a later one draws only while no earlier one can serve. */
  readonly priority: number;
  /** Most distinct IPs drawn on one day of the service. */
  readonly dailyBudget: number | undefined;
  /** What members speak whose entry does not say it. */
  readonly protocol: MemberProtocol | undefined;
  /** Members must pass a probe before a client may have them (free product). */
  readonly unproven: boolean;
  /** Life of a member whose entry leaves it out; absent: unknown, so the pool's assumption for the source. */
  readonly defaultLifetimeMs: number | undefined;
}

/** What a reload may change. */
export interface RefillSettings {
  readonly sources: readonly DrawSourceOptions[];
  /** Without a client for so long nothing is drawn; 0: it never stops. */
  readonly idleAfterMs: number;
  /** The longest one call can take: the client's own limit. */
  readonly callTimeoutMs: number;
}

export interface RefillerOptions extends RefillSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pace: PaceStore;
  readonly extractor: Extractor;
  readonly pool: RefillPool;
  /** What `record()` gave in an earlier run, out of the snapshot. */
  readonly restored?: unknown;
}
