/**
 * Whether our own network is down, when several processes each judge it by their own dials.
 *
 * A process that gets no answers is believed unless another process got one recently. As soon as any process gets an answer,
 * the processes that judged the network down are overruled.
 */
import type { Clock } from '../../core/clock.ts';

export interface NetworkVerdictOptions {
  readonly clock: Clock;
  /** How long an answer outweighs a process that gets none: about as long as an attempt may take. */
  readonly answerValidMs: () => number;
  /** The process is wrong: its network is up. */
  readonly overrule: (process: number) => void;
  readonly onChange: (down: boolean) => void;
}

export class NetworkVerdict {
  readonly #options: NetworkVerdictOptions;
  /** Processes that judge the network down. */
  readonly #saysDown = new Set<number>();
  #answeredAt = Number.NEGATIVE_INFINITY;

  constructor(options: NetworkVerdictOptions) {
    this.#options = options;
  }

  /** A member or the service answered one of the processes. */
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

  /** Forgets the judgement of this process, for example because it has exited. */
  remove(process: number): void {
    if (this.#saysDown.delete(process) && this.#saysDown.size === 0) this.#options.onChange(false);
  }
}
