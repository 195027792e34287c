/** Counts the replicas that reported a member as failed. A member is removed when enough replicas have reported it. */
import { BoundedMap } from '../core/bounded-map.ts';
import type { MemberLeft } from './shared-pool.ts';

/** Incomplete votes are remembered for at most this number of members. */
const MAX_MEMBERS = 10_000;

export class EvictionVotes {
  /** The names of the replicas that voted for the eviction of a member, by member id. */
  readonly #byMember = new BoundedMap<string, Set<string>>(MAX_MEMBERS);

  clear(): void {
    this.#byMember.clear();
  }

  load(member: string, votes: readonly string[]): void {
    if (votes.length > 0) this.#byMember.set(member, new Set(votes));
  }

  /**
   * Counts the vote of a replica.
   * @returns whether enough replicas have voted to remove the member.
   */
  count({ member, votesNeeded }: MemberLeft, by: string): boolean {
    if (votesNeeded <= 1) return true;
    const votes = this.#byMember.get(member) ?? new Set();
    votes.add(by);
    this.#byMember.set(member, votes);
    return votes.size >= votesNeeded;
  }
}
