/** Checks members for one lease request. A pool reuses one check for all picks, to save the allocation. */
import type { Candidate } from './candidates.ts';
import { FITS, type Fit, type PickCheck, SECOND_CHOICE, UNFIT } from './rotation/rotation.ts';

/** What the pick requires of a member, and what it finds out about those it rejects. */
export class MemberCheck implements PickCheck<Candidate> {
  now = 0;
  host = '';
  /** Ids of members. */
  avoid: readonly string[] = [];
  minEndsAt = Number.NEGATIVE_INFINITY;
  /** A member with this exit is a second choice. */
  lastExit = '';
  /** A member whose id is a key here is a second choice. */
  heldBySessions: ReadonlyMap<string, unknown> | undefined;

  /** Result: the earliest moment at which the spacing of the host (`perHostSpacing`) no longer excludes a member. */
  spacedUntil = Number.POSITIVE_INFINITY;
  /** Result: a member does not fit this request, but may fit others with the same filter. */
  rejectedForRequest = false;
  /** Result: the pick searched a tier that no request had searched for `QUIET_MS`. */
  endedQuiet = false;

  /** Clears the results of the previous pick. */
  clearResults(): void {
    this.spacedUntil = Number.POSITIVE_INFINITY;
    this.rejectedForRequest = false;
    this.endedQuiet = false;
  }

  fit({ member }: Candidate): Fit {
    if (member.source.isFull) return UNFIT;
    if (
      member.endsAt < this.minEndsAt ||
      member.bans?.has(this.host) === true ||
      (this.avoid.length > 0 && this.avoid.includes(member.id))
    ) {
      this.rejectedForRequest = true;
      return UNFIT;
    }
    const spacedUntil = member.spacedUntil(this.host);
    if (spacedUntil > this.now) {
      this.rejectedForRequest = true;
      if (spacedUntil < this.spacedUntil) this.spacedUntil = spacedUntil;
      return UNFIT;
    }
    if (member.exit === this.lastExit) return SECOND_CHOICE;
    return this.heldBySessions?.has(member.id) === true ? SECOND_CHOICE : FITS;
  }
}
