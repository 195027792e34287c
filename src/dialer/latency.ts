/**
 * How long the members of one source take to connect to a target, and which members are slow.
 *
 * The 95th percentile of the latest successes, of the faster half of the members only: otherwise slow members would make
 * slowness look normal. Old samples are replaced by new ones and ignored after ten minutes.
 */

/** With fewer samples nothing is known. */
export const MIN_SAMPLES = 20;
/** Size of the ring of samples: a few per member of a usual pool. */
const MAX_SAMPLES = 256;
/** Sorting all samples for every dial would cost more than the dial. */
const RECOMPUTE_INTERVAL_MS = 1_000;
const MAX_AGE_MS = 10 * 60_000;
const PERCENTILE = 0.95;
/** A member is slow if its median exceeds both this multiple of the percentile and this time. */
const SLOW_FACTOR = 2;
const SLOW_MS = 100;

export interface LatencyProfile {
  /** 95th percentile of the good members. */
  readonly p95Ms: number;
  readonly slowMembers: readonly string[];
}

export interface LatencySample {
  readonly member: string;
  /** From the start of the attempt to the member's acceptance. */
  readonly ms: number;
  /** Monotonic. */
  readonly at: number;
}

export class LatencyEstimator {
  readonly #samples: LatencySample[] = [];
  #nextIndex = 0;
  #computedAt = Number.NEGATIVE_INFINITY;
  #profile: LatencyProfile | undefined;

  add(sample: LatencySample): void {
    this.#samples[this.#nextIndex] = sample;
    this.#nextIndex = (this.#nextIndex + 1) % MAX_SAMPLES;
    if (this.#samples.length < MIN_SAMPLES || sample.at - this.#computedAt < RECOMPUTE_INTERVAL_MS) return;
    this.#computedAt = sample.at;
    this.#profile = profileOf(this.#samples, sample.at - MAX_AGE_MS);
  }

  /** Recomputed at most once a second; undefined until enough is known. */
  get profile(): LatencyProfile | undefined {
    return this.#profile;
  }
}

/** The profile of the samples since `sinceAt`; undefined if there are too few. */
export function profileOf(samples: readonly LatencySample[], sinceAt: number): LatencyProfile | undefined {
  const recent = samples.filter(({ at }) => at >= sinceAt);
  if (recent.length < MIN_SAMPLES) return undefined;
  const byMember = Map.groupBy(recent, ({ member }) => member);
  const members = [...byMember].map(([member, own]) => {
    const sorted = own.map(({ ms }) => ms).sort(ascending);
    return { member, sorted, median: quantile(sorted, 0.5) };
  });
  members.sort((a, b) => a.median - b.median);
  const faster = members.slice(0, Math.ceil(members.length / 2)).flatMap(({ sorted }) => sorted);
  const p95Ms = quantile(faster.sort(ascending), PERCENTILE);
  const slowMs = Math.max(SLOW_MS, p95Ms * SLOW_FACTOR);
  const slowMembers = members.filter(({ median }) => median > slowMs).map(({ member }) => member);
  return { p95Ms, slowMembers };
}

/** The nearest-rank quantile of a sorted, non-empty list. */
function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
}

function ascending(a: number, b: number): number {
  return a - b;
}
