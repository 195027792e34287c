/**
 * A histogram of durations. Each bucket is 2^(1/4) times as wide as the one before, so a quantile is accurate to about
 * 10 %.
 */

/** Four buckets per doubling of the duration, from 1 ms to 131 s. */
const BUCKETS_PER_OCTAVE = 4;
export const BUCKET_COUNT = 17 * BUCKETS_PER_OCTAVE;

export class LatencyHistogram {
  readonly #counts = new Float64Array(BUCKET_COUNT);
  #total = 0;

  add(ms: number): void {
    const bucket = ms <= 1 ? 0 : Math.min(BUCKET_COUNT - 1, Math.floor(Math.log2(ms) * BUCKETS_PER_OCTAVE));
    this.#addTo(bucket, 1);
  }

  /** Adds the counts of all histograms in `stored`. `copyTo` has written these histograms one after the other. */
  addAll(stored: Uint32Array): void {
    for (const [index, count] of stored.entries()) {
      if (count > 0) this.#addTo(index % BUCKET_COUNT, count);
    }
  }

  copyTo(stored: Uint32Array, offset: number): void {
    stored.set(this.#counts, offset);
  }

  /**
   * Returns the quantile in ms: the middle of the bucket in which the quantile lies. Undefined when the histogram is
   * empty.
   * @param fraction - from 0 to 1: the share of durations that do not exceed the quantile.
   */
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

  #addTo(bucket: number, count: number): void {
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + count;
    this.#total += count;
  }
}
