/**
 * Repeats a measurement on several proxies in alternating rounds, so that other load on the machine affects all of them
 * in the same way. The median ignores single outliers.
 */
/** `ratio`: the median of the ratios of all rounds, not the ratio of the medians. */
export interface Figures<Name extends string> {
  readonly medians: Readonly<Record<Name, number>>;
  readonly ratio: number;
}

/** The number of rounds at the start that are not counted, because they warm up the compiler and the heap. */
const WARM_ROUNDS = 4;

/** Measures the subjects in rounds. The ratio is that of `first` to `second`. */
export async function measureInRounds<Name extends string, Subject>(
  subjects: Readonly<Record<Name, Subject>>,
  [first, second]: readonly [NoInfer<Name>, NoInfer<Name>],
  rounds: number,
  measure: (subject: Subject, name: NoInfer<Name>) => Promise<number>,
): Promise<Figures<Name>> {
  const names = Object.keys(subjects) as Name[];
  const figures = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Name, number[]>;
  for (let round = -WARM_ROUNDS; round < rounds; round += 1) {
    for (const name of names) figures[name].push(await measure(subjects[name], name));
  }
  return figuresOf(figures, [first, second], rounds);
}

/** Returns the figures of the last `rounds` rounds. */
export function figuresOf<Name extends string>(
  all: Readonly<Record<Name, readonly number[]>>,
  [first, second]: readonly [NoInfer<Name>, NoInfer<Name>],
  rounds: number,
): Figures<Name> {
  const counted = (name: Name) => all[name].slice(-rounds);
  const seconds = counted(second);
  const ratios = counted(first).map((figure, round) => figure / (seconds[round] ?? Number.NaN));
  const names = Object.keys(all) as Name[];
  const medians = Object.fromEntries(names.map((name) => [name, median(counted(name))]));
  return { medians: medians as Record<Name, number>, ratio: median(ratios) };
}

export function median(values: readonly number[]): number {
  return quantile(
    [...values].sort((a, b) => a - b),
    0.5,
  );
}

/** Returns the value below which this share of the sorted values lies; 0 for an empty list. */
export function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
