/** What refill needs from the parts around it, and its settings. Durations are in ms, moments are monotonic ms. */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Random } from '../core/random.ts';
import type { Secret } from '../core/secret.ts';
import type { AddedMembers, Demand, DrawnMember } from '../pool/drawn-member.ts';
import type { DrawAnswer } from '../service/answer.ts';
import type { CountlessCall, DrawCall, ServiceAddress } from '../service/request.ts';
import type { WriteGate } from '../service/transport.ts';
import type { PaceStore } from '../state/pace-file.ts';
import type { SharedCount } from './daily-budget.ts';

export interface Extractor {
  /**
   * Opens a connection for one call. `signal` cancels the opening and the call.
   *
   * @throws NoriaError when no connection was opened. After `signal` has aborted it may throw anything.
   */
  connect(address: ServiceAddress, signal: AbortSignal): Promise<ExtractConnection>;
}

export interface ExtractConnection {
  /**
   * Makes one extraction call and resolves with the service's answer, whatever its code.
   *
   * @throws what `gate.beforeWrite` throws, and NoriaError when no answer came.
   */
  extract(
    call: DrawCall,
    options: { readonly secrets: readonly Secret[]; readonly gate: WriteGate },
  ): Promise<DrawAnswer>;
  /** Idempotent. */
  close(): void;
}

/**
 * The methods of the pool that refill uses. All are synchronous and cheap, because a source calls them after every
 * change.
 */
export interface RefillPool {
  /**
   * The number of members of the source that are usable at `atMs` if nothing is drawn until then, including members
   * whose quarantine ends before.
   */
  usableAt(source: string, atMs: number): number;
  /**
   * Like `usableAt`, but also counts quarantined members that no draw replaces because only one client failed through
   * them.
   */
  countedAt(source: string, atMs: number): number;
  /** The number of members of the source that have not expired at `atMs`, including quarantined ones. */
  heldAt(source: string, atMs: number): number;
  /**
   * The first moment after `afterMs` at which a member of the source stops being usable; undefined when no member will.
   */
  nextLossAt(source: string, afterMs: number): number | undefined;
  demand(source: string): Demand;
  /** Adds the members of a draw in random order. Waiting clients get them at once. */
  addMembers(source: string, drawn: readonly DrawnMember[]): AddedMembers;
  /**
   * Limits the open tunnels of the source to `factor` times the current limit; without one, times their present number. Used when the service
   * reports too many connections (12008 of operation 1).
   */
  limitTunnels(source: string, factor: number): void;
  /** Removes the limit that `limitTunnels` set. */
  unlimitTunnels(source: string): void;
}

export interface DrawSourceOptions {
  readonly name: string;
  /** The extraction call, without the count. */
  readonly call: CountlessCall;
  /** Texts that noria masks in every text of the service, in addition to the key of the call. */
  readonly secrets: readonly Secret[];
  /** The pace: the minimum time between two arrivals at the service. */
  readonly intervalMs: number;
  /** The maximum number to request in one call; undefined: the default of the product. */
  readonly count: number | undefined;
  /** The number of usable members to hold while there is demand. */
  readonly size: number;
  /** The priority; 1 is the first. A source draws only while no source of an earlier priority can serve. */
  readonly priority: number;
  /** The maximum number of distinct IPs to draw on one day of the service. */
  readonly dailyBudget: number | undefined;
  /** The protocol of members whose entry names none. */
  readonly protocol: MemberProtocol | undefined;
  /** Members must pass a probe before a client can use them (free product). */
  readonly unproven: boolean;
  /** The lifetime of members whose entry names none; undefined: unknown, so the pool assumes one. */
  readonly defaultLifetimeMs: number | undefined;
}

/** The settings of refill. A reload may change them. */
export interface RefillSettings {
  readonly sources: readonly DrawSourceOptions[];
  /** Drawing stops after this time without a client request; 0: drawing never stops. */
  readonly idleAfterMs: number;
  readonly callTimeoutMs: number;
}

export interface RefillerOptions extends RefillSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pace: PaceStore;
  readonly extractor: Extractor;
  readonly pool: RefillPool;
  /** Returns the count that the norias of a fleet share for the daily budget of a source. */
  readonly sharedCount?: ((source: string) => SharedCount) | undefined;
  /** The result of `record()` of an earlier run, from the snapshot file. */
  readonly restored?: unknown;
}
