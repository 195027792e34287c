/**
 * What one request needs of a member, beyond the lane it is looked for in.
 *
 * There is one query in a pool, filled anew for every pick: picking allocates nothing.
 */
import type { Member } from './member.ts';

/** Not for this request. */
export const UNFIT = 0;
/** Would do, but has the exit of the pick before, or is another session's: taken when no other is near. */
export const SECOND_CHOICE = 1;
/** May be taken. */
export const FITS = 2;
/** How a member meets a query. */
export type Fit = typeof UNFIT | typeof SECOND_CHOICE | typeof FITS;

/** How many members are passed over, at most, for being a second choice. */
export const MAX_PASSED_OVER = 8;

/**
 * How many members in a row a pick looks at that do not fit before they lose their turn. Else a wish that half of the
 * pool cannot meet would find that half in front of it, again and again.
 */
export const PATIENCE = 32;

const NEVER = Number.POSITIVE_INFINITY;

/** The question of one pick, and what the pick found out beside its answer. */
export class Query {
  now = 0;
  host = '';
  avoid: readonly string[] = [];
  /** The member must live at least until then. */
  leastEndsAt = Number.NEGATIVE_INFINITY;
  /** Exit of the pick before. */
  lastExit = '';
  /** For a session: the members that sessions have, by id. */
  taken: ReadonlyMap<string, unknown> | undefined;

  /** After a pick: the first moment at which a member that is only spaced from this host would fit. */
  freeAt = NEVER;
  /** After a pick: some member was refused for what only this request asks. Another request may get it. */
  choosy = false;
  /** After a pick: a lane was looked into that no client had wanted for a while. */
  brokeQuiet = false;

  /** Begins another pick with the same wishes. */
  restart(): void {
    this.freeAt = NEVER;
    this.choosy = false;
    this.brokeQuiet = false;
  }

  /** Whether this request may have the member. */
  fit(member: Member): Fit {
    if (member.source.full) return UNFIT;
    if (
      member.endsAt < this.leastEndsAt ||
      member.bans?.has(this.host) === true ||
      (this.avoid.length > 0 && this.avoid.includes(member.id))
    ) {
      this.choosy = true;
      return UNFIT;
    }
    const freeAt = member.freeAt(this.host);
    if (freeAt > this.now) {
      this.choosy = true;
      if (freeAt < this.freeAt) this.freeAt = freeAt;
      return UNFIT;
    }
    if (member.exit === this.lastExit) return SECOND_CHOICE;
    return this.taken?.has(member.id) === true ? SECOND_CHOICE : FITS;
  }
}
