/**
 * How long things took, as counts in buckets that grow by a constant factor: quantiles within about a tenth, a few
 * hundred bytes, one addition a record.
 */

/** Four buckets to each doubling. */
const BUCKETS_PER_OCTAVE = 4;
/** From 1 ms to more than a minute. */
const BUCKET_COUNT = 17 * BUCKETS_PER_OCTAVE;

export class LatencyHistogram {
  readonly #counts = new Uint32Array(BUCKET_COUNT);
  #total = 0;

  add(ms: number): void {
    const bucket = ms <= 1 ? 0 : Math.min(BUCKET_COUNT - 1, Math.floor(Math.log2(ms) * BUCKETS_PER_OCTAVE));
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#total += 1;
  }

  /** Ms that a share of `fraction` of the records did not exceed, to the middle of a bucket; undefined without records. */
  quantile(fraction: number): number | undefined {
    if (this.#total === 0) return undefined;
    const wanted = Math.max(1, Math.ceil(fraction * this.#total));
    let seen = 0;
    let bucket = 0;
    for (; bucket < BUCKET_COUNT - 1; bucket += 1) {
      seen += this.#counts[bucket] ?? 0;
      if (seen >= wanted) break;
    }
    return 2 ** ((bucket + 0.5) / BUCKETS_PER_OCTAVE);
  }

  reset(): void {
    this.#counts.fill(0);
    this.#total = 0;
  }
}
