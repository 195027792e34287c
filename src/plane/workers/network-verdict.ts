/**
 * Whether our own network is down, where several processes judge it, each by what it dials itself.
 *
 * One that finds nobody answering is believed unless another had an answer lately; and as soon as anyone has one, those that
 * judged otherwise are told.
 */
import type { Clock } from '../../core/clock.ts';

export interface NetworkVerdictOptions {
  readonly clock: Clock;
  /** How long ago an answer may have been to speak against a verdict: about as long as it takes to miss one. */
  readonly freshMs: () => number;
  /** This judge's network is up after all: somebody answered elsewhere. */
  readonly reassure: (judge: number) => void;
  /** The verdict of all of them changed. */
  readonly onJudged: (down: boolean) => void;
}

export class NetworkVerdict {
  readonly #options: NetworkVerdictOptions;
  /** Judges that say it is down. */
  readonly #doubting = new Set<number>();
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(options: NetworkVerdictOptions) {
    this.#options = options;
  }

  /** Somebody out there answered, whoever asked. */
  answered(): void {
    this.#answeredAt = this.#options.clock.monotonic();
    if (this.#doubting.size === 0) return;
    for (const judge of this.#doubting) this.#options.reassure(judge);
    this.#doubting.clear();
    this.#options.onJudged(false);
  }

  judged(judge: number, down: boolean): void {
    if (!down) {
      this.#cleared(judge);
      return;
    }
    const { clock, freshMs, reassure, onJudged } = this.#options;
    if (clock.monotonic() - this.#answeredAt <= freshMs()) {
      reassure(judge);
      return;
    }
    this.#doubting.add(judge);
    if (this.#doubting.size === 1) onJudged(true);
  }

  /** The judge has ended: its verdict goes with it. */
  gone(judge: number): void {
    this.#cleared(judge);
  }

  #cleared(judge: number): void {
    if (this.#doubting.delete(judge) && this.#doubting.size === 0) this.#options.onJudged(false);
  }
}
