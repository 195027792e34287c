/**
 * One member of the pool: a proxy with an end of life, and where it is in that life.
 *
 * Only `#move` writes the phase; it refuses any step that MOVES does not list. The picture in docs/architecture.md
 * is the same table. When to move is decided by the roster; what a fault leads to, by `health`.
 */
import type { FaultCode } from '../core/faults.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Facts } from './drawn-member.ts';
import { Health } from './health.ts';
import type { HeapNode } from './heap.ts';
import type { Location } from './locations.ts';
import { type Berth, NOWHERE, type Seat } from './rotation/rotation.ts';
import type { PoolSource } from './source.ts';

/** Why a member takes nothing new any more. `failed` and `used-up` and `evicted` also bar it from being drawn again. */
export type LeaveReason = 'expired' | 'failed' | 'used-up' | 'evicted' | 'removed';

/** What is true in each phase, and only there. Moments are monotonic. */
export type MemberPhase =
  /** Unproven: no client may have it before a probe has succeeded. */
  | { readonly name: 'joining' }
  | { readonly name: 'ready' }
  /** Rests until a time; from then on one attempt decides. */
  | {
      readonly name: 'quarantined';
      readonly sinceAt: number;
      readonly untilAt: number;
      readonly fault: FaultCode;
    }
  /** Takes nothing new; leases that are open go on. */
  | { readonly name: 'draining'; readonly why: Leaving }
  | { readonly name: 'gone'; readonly why: Leaving };

/** Why a member leaves; the fault that was one too many, where it is that. */
export interface Leaving {
  readonly reason: LeaveReason;
  readonly fault?: FaultCode;
}

/** The phases by name. */
export type MemberPhaseName = MemberPhase['name'];

/** The moves there are. A quarantined member that fails its trial begins a longer rest. */
export const MEMBER_MOVES = {
  joining: ['ready', 'draining', 'gone'],
  ready: ['quarantined', 'draining', 'gone'],
  quarantined: ['ready', 'quarantined', 'draining', 'gone'],
  draining: ['gone'],
  gone: [],
} as const satisfies Record<MemberPhaseName, readonly MemberPhaseName[]>;

/** Latency readings older than this count for little. */
const LATENCY_MEMORY_MS = 10_000;
/** What a new reading weighs at least, however soon it follows the one before. */
const LEAST_WEIGHT = 0.2;
/** Hosts kept for bans, and for spacing: more than anyone needs, few enough to bound the memory. */
const MAX_HOSTS = 1_000;

/** A node of one of the pool's heaps, belonging to a member. */
export class Mark implements HeapNode {
  readonly member: Member;
  key = Number.POSITIVE_INFINITY;
  place = -1;

  constructor(member: Member) {
    this.member = member;
  }
}

/** What a member is from the start. */
export interface Identity {
  readonly id: string;
  readonly source: PoolSource;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly place: Location;
}

/** A proxy while the pool holds it; whatever else it counts is counted by whoever lends it. */
export class Member {
  readonly id: string;
  readonly source: PoolSource;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly place: Location;
  /** Monotonic; before this process began where a snapshot brought it. */
  readonly joinedAt: number;
  readonly health = new Health();

  exitIp: string | undefined;
  facts: Facts | undefined;
  /** Monotonic moment at which its life ends. */
  endsAt = 0;
  /** Nobody knows when it really ends: `endsAt` is the source's assumption, renewed by success. */
  assumed = false;

  /** Leases that are open, whatever for. */
  open = 0;
  /** Leases of clients that have not been reported on yet. */
  pending = 0;
  /** Leases that were accepted. */
  uses = 0;
  /** The lease that tries it out: a probe, or whoever has it while it is quarantined. There is never more than one. */
  trial: number | undefined;
  /** Monotonic moment of the last accepted attempt; undefined before the first. */
  provenAt: number | undefined;
  /** Decaying mean of the ms its attempts took; undefined before the first. */
  latencyMs: number | undefined;
  #latencyAt = 0;

  /** Hosts it may not be used for. */
  bans: Set<string> | undefined;
  /** When it may be used again for a host, least recently used host first. */
  #freeAt: Map<string, number> | undefined;

