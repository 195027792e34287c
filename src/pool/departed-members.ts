/**
 * Remembers members that left, because the service may draw the same address again. Until the announced end of a
 * member's life, its address belongs to the same machine. So a member that failed, was used up or was evicted is
 * barred: it must not join again before this end. A member that left for another reason may join again, and keeps its
 * bans and its health.
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../core/bounded-map.ts';
import type { DrawnMember } from './drawn-member.ts';
import type { HealthSnapshot } from './health.ts';
import type { Member } from './member.ts';
import type { Departure } from './member-phase.ts';

export interface MemberHistory {
  readonly bans: readonly string[];
  readonly health: HealthSnapshot;
}

interface DepartedMember extends MemberHistory {
  /** The pool forgets the departed member at this monotonic moment. */
  readonly untilAt: number;
  /** Whether the member must not join again before `untilAt`. */
  readonly barred: boolean;
}

/**
 * Maximum number of departed members that the pool remembers. If more members leave, the pool forgets the members that
 * left first.
 */
const MAX_DEPARTED = 50_000;

/**
 * The key by which the pool recognizes a proxy that it already knows. The key includes the user name, because a gateway may have
 * one address for several user names, each with its own exit.
 */
export function memberKey(
  source: string,
  { protocol, host, port, login }: Pick<DrawnMember, 'protocol' | 'host' | 'port' | 'login'>,
): string {
  const address = `${source} ${protocol} ${host} ${port}`;
  return login === undefined ? address : `${address} ${hash('sha256', login.username).slice(0, 16)}`;
}

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

  /** The departed members that the pool still remembers at `now`, oldest first. */
  *entries(now: number): Generator<[string, DepartedMember]> {
    for (const entry of this.#byKey) if (entry[1].untilAt > now) yield entry;
  }
}

/**
 * What the pool remembers of a member that leaves now. Undefined if there is nothing to remember: the member may join
 * again and has neither faults nor bans.
 * @param minBarMs - the minimum time in ms for which a failed, used-up or evicted member must not join again.
 */
export function departedMember(
  { endsAt, joinedAt, bans, health }: Member,
  { reason }: Departure,
  { now, minBarMs }: { readonly now: number; readonly minBarMs: number },
): DepartedMember | undefined {
  const barred = reason !== 'expired' && reason !== 'removed';
  if (!barred && (bans === undefined || bans.size === 0) && health.score === 0) return undefined;
  const untilAt = barred ? Math.max(endsAt, now + minBarMs) : now + (endsAt - joinedAt);
  return { untilAt, barred, bans: [...(bans?.keys() ?? [])], health: health.snapshot() };
}
