/**
 * What the dialer has learned from the members of one source: credentials, forward mode, pipelining, latency and
 * opening times.
 */
import type { Clock } from '../core/clock.ts';
import { type SourceAccess, SourceCredentials, type SourceFault } from './credentials.ts';
import type { ForwardMode } from './dial.ts';
import { ForwardModeMemory } from './forward-mode.ts';
import { LatencyEstimator, type LatencySample } from './latency.ts';
import { OpeningTimes } from './opening-times.ts';
import { type HandshakeSetting, Pipelining } from './pipelining.ts';

/** How the dialer uses the members of one source. */
export interface SourceSettings extends SourceAccess {
  /**
   * The forward mode to try first for plain HTTP requests: `absolute` if most members refuse CONNECT (free product,
   * label `http`).
   */
  readonly forwardMode: ForwardMode;
  readonly handshake: HandshakeSetting;
}

export interface SourceMemoryParts {
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
