/**
 * Counters and histograms that are updated for every connection, and read once per scrape.
 *
 * prom-client validates and hashes the labels at every update, which takes at least 0.5 µs. Here an update of a counter
 * is one map lookup per label, and an update of a histogram is one comparison per bucket.
 */
import { Counter, type Registry } from 'prom-client';

interface FastCounterOptions {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
  readonly registry: Registry;
}

/**
 * A counter with labels. At each scrape, the counts since the previous scrape are added to a counter of prom-client.
 */
export class FastCounter {
  readonly #root = new LabelNode([]);

  constructor({ name, help, labels, registry }: FastCounterOptions) {
    const root = this.#root;
    new Counter({
      name,
      help,
      labelNames: [...labels],
      registers: [registry],
      collect() {
        for (const { values, pending } of root.takePending()) this.labels(...values).inc(pending);
      },
    });
  }

  /**
   * @param amount - how much to add to the count. The further arguments are the label values in the order of `labels`. Each label
   * must have a closed set of values.
   */
  add(amount: number, first: string, second?: string, third?: string): void {
    let node = this.#root.child(first);
    if (second !== undefined) node = node.child(second);
    if (third !== undefined) node = node.child(third);
    node.pending += amount;
  }
}

/** A node in the tree of label values, which has one level per label. The leaves contain the counts. */
class LabelNode {
  /** The label values on the path from the root to this node. */
  readonly values: readonly string[];
  /** The count since the last scrape. */
  pending = 0;
  readonly #children = new Map<string, LabelNode>();
  /** The child that the previous call of `child` returned. Most calls ask for the same child again. */
  #latest: { readonly value: string; readonly child: LabelNode } | undefined;

  constructor(values: readonly string[]) {
    this.values = values;
  }

  child(value: string): LabelNode {
    if (this.#latest?.value === value) return this.#latest.child;
    let child = this.#children.get(value);
    if (child === undefined) {
      child = new LabelNode([...this.values, value]);
      this.#children.set(value, child);
    }
    this.#latest = { value, child };
    return child;
  }

  /** Yields the label values and the count of every leaf below this node, and sets each count to 0. */
  *takePending(): Generator<{ readonly values: readonly string[]; readonly pending: number }> {
    for (const child of this.#children.values()) {
      if (child.#children.size > 0) {
        yield* child.takePending();
      } else {
        yield { values: child.values, pending: child.pending };
        child.pending = 0;
      }
    }
  }
}

interface FastHistogramOptions {
  readonly name: string;
  readonly help: string;
  /** The upper bounds of the buckets in ascending order, without +Inf. */
  readonly buckets: readonly number[];
}

/** A histogram without labels. It renders itself, because prom-client offers no way to import bucket counts. */
export class FastHistogram {
  readonly name: string;
  readonly #help: string;
  readonly #bounds: readonly number[];
  /** The number of observations in each bucket (not cumulative). The last bucket is +Inf. */
  readonly #counts: Float64Array;
  #sum = 0;

  constructor({ name, help, buckets }: FastHistogramOptions) {
    this.name = name;
    this.#help = help;
    this.#bounds = buckets;
    this.#counts = new Float64Array(buckets.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
  }

  /** Returns the metric in the Prometheus text format, version 0.0.4. */
  render(): string {
    const { name } = this;
    let count = 0;
    const buckets = [...this.#bounds, '+Inf'].map((bound, index) => {
      count += this.#counts[index] ?? 0;
      return `${name}_bucket{le="${bound}"} ${count}\n`;
    });
    return [
      `# HELP ${name} ${this.#help}\n# TYPE ${name} histogram\n`,
      ...buckets,
      `${name}_sum ${this.#sum}\n${name}_count ${count}\n`,
    ].join('');
  }
}
