/**
 * How long the members of one source usually take to open a way, and which of them are slow.
 *
 * The 95th percentile of the latest successes, counting only the faster half of the members: else slow members would
 * teach patience with slow members. Old samples fall out as new ones come, and all of them after a while.
 */

/** Fewer say nothing. */
export const MIN_SAMPLES = 20;
/** The latest successes that are looked at: some for each member of a usual pool. */
const SAMPLE_COUNT = 256;
/** The figure is worked out again no sooner: sorting all samples for each dial would cost more than the dial. */
const RECKON_EVERY_MS = 1_000;
const MAX_AGE_MS = 10 * 60_000;
const PERCENTILE = 0.95;

/** What the samples say. */
export interface LatencyProfile {
  /** Ms within which a good member answers nearly always. */
  readonly p95Ms: number;
  /** Members whose usual answer comes later than that, by far: no help beside a slow one. */
  readonly slowMembers: readonly string[];
}

/** By how much a member's median must pass the good ones' 95th percentile, and by how many ms at least. */
const SLOW_TIMES = 2;
const SLOW_MS = 100;

export interface LatencySample {
  readonly member: string;
  /** From the start of the attempt to the member's yes. */
  readonly ms: number;
  /** Monotonic. */
  readonly at: number;
}

export class LatencyEstimator {
  readonly #samples: LatencySample[] = [];
  #nextIndex = 0;
  #reckonedAt = Number.NEGATIVE_INFINITY;
  #habits: LatencyProfile | undefined;

  add(sample: LatencySample): void {
    this.#samples[this.#nextIndex] = sample;
    this.#nextIndex = (this.#nextIndex + 1) % SAMPLE_COUNT;
    if (this.#samples.length < MIN_SAMPLES || sample.at - this.#reckonedAt < RECKON_EVERY_MS) return;
    this.#reckonedAt = sample.at;
    this.#habits = profileOf(this.#samples, sample.at - MAX_AGE_MS);
  }

  /** undefined until enough is known. */
  get profile(): LatencyProfile | undefined {
    return this.#habits;
  }
}

/** From the samples since `sinceAt`; undefined when they are too few. */
export function profileOf(samples: readonly LatencySample[], sinceAt: number): LatencyProfile | undefined {
  const byMember = new Map<string, number[]>();
  let count = 0;
  for (const { member, ms, at } of samples) {
    if (at < sinceAt) continue;
    count += 1;
    const own = byMember.get(member);
    if (own === undefined) byMember.set(member, [ms]);
    else own.push(ms);
  }
  if (count < MIN_SAMPLES) return undefined;
  const members = [...byMember].map(([member, own]) => {
    const sorted = own.sort(ascending);
    return { member, sorted, median: quantile(sorted, 0.5) };
  });
  members.sort((a, b) => a.median - b.median);
  const faster = members.slice(0, Math.ceil(members.length / 2)).flatMap(({ sorted }) => sorted);
  const usualMs = quantile(faster.sort(ascending), PERCENTILE);
  const slowMs = Math.max(SLOW_MS, usualMs * SLOW_TIMES);
  const slow = members.filter(({ median }) => median > slowMs).map(({ member }) => member);
  return { p95Ms: usualMs, slowMembers: slow };
}

/** By nearest rank, of a sorted list that is not empty. */
function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
}

function ascending(a: number, b: number): number {
  return a - b;
}
