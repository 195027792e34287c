/**
 * Remembers members that left, in case the service draws the same address again. During the announced life of a member, its
 * address is the same machine. A member that failed, was used up or was evicted is therefore barred until that life has ended. A
 * member that left for another reason may return, with its bans and its health.
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../core/bounded-map.ts';
import type { DrawnMember } from './drawn-member.ts';
import type { HealthRecord } from './health.ts';
import type { Departure, Member } from './member.ts';

/** What a member gets back when its address returns. */
export interface MemberHistory {
  readonly bans: readonly string[];
  readonly health: HealthRecord;
}

export interface DepartedMember extends MemberHistory {
  /** Monotonic moment at which the record expires. */
  readonly untilAt: number;
  /** Whether draws of the same address are rejected until `untilAt`. */
  readonly barred: boolean;
}

/** Limit of remembered members: more than a pool loses within the life of its members. */
const MAX_DEPARTED = 50_000;

/**
 * Identifies a proxy across its stays in the pool. Includes the user name: a gateway may have one address for several user names,
 * each with its own exit.
 */
export function memberKey(
  source: string,
  { protocol, host, port, login }: Pick<DrawnMember, 'protocol' | 'host' | 'port' | 'login'>,
): string {
  const address = `${source} ${protocol} ${host} ${port}`;
  return login === undefined ? address : `${address} ${hash('sha256', login.username).slice(0, 16)}`;
}

/** Departed members by member key. */
export class DepartedMembers {
  readonly #byKey = new BoundedMap<string, DepartedMember>(MAX_DEPARTED);

  add(key: string, departed: DepartedMember, now: number): void {
    this.#byKey.set(key, departed);
    this.#byKey.deleteOldestWhile(({ untilAt }) => untilAt <= now);
  }

  find(key: string, now: number): DepartedMember | undefined {
    const departed = this.#byKey.get(key);
    return departed === undefined || departed.untilAt <= now ? undefined : departed;
  }

  /** The records that have not expired at `now`, oldest first. */
  *entries(now: number): Generator<[string, DepartedMember]> {
    for (const entry of this.#byKey) if (entry[1].untilAt > now) yield entry;
  }
}

/**
 * What to remember of a member that leaves now; undefined without faults and bans.
 * @param minBarMs - least time to bar a member that failed, was used up or was evicted.
 */
export function departedMember(
  { endsAt, joinedAt, bans, health }: Member,
  { reason }: Departure,
  now: number,
  minBarMs: number,
): DepartedMember | undefined {
  const barred = reason !== 'expired' && reason !== 'removed';
  if (!barred && (bans === undefined || bans.size === 0) && health.score === 0) return undefined;
  const untilAt = barred ? Math.max(endsAt, now + minBarMs) : now + (endsAt - joinedAt);
  return { untilAt, barred, bans: [...(bans?.keys() ?? [])], health: health.record() };
}
