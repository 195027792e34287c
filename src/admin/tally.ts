/**
 * Counts that are written on the hot path and read once a scrape: one map look-up each, labels are made once.
 *
 * prom-client hashes and validates the labels of every increment, which is fine at a scrape and too much at a tunnel.
 */
import { Counter, type Registry } from 'prom-client';

export interface TallyOptions<Label extends string> {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly Label[];
  readonly registry: Registry;
}

interface Count<Label extends string> {
  readonly labels: Record<Label, string>;
  pending: number;
}

const SEPARATOR = '\u0000';

export class Tally<Label extends string> {
  readonly #names: readonly Label[];
  readonly #counts = new Map<string, Count<Label>>();

  constructor({ name, help, labels, registry }: TallyOptions<Label>) {
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
    const key =
      third === undefined
        ? second === undefined
          ? first
          : first + SEPARATOR + second
        : first + SEPARATOR + second + SEPARATOR + third;
    const count = this.#counts.get(key);
    if (count === undefined) this.#counts.set(key, this.#makeCount(amount, key));
    else count.pending += amount;
  }

  #makeCount(pending: number, key: string): Count<Label> {
    const values = key.split(SEPARATOR);
    const pairs = this.#names.map((name, at) => [name, values[at] ?? ''] as const);
    return { labels: Object.fromEntries(pairs) as Record<Label, string>, pending };
  }

  #pourInto(counter: Counter<Label>): void {
    for (const count of this.#counts.values()) {
      counter.inc(count.labels, count.pending);
      count.pending = 0;
    }
  }
}
