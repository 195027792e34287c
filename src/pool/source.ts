/** What the pool keeps of one source: its members, what they hold, and whether they may be used at all. */
import type { MemberProtocol } from '../core/protocol.ts';
import type { DrawnMember } from './drawn-member.ts';
import { Heap } from './heap.ts';
import type { Mark, Member, MemberPhaseName } from './member.ts';
import { Meter } from './meter.ts';
import type { PoolSourceOptions } from './options.ts';

/** How much a new reading weighs in a source's typical latency. */
const LATENCY_WEIGHT = 0.05;

/** One source's part of the pool. */
export class PoolSource {
  /** Replaced by a reload; the name stays. */
  options: PoolSourceOptions;
  readonly members = new Set<Member>();
  /** Members by phase; `gone` counts all that ever left. */
  readonly counts: Record<MemberPhaseName, number> = {
    joining: 0,
    ready: 0,
    quarantined: 0,
    draining: 0,
    gone: 0,
  };
  /** Members that are not draining, by the moment at which they stop being usable. */
  readonly ends = new Heap<Mark>();
  /** Members in quarantine. */
  readonly quarantined = new Set<Member>();
  /** Leases that are open through its members. */
  open = 0;
  /** Most leases that may be open through its members. */
  tunnelLimit = Number.POSITIVE_INFINITY;
  /** Why none of its members may be used now, in noria's words. */
  blocked: string | undefined;
  /** Monotonic moment at which a client last wanted it, outside the lanes: start-up and sessions. */
  wantedAt = Number.NEGATIVE_INFINITY;
  /** Members used up, by uses or by spacing. */
  readonly usedUp = new Meter();
  /** Ms an accepted attempt through one of its members takes, decaying; 0 before the first. */
  typicalMs = 0;

  /** What its members were seen to speak. */
  readonly protocols = new Set<MemberProtocol>();
  /** The longest life a member of it had when it came; 0 before the first. */
  longestLifeMs = 0;

  constructor(options: PoolSourceOptions) {
    this.options = options;
  }

  get name(): string {
    return this.options.name;
  }

  /** Whether one more lease would break its limit. */
  get full(): boolean {
    return this.open >= this.tunnelLimit;
  }

  /** Notes what its members are like, from one that lives `lifeMs` from now. */
  learn(offer: DrawnMember, lifeMs: number): void {
    this.protocols.add(offer.protocol);
    this.longestLifeMs = Math.max(this.longestLifeMs, lifeMs);
  }

  learnLatency(latencyMs: number): void {
    if (this.typicalMs === 0) this.typicalMs = latencyMs;
    else this.typicalMs += (latencyMs - this.typicalMs) * LATENCY_WEIGHT;
  }
}
