/** What the dialer has learned about the members of one source, all of it from their own answers. */
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { AttemptContext } from './attempt.ts';
import { type SourceAccess, SourceCredentials, type SourceFault } from './credentials.ts';
import { type ForwardMode, ForwardModeMemory } from './forward-mode.ts';
import { LatencyEstimator } from './latency.ts';
import type { OpenSocket } from './member-socket.ts';

/** How the dialer is to speak to the members of one source. */
export interface SourceSettings extends SourceAccess {
  /** How plain HTTP requests begin: `absolute` where most members do not CONNECT (free product, label `http`). */
  readonly forwardMode: ForwardMode;
}

export interface SourceMemoryParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
  readonly onSourceFault: (fault: SourceFault) => void;
}

export class SourceMemory implements AttemptContext {
  readonly #settings: SourceSettings;
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly openSocket: OpenSocket;
  readonly credentials: SourceCredentials;
  readonly forwardMode: ForwardModeMemory;
  readonly latency = new LatencyEstimator();

  constructor(source: string, settings: SourceSettings, parts: SourceMemoryParts) {
    this.#settings = settings;
    this.clock = parts.clock;
    this.deadlines = parts.deadlines;
    this.openSocket = parts.openSocket;
    this.credentials = new SourceCredentials(source, settings, parts.onSourceFault);
    this.forwardMode = new ForwardModeMemory(parts.clock, settings.forwardMode);
  }

  /** Whether these settings would have led to the same memory. */
  isFor(settings: SourceSettings): boolean {
    const mine = this.#settings;
    return (
      isSameAuth(mine.auth, settings.auth) &&
      mine.instance === settings.instance &&
      mine.password?.reveal() === settings.password?.reveal() &&
      mine.neverInstance === settings.neverInstance &&
      mine.forwardMode === settings.forwardMode
    );
  }
}

function isSameAuth(a: SourceSettings['auth'], b: SourceSettings['auth']): boolean {
  if (typeof a === 'string' || typeof b === 'string') return a === b;
  return a.username === b.username && a.password.reveal() === b.password.reveal();
}
