/**
 * Keeps what the dialer has learned from the members of one source: credentials, forward mode, pipelining, latency and
 * opening times.
 */
import type { Clock } from '../core/clock.ts';
import { type SourceAccess, SourceCredentials, type SourceFault } from './credentials.ts';
import type { ForwardMode } from './dial.ts';
import { ForwardModeMemory } from './forward-mode.ts';
import { OpeningTimes } from './opening-times.ts';
import { type HandshakeSetting, Pipelining } from './pipelining.ts';

export interface SourceSettings extends SourceAccess {
  /**
   * The forward mode to try first for plain HTTP requests. `absolute` if most members refuse CONNECT: for example, the
   * members of the free product with the label `http`.
   */
  readonly forwardMode: ForwardMode;
  readonly handshake: HandshakeSetting;
}

interface SourceMemoryParts {
  readonly clock: Clock;
  readonly onSourceFault: (fault: SourceFault) => void;
}

/** How long the success of one member counts as evidence that the source works. */
const WORKED_MS = 60_000;

export class SourceMemory {
  readonly settings: SourceSettings;
  readonly credentials: SourceCredentials;
  readonly forwardMode: ForwardModeMemory;
  readonly pipelining: Pipelining;
  readonly opening: OpeningTimes;
  readonly latency = new LatencyEstimator();
  readonly #clock: Clock;
  #acceptedAt = Number.NEGATIVE_INFINITY;

  constructor(source: string, settings: SourceSettings, parts: SourceMemoryParts) {
    const { clock } = parts;
    this.settings = settings;
    this.#clock = clock;
    this.credentials = new SourceCredentials(source, settings, parts);
    this.forwardMode = new ForwardModeMemory(clock, settings.forwardMode);
    this.opening = new OpeningTimes(clock);
    this.pipelining = new Pipelining(clock, settings.handshake);
  }

  /** Whether a member of the source reached a target recently. */
  get worked(): boolean {
    return this.#clock.monotonic() - this.#acceptedAt <= WORKED_MS;
  }

  recordAccepted(sample: LatencySample): void {
    this.#acceptedAt = sample.at;
    this.latency.add(sample);
  }
}

/**
 * The minimum number of latency samples for computing their 95th percentile and for deciding which members are slow.
 */
export const MIN_SAMPLES = 20;
/** The maximum number of samples to keep: a few for each member of a typical pool. */
const MAX_SAMPLES = 256;
/**
 * The minimum time in ms between two computations of the 95th percentile. Each computation sorts all samples, which
 * takes more CPU time than a dial.
 */
const RECOMPUTE_INTERVAL_MS = 1_000;
const MAX_AGE_MS = 10 * 60_000;
const PERCENTILE = 0.95;
/** A member is slow if the median of its latencies exceeds both SLOW_MS and this multiple of `p95Ms`. */
const SLOW_FACTOR = 2;
const SLOW_MS = 100;

interface LatencyProfile {
  /** The 95th percentile of the latency of the faster half of the members. */
  readonly p95Ms: number;
  readonly slowMembers: readonly string[];
}

export interface LatencySample {
  readonly member: string;
  /** The time from the start of the attempt to the member's acceptance. */
  readonly ms: number;
  /** The monotonic moment at which noria took the sample. */
  readonly at: number;
}

/**
 * Measures how long the members of one source take to connect to a target, and which members are slow.
 *
 * The profile contains the 95th percentile of the times of the latest successful attempts. It counts only the faster
 * half of the members: if slow members counted, long times would look normal. Samples expire after ten minutes.
 */
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

  /** The current profile, computed at most once a second. Undefined while there are too few samples. */
  get profile(): LatencyProfile | undefined {
    return this.#profile;
  }
}

/** Returns the profile of the samples since `sinceAt`; undefined if there are too few. */
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
