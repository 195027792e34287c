/** What the pool keeps of one source: its members, the load on them, and whether clients may use them. */

import { Heap } from '../core/heap.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { DrawnMember } from './drawn-member.ts';
import type { Member, MemberMoment, MemberPhaseName } from './member.ts';
import type { PoolSourceOptions } from './options.ts';

/** Weight of a new reading in a source's typical latency. */
const LATENCY_WEIGHT = 0.05;
/** After this time an event has about a third of its weight. */
const RATE_MEMORY_MS = 30_000;

/** Events per second, with exponential decay. */
class DecayingRate {
  #amount = 0;
  #updatedAt = 0;

  add(amount: number, now: number): void {
    this.#amount = this.#decayed(now) + amount;
    this.#updatedAt = now;
  }

  perSecond(now: number): number {
    return (this.#decayed(now) * 1_000) / RATE_MEMORY_MS;
  }

  #decayed(now: number): number {
    return this.#amount === 0 ? 0 : this.#amount * Math.exp((this.#updatedAt - now) / RATE_MEMORY_MS);
  }
}

/** One source's part of the pool. */
export class PoolSource {
  /** Replaced by a reload; the name stays the same. */
  options: PoolSourceOptions;
  readonly members = new Set<Member>();
  /** Members by phase; `left` counts all that ever left. */
  readonly counts: Record<MemberPhaseName, number> = {
    joining: 0,
    ready: 0,
    quarantined: 0,
    draining: 0,
    left: 0,
  };
  /** Members that are not draining, by the moment at which they stop being usable. */
  readonly expiries = new Heap<MemberMoment>();
  readonly quarantined = new Set<Member>();
  /** Open leases on its members. */
  openLeases = 0;
  /** Maximum of open leases on its members. */
  leaseLimit = Number.POSITIVE_INFINITY;
  /** Why clients may not use its members; undefined when they may. */
  blockedReason: string | undefined;
  /** Monotonic moment of the last demand that no tier recorded: start-up, a session, or a tier that no longer exists. */
  lastWantedAt = Number.NEGATIVE_INFINITY;
  /** Members used up, by `maxUsesPerMember` or by spacing. */
  readonly usedUp = new DecayingRate();
  /** Decaying mean over all its members; 0 before the first reading. */
  typicalLatencyMs = 0;

  /** The protocols of its members so far. */
  readonly protocols = new Set<MemberProtocol>();
  /** The longest remaining life with which a member joined; 0 before the first. */
  longestLifeMs = 0;

  constructor(options: PoolSourceOptions) {
    this.options = options;
  }

  get name(): string {
    return this.options.name;
  }

  /** Whether another lease would exceed the limit. */
  get isFull(): boolean {
    return this.openLeases >= this.leaseLimit;
  }

  /** Limits the open leases to `factor` of the current limit, or of the open leases when there is no limit. At least 1. */
  limitLeases(factor: number): void {
    const current = this.leaseLimit === Number.POSITIVE_INFINITY ? this.openLeases : this.leaseLimit;
    this.leaseLimit = Math.max(1, Math.floor(current * factor));
  }

  /** Records what members of this source are like, from one that lives for `lifeMs`. */
  learn({ protocol }: DrawnMember, lifeMs: number): void {
    this.protocols.add(protocol);
    this.longestLifeMs = Math.max(this.longestLifeMs, lifeMs);
  }

  learnLatency(latencyMs: number): void {
    if (this.typicalLatencyMs === 0) this.typicalLatencyMs = latencyMs;
    else this.typicalLatencyMs += (latencyMs - this.typicalLatencyMs) * LATENCY_WEIGHT;
  }
}
