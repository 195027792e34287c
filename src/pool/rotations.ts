/**
 * Rotations: data structures that return their next entry in O(1) or O(log n), one for each kind of strategy. A rotation knows
 * nothing about its entries: the caller of `pick` decides which entries fit. A pick does not change the order; the caller must
 * call `used` for the entry that it takes.
 */
import { Heap, type HeapNode } from '../core/heap.ts';
import { type Random, randomBelow } from '../core/random.ts';

export const UNFIT = 0;
/** A pick returns an entry with this fit only if its search finds no entry that FITS (see MAX_SECOND_CHOICES). */
export const SECOND_CHOICE = 1;
export const FITS = 2;
export type Fit = typeof UNFIT | typeof SECOND_CHOICE | typeof FITS;

/** A pick ends its search when it has found more SECOND_CHOICE entries than this. It returns the first of them. */
const MAX_SECOND_CHOICES = 8;

/** If a pick skips more unfit entries than this, it moves them behind the others, so that later picks do not check them again. */
const MAX_UNFIT_AHEAD = 32;

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
  rankChanged(entry: Entry): void;
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

/** A linked list in order of last use. The head is picked next; a picked entry moves to the end. */
export class RoundRobin<Entry extends RotationEntry> implements Rotation<Entry> {
  #head: Entry | undefined;
  #tail: Entry | undefined;
  size = 0;

  add(entry: Entry): void {
    this.size += 1;
    entry.previous = this.#tail;
    entry.next = undefined;
    if (this.#tail === undefined) this.#head = entry;
    else this.#tail.next = entry;
    this.#tail = entry;
  }

  remove(entry: Entry): void {
    this.size -= 1;
    if (entry.previous === undefined) this.#head = entry.next;
    else entry.previous.next = entry.next;
    if (entry.next === undefined) this.#tail = entry.previous;
    else entry.next.previous = entry.previous;
    entry.previous = undefined;
    entry.next = undefined;
  }

  used(entry: Entry): void {
    if (entry === this.#tail) return;
    this.remove(entry);
    this.add(entry);
  }

  rankChanged(): void {} // no-op, because the order depends only on the last use

  pick(check: PickCheck<Entry>): Entry | undefined {
    let secondChoice: Entry | undefined;
    let secondChoices = 0;
    let steps = 0;
    for (let entry = this.#head; entry !== undefined; entry = entry.next) {
      const fit = check.fit(entry);
      if (fit === FITS) {
        if (steps > MAX_UNFIT_AHEAD)
          for (let head = this.#head; head && head !== entry; head = this.#head) this.used(head);
        return entry;
      }
      steps += 1;
      if (fit !== SECOND_CHOICE) continue;
      secondChoice ??= entry;
      secondChoices += 1;
      if (secondChoices > MAX_SECOND_CHOICES) break;
    }
    return secondChoice;
  }

  upcoming(count: number): readonly Entry[] {
    const entries: Entry[] = [];
    for (let entry = this.#head; entry !== undefined && entries.length < count; entry = entry.next) {
      entries.push(entry);
    }
    return entries;
  }
}

export class RankedRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #heap = new Heap<Entry>();
  readonly #rank: (entry: Entry, lastUse: number) => number;
  readonly #dependsOnUses: boolean;
  #useCount = 0;

  /**
   * @param dependsOnUses - whether a use changes the rank of an entry. If not, picks alternate between the two
   * entries with the lowest ranks, because each pick avoids the exit address of the previous pick. So `upcoming` then
   * returns only these two.
   */
  constructor(rank: (entry: Entry, lastUse: number) => number, dependsOnUses = true) {
    this.#rank = rank;
    this.#dependsOnUses = dependsOnUses;
  }

  get size(): number {
    return this.#heap.size;
  }

  add(entry: Entry): void {
    this.used(entry);
  }

  remove(entry: Entry): void {
    this.#heap.remove(entry);
  }

  used(entry: Entry): void {
    this.#useCount += 1;
    entry.lastUse = this.#useCount;
    this.rankChanged(entry);
  }

  rankChanged(entry: Entry): void {
    this.#heap.update(entry, this.#rank(entry, entry.lastUse));
  }

  pick(check: PickCheck<Entry>): Entry | undefined {
    const { first } = this.#heap;
    return first === undefined || check.fit(first) === FITS ? first : this.#search(check);
  }

  upcoming(count: number): readonly Entry[] {
    return this.#heap.smallest(this.#dependsOnUses ? count : Math.min(2, count));
  }

  #search(check: PickCheck<Entry>): Entry | undefined {
    let secondChoice: Entry | undefined;
    let secondChoices = 0;
    const unfit: Entry[] = [];
    const found = this.#heap.firstThat((entry) => {
      const fit = check.fit(entry);
      if (fit === FITS) return true;
      if (fit !== SECOND_CHOICE) {
        unfit.push(entry);
        return false;
      }
      secondChoice ??= entry;
      secondChoices += 1;
      return secondChoices > MAX_SECOND_CHOICES;
    });
    if (found !== undefined && unfit.length > MAX_UNFIT_AHEAD) for (const entry of unfit) this.used(entry);
    return secondChoices > MAX_SECOND_CHOICES ? secondChoice : (found ?? secondChoice);
  }
}

