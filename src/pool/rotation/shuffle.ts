/**
 * Shuffle: rounds in random order. Within a round, no entry is picked twice while another entry fits. The array has two parts:
 * first the entries not yet picked in this round, then the entries already picked. `upcoming` fixes the order of some entries at
 * the end of the first part. The next pick takes the last entry of the first part. An entry that leaves and returns within a
 * round, for example because its member was full, is not picked twice in the round.
 */
import { type Random, randomBelow } from '../../core/random.ts';
import { randomFit } from './random.ts';
import { FITS, MAX_UNFIT_AHEAD, type PickCheck, type Rotation, type RotationEntry } from './rotation.ts';

export class ShuffleRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #entries: Entry[] = [];
  readonly #random: Random;
  #remaining = 0;
  /**
   * Number of entries whose order `upcoming` has already chosen, at the end of the first part. The next picks keep this
   * order.
   */
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
    if (other === undefined || other === entry) return;
    this.#put(other, entry.arrayIndex);
    this.#put(entry, index);
  }

  #put(entry: Entry, index: number): void {
    this.#entries[index] = entry;
    entry.arrayIndex = index;
  }
}
