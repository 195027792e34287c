/** A source of randomness, handed in so that a test can repeat it: a number from 0 up to but not including 1. */
export type Random = () => number;

export const systemRandom: Random = () => Math.random();

/** A whole number from 0 to `below` - 1. */
export function randomBelow(random: Random, below: number): number {
  return Math.floor(random() * below);
}

/** A random order of `items`, as a new list. */
export function shuffled<T>(random: Random, items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, place: random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item);
}
