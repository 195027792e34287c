/**
 * Counts that are written on the hot path and read once a scrape: a map look-up for each label, and nothing is made.
 *
 * prom-client hashes and validates the labels of every increment, which is fine at a scrape and too much at a tunnel.
 */
import { Counter, type Registry } from 'prom-client';

export interface FastCounterOptions<Label extends string> {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly Label[];
  readonly registry: Registry;
}

interface Count<Label extends string> {
  readonly labels: Record<Label, string>;
  pending: number;
}

/** Where the values of some labels lead: a map for the next label, at the last one the count itself. */
interface Branch<Label extends string> {
  readonly next: Map<string, Branch<Label>>;
  count: Count<Label> | undefined;
}

export class FastCounter<Label extends string> {
  readonly #names: readonly Label[];
  readonly #root: Branch<Label> = makeBranch();
  readonly #counts: Count<Label>[] = [];

  constructor({ name, help, labels, registry }: FastCounterOptions<Label>) {
    this.#names = labels;
    const tally = this;
    new Counter({
      name,
      help,
      labelNames: [...labels],
      registers: [registry],
      collect() {
        tally.#pourInto(this);
      },
    });
  }

  /** @param values - the labels' values, in the order of `labels`; from closed sets. */
  add(amount: number, first: string, second?: string, third?: string): void {
    let branch = follow(this.#root, first);
    if (second !== undefined) branch = follow(branch, second);
    if (third !== undefined) branch = follow(branch, third);
    branch.count ??= this.#makeCount([first, second, third]);
    branch.count.pending += amount;
  }

  #makeCount(values: readonly (string | undefined)[]): Count<Label> {
    const pairs = this.#names.map((name, at) => [name, values[at] ?? ''] as const);
    const count = { labels: Object.fromEntries(pairs) as Record<Label, string>, pending: 0 };
    this.#counts.push(count);
    return count;
  }

  #pourInto(counter: Counter<Label>): void {
    for (const count of this.#counts) {
      counter.inc(count.labels, count.pending);
      count.pending = 0;
    }
  }
}

function makeBranch<Label extends string>(): Branch<Label> {
  return { next: new Map(), count: undefined };
}

function follow<Label extends string>(branch: Branch<Label>, value: string): Branch<Label> {
  const known = branch.next.get(value);
  if (known !== undefined) return known;
  const made = makeBranch<Label>();
  branch.next.set(value, made);
  return made;
}
