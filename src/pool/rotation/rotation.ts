/**
 * Rotations: data structures that return the next of their entries in O(1) or O(log n).
 *
 * A rotation knows nothing about its entries: the caller of `pick` checks which of them it can use. A pick changes no
 * order; the caller reports with `used` which entry it took. An entry that does not fit costs the pick one step. After
 * a long run of such entries, the rotation puts them behind the others, so that the next picks do not repeat the search.
 */
import type { HeapNode } from '../../core/heap.ts';

/** The pick must not return the entry. */
export const UNFIT = 0;
/** The pick returns the entry only when it finds no fitting one within `MAX_SECOND_CHOICES`. */
export const SECOND_CHOICE = 1;
/** The pick may return the entry. */
export const FITS = 2;
/** How well an entry fits a pick. */
export type Fit = typeof UNFIT | typeof SECOND_CHOICE | typeof FITS;

/** A pick passes over this many second choices before it takes the first of them. */
export const MAX_SECOND_CHOICES = 8;

/**
 * A pick that passes over more unfit entries than this puts them behind the others. Otherwise, when half of the entries
 * never fit, each pick would walk through that half again.
 */
export const MAX_UNFIT_AHEAD = 32;

/** Checks entries for one pick. */
export interface PickCheck<Entry> {
  /** Monotonic moment of the pick. */
  readonly now: number;
  fit(entry: Entry): Fit;
}

/** The order in which entries are picked. */
export interface Rotation<Entry> {
  readonly size: number;
  add(entry: Entry): void;
  remove(entry: Entry): void;
  /** The caller took this entry, whichever rotation returned it. */
  used(entry: Entry): void;
  /** The rank of the entry may have changed. */
  rankChanged(entry: Entry): void;
  /** The next entry that fits; undefined when none does. */
  pick(check: PickCheck<Entry>): Entry | undefined;
  /**
   * The entries that the next picks return if they fit and nothing else changes, in order; at most `count`. An entry may be
   * there more than once. A rotation that picks at random decides these picks now.
   */
  upcoming(count: number, now: number): readonly Entry[];
}

/** An entry is in one rotation at a time; only that rotation uses these fields. */
export class RotationEntry implements HeapNode {
  previous: this | undefined;
  next: this | undefined;
  key = 0;
  heapIndex = -1;
  arrayIndex = -1;
  /** The turn or round of its last use. */
  lastTurn = -1;
}
