/**
 * The same measurement on several proxies in turn, again and again: whatever else the machine does meanwhile falls on all
 * of them alike, and the median forgets what fell on one.
 */
import type { Running } from './children.ts';

export type Subjects<Name extends string> = Readonly<Record<Name, Running>>;

/** `ratios` are to the last of the names: the median of the ratios of each round, not the ratio of the medians. */
export interface Figures<Name extends string> {
  readonly medians: Readonly<Record<Name, number>>;
  readonly ratio: number;
}

/** Not counted: the first rounds only warm up the compiler and the heap. */
const WARM_ROUNDS = 4;

/** `first` of the names is compared to `second`. */
export async function inTurn<Name extends string>(
  subjects: Subjects<Name>,
  [first, second]: readonly [NoInfer<Name>, NoInfer<Name>],
  rounds: number,
  measure: (subject: Running, name: NoInfer<Name>) => Promise<number>,
): Promise<Figures<Name>> {
  const names = Object.keys(subjects) as Name[]; // the record's own keys
  const figures = new Map<Name, number[]>(names.map((name) => [name, []]));
  for (let round = -WARM_ROUNDS; round < rounds; round += 1) {
    for (const name of names) {
      const figure = await measure(subjects[name], name);
      if (round >= 0) figures.get(name)?.push(figure);
    }
  }
  const of = (name: Name) => figures.get(name) ?? [];
  const ratios = of(first).map((figure, round) => figure / (of(second)[round] ?? Number.NaN));
  const medians = Object.fromEntries(names.map((name) => [name, median(of(name))])) as Record<Name, number>;
  return { medians, ratio: median(ratios) };
}

export function median(values: readonly number[]): number {
  return at(
    [...values].sort((a, b) => a - b),
    0.5,
  );
}

/** The value below which this share of the sorted ones lies; 0 where there is none. */
export function at(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
