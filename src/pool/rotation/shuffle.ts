/**
 * Shuffle: rounds in random order. No entry is picked twice in a round while another one still fits.
 *
 * The array has two parts: first the entries whose turn is still to come in this round, then those that had it. At the end of
 * the first part are those whose order `upcoming` has decided; the last one is next. An entry
 * that leaves and comes back within a round (because its tunnels were full, for example) gets no second turn in it.
 */
import { type Random, randomBelow } from '../../core/random.ts';
import { randomFit } from './random.ts';
import { FITS, MAX_UNFIT_AHEAD, type PickCheck, type Rotation, type RotationEntry } from './rotation.ts';

/** Picks each entry once a round, in random order. */
export class ShuffleRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #entries: Entry[] = [];
  readonly #random: Random;
  /** Length of the first part of the array. */
  #toCome = 0;
  /** How many of them have their order. */
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
    if (entry.lastTurn === this.#round) return;
    this.#swap(entry, this.#toCome);
    this.#toCome += 1;
    this.#decided = 0;
  }

  remove(entry: Entry): void {
    if (entry.arrayIndex < this.#toCome) this.#endTurn(entry);
    this.#swap(entry, this.#entries.length - 1);
    this.#entries.pop();
  }

  used(entry: Entry): void {
    if (this.#toCome === 0) this.#startRound();
    if (entry.arrayIndex >= this.#toCome) return; // it had its turn, but no entry in the first part fitted
    entry.lastTurn = this.#round;
    this.#endTurn(entry);
  }

  rankChanged(): void {} // the order is random

  pick(check: PickCheck<Entry>): Entry | undefined {
    if (this.#toCome === 0) this.#startRound();
    const toCome = this.#toCome;
    for (let index = toCome - 1; index >= toCome - this.#decided; index -= 1) {
      const entry = this.#entries[index];
      if (entry !== undefined && check.fit(entry) === FITS) return entry;
    }
    const next = randomFit(this.#entries, 0, toCome, check, this.#random);
    if (next !== undefined) return next;
    const again = randomFit(this.#entries, toCome, this.#entries.length, check, this.#random);
    if (again !== undefined && toCome > MAX_UNFIT_AHEAD) this.#toCome = this.#decided = 0; // none of them fits: end the round
    return again;
  }

  /** Those of this round only. */
  upcoming(count: number): readonly Entry[] {
    if (this.#toCome === 0) this.#startRound();
    const size = Math.min(count, this.#toCome);
    for (; this.#decided < size; this.#decided += 1) {
      const last = this.#toCome - this.#decided - 1;
      const entry = this.#entries[randomBelow(this.#random, last + 1)];
      if (entry !== undefined) this.#swap(entry, last);
    }
    return this.#entries.slice(this.#toCome - size, this.#toCome).reverse();
  }

  /** Moves an entry of the first part to the second. */
  #endTurn(entry: Entry): void {
    this.#toCome -= 1;
    this.#decided = Math.max(0, this.#decided - 1);
    this.#swap(entry, this.#toCome);
  }

  #startRound(): void {
    this.#round += 1;
    this.#toCome = this.#entries.length;
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
