/** Random: an array without order. A pick takes a random entry, or the better of two random entries. */
import { type Random, randomBelow } from '../../core/random.ts';
import {
  FITS,
  MAX_SECOND_CHOICES,
  type PickCheck,
  type Rotation,
  type RotationEntry,
  SECOND_CHOICE,
} from './rotation.ts';

/** Number of random indexes that a pick tries before it searches the whole array. */
const MAX_RANDOM_TRIES = 8;
/**
 * Step widths of the search. A prime step that does not divide the size of the array visits every index exactly once. A large
 * step quickly leaves a series of adjacent entries that do not fit.
 */
const STRIDES = [7_919, 104_729] as const;

export class RandomRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #entries: Entry[] = [];
  readonly #random: Random;
  readonly #cost: ((entry: Entry, now: number) => number) | undefined;
  #decided: Entry[] = [];
  #lastUsed: Entry | undefined;

  /**
   * @param cost - returns a number that is lower for a better entry, such as a latency. If present, a pick chooses two
   *   random entries and returns the one with the lower number.
   */
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
    if (one === undefined || size < 2 || this.#cost === undefined) return one;
    const other = randomFit(this.#entries, 0, size, check, this.#random);
    if (other === undefined || other === one) return one;
    return this.#cost(other, check.now) < this.#cost(one, check.now) ? other : one;
  }
}

/**
 * A random entry that fits, with an index from `from` to `to` - 1. If a share p of the entries fits, the search checks about 1/p
 * entries.
 */
export function randomFit<Entry>(
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
    // The random tries may find the same SECOND_CHOICE several times. With few entries, these finds do not count, so
    // that the pick still searches the whole array.
    if (step >= tries || count > MAX_SECOND_CHOICES) secondChoices += 1;
    if (secondChoices > MAX_SECOND_CHOICES) break;
  }
  return secondChoice;
}
