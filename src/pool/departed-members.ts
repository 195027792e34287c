/**
 * What is remembered of members that left: whether the same proxy may come back, and what was known about it.
 *
 * The service may draw the same address again. While the life it announced lasts it is the same machine: one that
 * failed, was used up or evicted does not come back before that. Afterwards it may be another, and nothing holds.
 */
import type { MemberProtocol } from '../core/protocol.ts';
import type { HealthRecord } from './health.ts';
import type { Leaving, Member } from './member.ts';

/** Where a member listens, and what it speaks there. */
export interface MemberAddressKey {
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
}

/** What is known of one that left. */
export interface DepartedMember {
  /** Monotonic moment at which it is forgotten. */
  readonly untilAt: number;
  /** It may not come back before that. */
  readonly barred: boolean;
  readonly bans: readonly string[];
  readonly health: HealthRecord;
}

/** More than any pool loses within the life of its members. */
const MAX_MEMORIES = 50_000;

/** What makes two members the same. */
export function keyOf(source: string, { protocol, host, port }: MemberAddressKey): string {
  return `${source} ${protocol} ${host} ${port}`;
}

/** Memories by member key. */
export class DepartedMembers {
  readonly #memories = new Map<string, DepartedMember>();

  keep(key: string, memory: DepartedMember, now: number): void {
    this.#memories.delete(key); // so that the map stays in order of keeping
    this.#memories.set(key, memory);
    for (const [oldest, { untilAt }] of this.#memories) {
      if (untilAt > now && this.#memories.size <= MAX_MEMORIES) break;
      this.#memories.delete(oldest);
    }
  }

  /** What is still remembered; it stays so. */
  recall(key: string, now: number): DepartedMember | undefined {
    const memory = this.#memories.get(key);
    return memory === undefined || memory.untilAt <= now ? undefined : memory;
  }

  /** All that is remembered at `now`, the oldest first. */
  *entries(now: number): Generator<[string, DepartedMember]> {
    for (const entry of this.#memories) if (entry[1].untilAt > now) yield entry;
  }
}

/** What to remember of a member that leaves now; undefined when there is nothing worth it. */
export function memoryOf(
  member: Member,
  { reason }: Leaving,
  now: number,
  leastMs: number,
): DepartedMember | undefined {
  const barred = reason !== 'expired' && reason !== 'removed';
  const bans = [...(member.bans ?? [])];
  if (!barred && bans.length === 0 && member.health.score === 0) return undefined;
  const { endsAt, joinedAt, health } = member;
  const untilAt = barred ? Math.max(endsAt, now + leastMs) : now + (endsAt - joinedAt);
  return { untilAt, barred, bans, health: health.record() };
}
