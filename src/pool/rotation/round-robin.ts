/** Round-robin: a linked list in order of last use. The head is picked next; a picked entry moves to the end. */
import {
  FITS,
  MAX_SECOND_CHOICES,
  MAX_UNFIT_AHEAD,
  type PickCheck,
  type Rotation,
  type RotationEntry,
  SECOND_CHOICE,
} from './rotation.ts';

export class RoundRobin<Entry extends RotationEntry> implements Rotation<Entry> {
  #head: Entry | undefined;
  #tail: Entry | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(entry: Entry): void {
    this.#size += 1;
    this.#append(entry);
  }

  remove(entry: Entry): void {
    this.#size -= 1;
    this.#unlink(entry);
  }

  used(entry: Entry): void {
    if (entry === this.#tail) return;
    this.#unlink(entry);
    this.#append(entry);
  }

  rankChanged(): void {} // no-op, because the order depends only on the last use

  pick(check: PickCheck<Entry>): Entry | undefined {
    let secondChoice: Entry | undefined;
    let secondChoices = 0;
    let steps = 0;
    for (let entry = this.#head; entry !== undefined; entry = entry.next) {
      const fit = check.fit(entry);
      if (fit === FITS) {
        if (steps > MAX_UNFIT_AHEAD) this.#rotateTo(entry);
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

  #rotateTo(entry: Entry): void {
    const { previous } = entry;
    if (previous === undefined || this.#head === undefined || this.#tail === undefined) return;
    this.#tail.next = this.#head;
    this.#head.previous = this.#tail;
    this.#tail = previous;
    previous.next = undefined;
    this.#head = entry;
    entry.previous = undefined;
  }

  #append(entry: Entry): void {
    entry.previous = this.#tail;
    entry.next = undefined;
    if (this.#tail === undefined) this.#head = entry;
    else this.#tail.next = entry;
    this.#tail = entry;
  }

  #unlink(entry: Entry): void {
    if (entry.previous === undefined) this.#head = entry.next;
    else entry.previous.next = entry.next;
    if (entry.next === undefined) this.#tail = entry.previous;
    else entry.next.previous = entry.previous;
    entry.previous = undefined;
    entry.next = undefined;
  }
}