  /** Where it stands in the lanes: set by them alone. */
  berth: Berth = NOWHERE;
  readonly seats: Seat[] = [];
  /** In the source's heap of ends of life. */
  readonly end = new Mark(this);
  /** In the roster's heap of next changes. */
  readonly next = new Mark(this);

  #phase: MemberPhase;

  constructor(identity: Identity, unproven: boolean, joinedAt: number) {
    this.id = identity.id;
    this.source = identity.source;
    this.protocol = identity.protocol;
    this.host = identity.host;
    this.port = identity.port;
    this.place = identity.place;
    this.joinedAt = joinedAt;
    this.#phase = { name: unproven ? 'joining' : 'ready' };
  }

  get phase(): MemberPhase {
    return this.#phase;
  }

  /** The address a target sees, as far as anyone knows. */
  get exit(): string {
    return this.exitIp ?? this.host;
  }

  /** An attempt through it was accepted: it may be picked by anyone. */
  admit(): void {
    this.trial = undefined;
    this.#move({ name: 'ready' });
  }

  quarantine(sinceAt: number, untilAt: number, fault: FaultCode): void {
    this.trial = undefined;
    this.#move({ name: 'quarantined', sinceAt, untilAt, fault });
  }

  /** Takes nothing new from now on; with no lease open it is gone at once. */
  leave(why: Leaving): void {
    this.#move({ name: this.open > 0 ? 'draining' : 'gone', why });
  }

  /** The last lease of a draining member has ended. @returns why it left. */
  finish(): Leaving {
    if (this.#phase.name !== 'draining') throw new TypeError(`member ${this.id} is not draining`);
    const { why } = this.#phase;
    this.#move({ name: 'gone', why });
    return why;
  }

  /** Ends the rest of a quarantined member now. */
  endRest(now: number): void {
    if (this.#phase.name === 'quarantined' && this.#phase.untilAt > now) {
      this.#move({ ...this.#phase, untilAt: now });
    }
  }

  /** An attempt through it was accepted after `latencyMs` (not known where an idle connection was used again). */
  proved(now: number, latencyMs: number | undefined): void {
    this.provenAt = now;
    this.health.accepted();
    if (latencyMs === undefined) return;
    const weight =
      this.latencyMs === undefined
        ? 1
        : Math.max(LEAST_WEIGHT, 1 - Math.exp((this.#latencyAt - now) / LATENCY_MEMORY_MS));
    this.latencyMs = (this.latencyMs ?? 0) * (1 - weight) + latencyMs * weight;
    this.#latencyAt = now;
  }

  /** Its latency as `fastest` compares it: an old reading fades towards `typicalMs`, and no reading is that. */
  expectedLatencyMs(now: number, typicalMs: number): number {
    if (this.latencyMs === undefined) return typicalMs;
    const faded = Math.exp((this.#latencyAt - now) / (6 * LATENCY_MEMORY_MS));
    return typicalMs + (this.latencyMs - typicalMs) * faded;
  }

  /** Monotonic moment from which it may be used for `host` again; 0 when it may at once. */
  freeAt(host: string): number {
    return this.#freeAt?.get(host) ?? 0;
  }

  /** It is used for `host` now and not again before `freeAt`. */
  space(host: string, freeAt: number, now: number): void {
    this.#freeAt ??= new Map();
    this.#freeAt.delete(host); // so that the map stays in order of use
    this.#freeAt.set(host, freeAt);
    for (const [other, otherFreeAt] of this.#freeAt) {
      if (otherFreeAt > now && this.#freeAt.size <= MAX_HOSTS) break;
      this.#freeAt.delete(other);
    }
  }

  ban(host: string): void {
    this.bans ??= new Set();
    this.bans.add(host);
    for (const oldest of this.bans) {
      if (this.bans.size <= MAX_HOSTS) break;
      this.bans.delete(oldest);
    }
  }

  #move(next: MemberPhase): void {
    const allowed: readonly MemberPhaseName[] = MEMBER_MOVES[this.#phase.name];
    if (!allowed.includes(next.name)) {
      throw new TypeError(`member ${this.id}: ${this.#phase.name} -> ${next.name} is not a move`);
    }
    this.source.counts[this.#phase.name] -= 1;
    this.source.counts[next.name] += 1;
    this.#phase = next;
  }
}
