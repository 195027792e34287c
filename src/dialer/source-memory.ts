/** What the dialer has learned from the members of one source: their credentials, forward mode and latency. */
import type { Clock } from '../core/clock.ts';
import { type SourceAccess, SourceCredentials, type SourceFault } from './credentials.ts';
import type { ForwardMode } from './dial.ts';
import { LatencyEstimator, type LatencySample } from './latency.ts';

/** How the dialer uses the members of one source. */
export interface SourceSettings extends SourceAccess {
  /** The first choice for plain HTTP requests: `absolute` where most members refuse CONNECT (free product, label `http`). */
  readonly forwardMode: ForwardMode;
}

export interface SourceMemoryParts {
  readonly clock: Clock;
  readonly onSourceFault: (fault: SourceFault) => void;
}

/** How long a success of one member speaks for the others. */
const WORKED_MS = 60_000;

export class SourceMemory {
  readonly settings: SourceSettings;
  readonly credentials: SourceCredentials;
  readonly forwardMode: ForwardModeMemory;
  readonly latency = new LatencyEstimator();
  readonly #clock: Clock;
  #acceptedAt = Number.NEGATIVE_INFINITY;

  constructor(source: string, settings: SourceSettings, parts: SourceMemoryParts) {
    const { clock } = parts;
    this.settings = settings;
    this.#clock = clock;
    this.credentials = new SourceCredentials(source, settings, parts);
    this.forwardMode = new ForwardModeMemory(clock, settings.forwardMode);
  }

  /** Whether a member of the source reached a target recently. */
  get worked(): boolean {
    return this.#clock.monotonic() - this.#acceptedAt <= WORKED_MS;
  }

  /** A member accepted an attempt. */
  recordAccepted(sample: LatencySample): void {
    this.#acceptedAt = sample.at;
    this.latency.add(sample);
  }
}

/** Members that must refuse CONNECT in a row before a source that accepted it is considered changed. */
const REFUSALS_OF_A_CHANGED_SOURCE = 3;
/** After this time in absolute form, CONNECT is tried again. */
const RELEARN_MS = 10 * 60_000;

/**
 * The forward mode for the HTTP members of one source.
 *
 * CONNECT is preferred: the member then cannot modify the request, and its own errors cannot be mistaken for the target's.
 * Some members accept CONNECT only to port 443, or not at all. noria learns this from their first refusal.
 */
export class ForwardModeMemory {
  readonly #clock: Clock;
  readonly #initial: ForwardMode;
  #learned: ForwardMode | undefined;
  #absoluteSince = 0;
  readonly #refusedBy = new Set<string>();

  /** @param initial - with `absolute` CONNECT is never tried, so nothing is learned. */
  constructor(clock: Clock, initial: ForwardMode) {
    this.#clock = clock;
    this.#initial = initial;
  }

  /** What to try first with the next member. */
  get current(): ForwardMode {
    if (this.#learned === 'absolute' && this.#clock.monotonic() - this.#absoluteSince > RELEARN_MS) {
      this.#learned = undefined;
    }
    return this.#learned ?? this.#initial;
  }

  /** A member accepted CONNECT for a plain HTTP request. */
  connectAccepted(): void {
    this.#learned = 'direct';
    this.#refusedBy.clear();
  }

  /** A member refused CONNECT. @returns whether to send the request to this member in absolute form. */
  connectRefused(member: string): boolean {
    this.#refusedBy.add(member);
    if (this.#learned === 'direct' && this.#refusedBy.size < REFUSALS_OF_A_CHANGED_SOURCE) return false;
    this.#learned = 'absolute';
    this.#absoluteSince = this.#clock.monotonic();
    return true;
  }
}
