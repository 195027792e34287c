/**
 * A histogram that is written on the hot path: one comparison a bucket, and no more. prom-client's own looks its labels up
 * for every observation, which takes thirty times as long; here there are none.
 */
import { Histogram, type Registry } from 'prom-client';

export interface SpreadOptions {
  readonly name: string;
  readonly help: string;
  /** Upper bounds, ascending; +Inf is added. */
  readonly buckets: readonly number[];
  readonly registry: Registry;
}

export class Spread extends Histogram {
  readonly #options: SpreadOptions;
  readonly #bounds: Float64Array;
  /** Observations in each bucket alone, not in those below it; the last one is +Inf. */
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(options: SpreadOptions) {
    const { name, help, buckets, registry } = options;
    super({ name, help, buckets: [...buckets], registers: [registry] });
    this.#options = options;
    this.#bounds = Float64Array.from(buckets);
    this.#counts = new Float64Array(buckets.length + 1);
  }

  add(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
  }

  /** What a scrape shows. prom-client's registry asks for it by this name, and so does its own `get`; its types know it not. */
  async getForPromString() {
    const { name, help, buckets } = this.#options;
    const value = (part: string, amount: number, labels: object = {}) => ({
      metricName: `${name}_${part}`,
      labels,
      sharedLabels: {},
      value: amount,
    });
    let count = 0;
    const bars = [...buckets, '+Inf'].map((le, bucket) => {
      count += this.#counts[bucket] ?? 0;
      return value('bucket', count, { le });
    });
    const values = [...bars, value('sum', this.#sum), value('count', count)];
    return { name, help, type: 'histogram', values, aggregator: 'sum' };
  }
}