/** An array without order. A pick takes a random entry, or the better of two random entries. */
export class RandomRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #entries: Entry[] = [];
  readonly #random: Random;
  readonly #cost: ((entry: Entry, now: number) => number) | undefined;
  #decided: Entry[] = [];
  #lastUsed: Entry | undefined;

  /** @param cost - if present, such as a latency, a pick chooses two random entries and returns the one with the lower cost. */
  constructor(random: Random, cost?: (entry: Entry, now: number) => number) {
    this.#random = random;
    this.#cost = cost;
  }

  get size(): number {
    return this.#entries.length;
  }

  add(entry: Entry): void {
    entry.arrayIndex = this.#entries.length;
    this.#entries.push(entry);
  }

  remove(entry: Entry): void {
    if (this.#decided.length > 0) this.#decided = this.#decided.filter((other) => other !== entry);
    const last = this.#entries.pop();
    if (last === undefined || last === entry) return;
    this.#entries[entry.arrayIndex] = last;
    last.arrayIndex = entry.arrayIndex;
  }

  used(entry: Entry): void {
    this.#lastUsed = entry;
    const index = this.#decided.indexOf(entry);
    if (index >= 0) this.#decided.splice(index, 1);
  }

  rankChanged(): void {} // no-op: the array has no order, and each pick computes the costs again

  pick(check: PickCheck<Entry>): Entry | undefined {
    return this.#decided.find((entry) => check.fit(entry) === FITS) ?? this.#draw(check);
  }

  upcoming(count: number, now: number): readonly Entry[] {
    while (this.#decided.length < count) {
      const last = this.#decided.at(-1) ?? this.#lastUsed; // so that no entry is picked twice in a row
      const entry = this.#draw({ now, fit: (other) => (other === last ? SECOND_CHOICE : FITS) });
      if (entry === undefined) break;
      this.#decided.push(entry);
    }
    return this.#decided.slice(0, count);
  }

  #draw(check: PickCheck<Entry>): Entry | undefined {
    const size = this.#entries.length;
    const one = randomFit(this.#entries, 0, size, check, this.#random);
    if (one === undefined || this.#cost === undefined) return one;
    const other = randomFit(this.#entries, 0, size, check, this.#random);
    if (other === undefined) return one;
    return this.#cost(other, check.now) < this.#cost(one, check.now) ? other : one;
  }
}

/**
 * Rounds in random order. Within a round, no entry is picked twice while another entry fits. The array has two parts: first the
 * entries not yet picked in this round, then the entries already picked. `upcoming` fixes the order of some entries at the end of
 * the first part. The next pick takes the last entry of the first part. An entry that leaves and returns within a round, for
 * example because its member was full, is not picked twice in the round.
 */
export class ShuffleRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #entries: Entry[] = [];
  readonly #random: Random;
  #remaining = 0;
  /** How many entries at the end of the first part have an order that `upcoming` has chosen and the next picks keep. */
  #decided = 0;
  #round = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  get size(): number {
    return this.#entries.length;
  }

  add(entry: Entry): void {
    this.#put(entry, this.#entries.length);
    if (entry.lastUse === this.#round) return;
    this.#swap(entry, this.#remaining);
    this.#remaining += 1;
    this.#decided = 0;
  }

  remove(entry: Entry): void {
    if (entry.arrayIndex < this.#remaining) this.#markPicked(entry);
    this.#swap(entry, this.#entries.length - 1);
    this.#entries.pop();
  }

  used(entry: Entry): void {
    if (this.#remaining === 0) this.#startRound();
    if (entry.arrayIndex >= this.#remaining) return; // already picked in this round
    entry.lastUse = this.#round;
    this.#markPicked(entry);
  }

  rankChanged(): void {} // no-op, because the order is random

  pick(check: PickCheck<Entry>): Entry | undefined {
    if (this.#remaining === 0) this.#startRound();
    const remaining = this.#remaining;
    for (let index = remaining - 1; index >= remaining - this.#decided; index -= 1) {
      const entry = this.#entries[index];
      if (entry !== undefined && check.fit(entry) === FITS) return entry;
    }
    const next = randomFit(this.#entries, 0, remaining, check, this.#random);
    if (next !== undefined) return next;
    const again = randomFit(this.#entries, remaining, this.#entries.length, check, this.#random);
    if (again !== undefined && remaining > MAX_UNFIT_AHEAD) this.#remaining = this.#decided = 0; // ends the round
    return again;
  }

  upcoming(count: number): readonly Entry[] {
    if (this.#remaining === 0) this.#startRound();
    const size = Math.min(count, this.#remaining);
    for (; this.#decided < size; this.#decided += 1) {
      const last = this.#remaining - this.#decided - 1;
      const entry = this.#entries[randomBelow(this.#random, last + 1)];
      if (entry !== undefined) this.#swap(entry, last);
    }
    return this.#entries.slice(this.#remaining - size, this.#remaining).reverse();
  }

  #markPicked(entry: Entry): void {
    this.#remaining -= 1;
    this.#decided = Math.max(0, this.#decided - 1);
    this.#swap(entry, this.#remaining);
  }

  #startRound(): void {
    this.#round += 1;
    this.#remaining = this.#entries.length;
    this.#decided = 0;
  }

  #swap(entry: Entry, index: number): void {
    const other = this.#entries[index];
    if (other === undefined) return;
    this.#put(other, entry.arrayIndex);
    this.#put(entry, index);
  }

  #put(entry: Entry, index: number): void {
    this.#entries[index] = entry;
    entry.arrayIndex = index;
  }
}

const MAX_RANDOM_TRIES = 8;
/**
 * Step widths of the search. A prime step that does not divide the size of the array visits every index exactly once. A large
 * step quickly leaves a series of adjacent entries that do not fit.
 */
const STRIDES = [7_919, 104_729] as const;

/**
 * A random entry that fits, with an index from `from` to `to` - 1. If a share p of the entries fits, the search checks about 1/p
 * entries.
 */
function randomFit<Entry>(
  entries: readonly Entry[],
  from: number,
  to: number,
  check: PickCheck<Entry>,
  random: Random,
): Entry | undefined {
  const count = to - from;
  const start = randomBelow(random, count);
  const stride = count % STRIDES[0] === 0 ? STRIDES[1] : STRIDES[0];
  const tries = Math.min(MAX_RANDOM_TRIES, count);
  let secondChoice: Entry | undefined;
  let secondChoices = 0;
  for (let step = 0; step < tries + count; step += 1) {
    const offset = step < tries ? randomBelow(random, count) : (start + step * stride) % count;
    const entry = entries[from + offset];
    if (entry === undefined) break;
    const fit = check.fit(entry);
    if (fit === FITS) return entry;
    if (fit !== SECOND_CHOICE) continue;
    secondChoice ??= entry;
    // The random tries may find the same SECOND_CHOICE several times, so a few entries are all searched.
    if (count > MAX_SECOND_CHOICES) secondChoices += 1;
    if (secondChoices > MAX_SECOND_CHOICES) break;
  }
  return secondChoice;
}
