/**
 * How members wait to be picked: a rotation is a structure of seats that gives the next one in O(1) or O(log n).
 *
 * A pick gives nobody a turn; `picked` does, once the member is really given away. A member that does not fit the
 * query costs one step; many of them in a row lose their turn, so that the next pick does not meet them again.
 */
import type { HeapNode } from '../heap.ts';
import type { Member } from '../member.ts';
import type { Query } from '../member-check.ts';

/** Members in the order in which they are to be picked. */
export interface Rotation {
  readonly size: number;
  add(seat: Seat): void;
  remove(seat: Seat): void;
  /** Its member was given to a client, through this rotation or another. */
  picked(seat: Seat): void;
  /** What its member is ranked by changed. */
  changed(seat: Seat): void;
  /** The next member that fits, if there is one. */
  pick(query: Query): Member | undefined;
}

/** Not to be picked: draining, full, on trial, unproven, or its source is blocked. */
export const NOWHERE = -1;
/** Life enough left. */
export const LASTING = 0;
/** About to end: only if nothing else is there. */
export const ENDING = 1;
/** In quarantine: better than none. */
export const RESTING = 2;
/** Where a member stands in all its lanes. */
export type Berth = typeof NOWHERE | typeof LASTING | typeof ENDING | typeof RESTING;

/** The three rotations of a lane, in the order in which they are picked from. */
export type Berths = readonly [lasting: Rotation, ending: Rotation, resting: Rotation];

/** One member's place in one lane: in one of its rotations, or in none. */
export class Seat implements HeapNode {
  readonly member: Member;
  readonly berths: Berths;
  rotation: Rotation | undefined;

  // What follows belongs to the rotation it is in.
  previous: Seat | undefined;
  next: Seat | undefined;
  key = 0;
  place = -1;
  round = -1;

  constructor(member: Member, berths: Berths) {
    this.member = member;
    this.berths = berths;
  }

  move(berth: Berth): void {
    this.rotation?.remove(this);
    this.rotation = berth === NOWHERE ? undefined : this.berths[berth];
    this.rotation?.add(this);
  }
}
