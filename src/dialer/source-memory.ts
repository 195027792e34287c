/**
 * Keeps what the dialer has learned from the members of one source: credentials, forward mode, pipelining, latency and
 * opening times.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { ForwardMode } from './contract.ts';
import { type SourceAccess, SourceCredentials, type SourceFault } from './credentials.ts';
import { ForwardModeMemory } from './forward-mode.ts';
import { type HandshakeSetting, Pipelining } from './pipelining.ts';

export interface SourceSettings extends SourceAccess {
  /**
   * What to try first. `absolute` if most members refuse CONNECT, as those of the free product with the label `http`.
   */
  readonly forwardMode: ForwardMode;
  readonly handshake: HandshakeSetting;
}

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

  constructor(
    source: string,
    settings: SourceSettings,
    clock: Clock,
    onSourceFault: (fault: SourceFault) => void,
  ) {
    this.settings = settings;
    this.#clock = clock;
    this.credentials = new SourceCredentials(source, settings, clock, onSourceFault);
    this.forwardMode = new ForwardModeMemory(clock, settings.forwardMode);
    this.opening = new OpeningTimes(clock);
    this.pipelining = new Pipelining(clock, settings.handshake);
  }

  get worked(): boolean {
    return this.#clock.monotonic() - this.#acceptedAt <= WORKED_MS;
  }

  recordAccepted(sample: LatencySample): void {
    this.#acceptedAt = sample.at;
    this.latency.add(sample);
  }
}

/** Common proxies wait longer than this for the first request. */
export const MAX_KEEP_MS = 10_000;
/** Then noria assumes that all members of the source close unused connections. */
export const MIN_CLOSING_MEMBERS = 3;
/** Of the time after which members close an unused connection. */
const KEEP_SHARE = 0.8;
const RELEARN_MS = 10 * 60_000;
const MAX_MEMBERS = 16;
const SAMPLE_WEIGHT = 0.1;
/** An old minimum fades, because the members of a source change. */
const MIN_GROWTH = 1.02;

export class OpeningTimes {
  /** A moving average in ms. */
  averageMs: number | undefined;
  /** Unlike the average, it hardly depends on the load of this machine. */
  minMs = Number.POSITIVE_INFINITY;
  /** How long a connection was unused when the member closed it. */
  readonly #closings: AgedMap<string, number>;

  constructor(clock: Clock) {
    this.#closings = new AgedMap(clock, RELEARN_MS, MAX_MEMBERS);
  }

  opened(ms: number): void {
    this.averageMs =
      this.averageMs === undefined ? ms : this.averageMs + SAMPLE_WEIGHT * (ms - this.averageMs);
    this.minMs = Math.min(ms, this.minMs * MIN_GROWTH);
  }

  closedUnused(member: string, afterMs: number): void {
    this.#closings.set(member, afterMs);
  }

  get keepMs(): number {
    if (this.#closings.size < MIN_CLOSING_MEMBERS) return MAX_KEEP_MS;
    const sorted = this.#closings.values().sort(ascending);
    return Math.min(MAX_KEEP_MS, KEEP_SHARE * quantile(sorted, 0.5));
  }
}

export const MIN_SAMPLES = 20;
/** The maximum number of samples to keep: a few for each member of a typical pool. */
const MAX_SAMPLES = 256;
/** Each computation sorts all samples, which takes more CPU time than a dial. */
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
  readonly ms: number;
  readonly at: number;
}

/**
 * The 95th percentile counts only the faster half of the members: if slow ones counted, long times would look normal.
 */
export class LatencyEstimator {
  readonly #samples: LatencySample[] = [];
  #nextIndex = 0;
  #computedAt = Number.NEGATIVE_INFINITY;
  /** Computed at most once a second. Undefined while there are too few samples. */
  profile: LatencyProfile | undefined;

  add(sample: LatencySample): void {
    this.#samples[this.#nextIndex] = sample;
    this.#nextIndex = (this.#nextIndex + 1) % MAX_SAMPLES;
    if (this.#samples.length < MIN_SAMPLES || sample.at - this.#computedAt < RECOMPUTE_INTERVAL_MS) return;
    this.#computedAt = sample.at;
    this.profile = profileOf(this.#samples, sample.at - MAX_AGE_MS);
  }
}

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
