/**
 * In which form a plain HTTP request goes through the HTTP members of one source: inside a CONNECT, or in absolute form.
 *
 * CONNECT is preferred: the member then cannot touch the request, and its own errors cannot be taken for the target's.
 * Some members CONNECT only to port 443, or not at all; that is learned from the first that says so.
 */
import type { Clock } from '../core/clock.ts';

/** `direct`: as to the target itself. `absolute`: as to a proxy. */
export type ForwardMode = 'direct' | 'absolute';

/** Members that refused in a row before a source known to CONNECT is believed to have stopped doing so. */
const REFUSERS_OF_A_CHANGED_SOURCE = 3;
/** After so long a source that refused is asked again. */
const RELEARN_MS = 10 * 60_000;

export class ForwardModeMemory {
  readonly #clock: Clock;
  readonly #initial: ForwardMode;
  #known: 'nothing' | ForwardMode = 'nothing';
  #absoluteSince = 0;
  readonly #refusedBy = new Set<string>();

  /** @param initial - `absolute` for members of which most do not CONNECT (free product, label `http`): then nothing is learned. */
  constructor(clock: Clock, initial: ForwardMode) {
    this.#clock = clock;
    this.#initial = initial;
  }

  /** The form to start with. */
  get current(): ForwardMode {
    if (this.#known === 'absolute' && this.#clock.monotonic() - this.#absoluteSince > RELEARN_MS) {
      this.#known = 'nothing';
    }
    return this.#known === 'nothing' ? this.#initial : this.#known;
  }

  /** A member took CONNECT for a plain HTTP request. */
  connectAccepted(): void {
    this.#known = 'direct';
    this.#refusedBy.clear();
  }

  /** A member refused it. @returns whether to try absolute form with that very member. */
  connectRefused(member: string): boolean {
    this.#refusedBy.add(member);
    if (this.#known === 'direct' && this.#refusedBy.size < REFUSERS_OF_A_CHANGED_SOURCE) return false;
    this.#known = 'absolute';
    this.#absoluteSince = this.#clock.monotonic();
    return true;
  }
}
