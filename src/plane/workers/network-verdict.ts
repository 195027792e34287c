/**
 * Decides whether noria's own network is down. Several processes judge this, each from its own dials.
 *
 * If one process judges the network down, the verdict is `down`, unless another process got an answer recently. As soon
 * as any process gets an answer, the verdict is `up` for all processes.
 */
import type { Clock } from '../../core/clock.ts';

interface NetworkVerdictOptions {
  readonly clock: Clock;
  /**
   * For this time in ms after an answer, the verdict stays `up` even if a process judges the network down. The time is
   * about the duration of an attempt.
   */
  readonly answerValidMs: () => number;
  readonly overrule: (process: number) => void;
  readonly onChange: (down: boolean) => void;
}

export class NetworkVerdict {
  readonly #options: NetworkVerdictOptions;
  readonly #saysDown = new Set<number>();
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(options: NetworkVerdictOptions) {
    this.#options = options;
  }

  answered(): void {
    this.#answeredAt = this.#options.clock.monotonic();
    if (this.#saysDown.size === 0) return;
    for (const process of this.#saysDown) this.#options.overrule(process);
    this.#saysDown.clear();
    this.#options.onChange(false);
  }

  judged(process: number, down: boolean): void {
    if (!down) {
      this.remove(process);
      return;
    }
    const { clock, answerValidMs, overrule, onChange } = this.#options;
    if (clock.monotonic() - this.#answeredAt <= answerValidMs()) {
      overrule(process);
      return;
    }
    this.#saysDown.add(process);
    if (this.#saysDown.size === 1) onChange(true);
  }

  remove(process: number): void {
    if (this.#saysDown.delete(process) && this.#saysDown.size === 0) this.#options.onChange(false);
  }
}
