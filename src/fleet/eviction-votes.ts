/**
 * Counts, for each member, the replicas that reported it as failed. If there are enough of them, all replicas remove
 * the member.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { MemberLeft } from './shared-pool.ts';

/** The maximum number of members for which votes are kept. */
const MAX_MEMBERS = 10_000;

export class EvictionVotes {
  /** By member id: the names of the replicas that voted to evict the member. */
  readonly #byMember = new BoundedMap<string, Set<string>>(MAX_MEMBERS);

  clear(): void {
    this.#byMember.clear();
  }

  load(member: string, votes: readonly string[]): void {
    if (votes.length > 0) this.#byMember.set(member, new Set(votes));
  }

  /**
   * Counts the vote of the replica `by`.
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
