/** Ids of members: opaque, short enough to read out, too many to guess. */
import { type Random, randomBelow } from '../core/random.ts';

const BASE = 36;
const DIGITS = 8;
const COUNT = BASE ** DIGITS;

/** An id that is not taken. */
export function freshId(random: Random, isTaken: (id: string) => boolean): string {
  let number = randomBelow(random, COUNT);
  for (;;) {
    const id = number.toString(BASE).padStart(DIGITS, '0');
    if (!isTaken(id)) return id;
    number = (number + 1) % COUNT;
  }
}
