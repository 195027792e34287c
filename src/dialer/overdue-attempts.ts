/**
 * Members that keep a client waiting just now: attempts through them are overdue and have not ended.
 *
 * A silent member is found out only at the end of its timeout; until then at least no second attempt goes through it.
 */

/** As much of an attempt as is needed here. */
export interface Overdue {
  readonly lease: { readonly member: string };
}

/** More would make each pick dear, and would be a pool that no choice can help. */
const MOST_TOLD = 64;

export class OverdueAttempts {
  readonly #overdue = new Set<Overdue>();

  /** The attempt is overdue, until `ended`. */
  add(attempt: Overdue): void {
    this.#overdue.add(attempt);
  }

  /** Safe for one that was never overdue. */
  delete(attempt: Overdue): void {
    this.#overdue.delete(attempt);
  }

  get size(): number {
    return this.#overdue.size;
  }

  /** Whom a second attempt had better avoid: these members and the slow ones, but for those `tried` already. */
  membersToAvoid(slow: readonly string[], tried: readonly string[]): readonly string[] {
    const members = new Set(slow);
    for (const { lease } of this.#overdue) members.add(lease.member);
    for (const member of tried) members.delete(member);
    return [...members].slice(0, MOST_TOLD);
  }
}
