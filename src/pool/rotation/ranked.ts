/** Ranked: a heap that picks the entry with the lowest rank. */
import { Heap } from '../../core/heap.ts';
import {
  FITS,
  MAX_SECOND_CHOICES,
  MAX_UNFIT_AHEAD,
  type PickCheck,
  type Rotation,
  type RotationEntry,
  SECOND_CHOICE,
} from './rotation.ts';

export class RankedRotation<Entry extends RotationEntry> implements Rotation<Entry> {
  readonly #heap = new Heap<Entry>();
  readonly #rank: (entry: Entry, lastUse: number) => number;
  readonly #dependsOnUses: boolean;
  #useCount = 0;

  /**
   * @param rank - returns the rank of an entry. `lastUse` is the position of the entry's last use in the sequence of
   * all uses.
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
