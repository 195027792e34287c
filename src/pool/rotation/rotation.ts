/**
 * Rotations: data structures that return their next entry in O(1) or O(log n). A rotation knows nothing about its
 * entries: the caller of `pick` decides which entries fit. A pick does not change the order; the caller must call
 * `used` for the entry that it takes.
 */
import type { HeapNode } from '../../core/heap.ts';

export const UNFIT = 0;
/** A pick returns an entry with this fit only if its search finds no entry that FITS (see MAX_SECOND_CHOICES). */
export const SECOND_CHOICE = 1;
export const FITS = 2;
export type Fit = typeof UNFIT | typeof SECOND_CHOICE | typeof FITS;

/**
 * A pick ends its search when it has found more than this number of SECOND_CHOICE entries. It returns the first of
 * them.
 */
export const MAX_SECOND_CHOICES = 8;

/**
 * If a pick skips more unfit entries than this, it moves them behind the others. Otherwise every later pick would check the same
 * unfit entries again.
 */
export const MAX_UNFIT_AHEAD = 32;

export interface PickCheck<Entry> {
  readonly now: number;
  fit(entry: Entry): Fit;
}

export interface Rotation<Entry> {
  readonly size: number;
  add(entry: Entry): void;
  remove(entry: Entry): void;
  /** Records a use of this entry. The use may follow a pick from another rotation. */
  used(entry: Entry): void;
  /** Call it when the rank of the entry may have changed. Moves the entry to the place of its new rank. */
  rankChanged(entry: Entry): void;
  /** Returns the next entry that fits; undefined if no entry fits. */
  pick(check: PickCheck<Entry>): Entry | undefined;
  /**
   * The entries that the next picks will return if they fit and nothing else changes, in order; at most `count`. An entry may
   * appear more than once. A random rotation chooses the entries for the next picks during this call.
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
  /**
   * In a ranked rotation: the position of the entry's last use in the sequence of all uses. In a shuffle: the number of
   * the round in which the entry was last used.
   */
  lastUse = -1;
}
