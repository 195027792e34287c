/**
 * One replica's estimate of the store's time. An answer contains the store's time at some moment between the sending of
 * the command and the arrival of the answer. So each answer gives a lower and an upper bound. The fastest recent answer
 * gives the closest bounds.
 */

interface Sample {
  readonly storeAt: number;
  readonly sentAt: number;
  readonly receivedAt: number;
}

/** Older answers are ignored, because two clocks drift apart. */
const MAX_AGE_MS = 60_000;
const KEPT_SAMPLES = 16;
/** The store reports whole milliseconds, so its real time may be up to 1 ms later. */
const CUT_MS = 1;
/**
 * A larger difference than this, in ms, between the store's time and the expected time means that someone set the
 * store's clock. Drift causes smaller differences.
 */
const STEP_MS = 100;
const DRIFT = 1e-3;

export class StoreClock {
  readonly #elapsed: () => number;
  /** The latest answers, in order of arrival. */
  #samples: readonly Sample[] = [];
  #best: Sample | undefined;

  /** @param elapsed - returns the ms since a fixed moment. Also counts while the machine is suspended. */
  constructor(elapsed: () => number) {
    this.#elapsed = elapsed;
  }

  /** Returns the current moment. Call it when you send a command, and pass the result to `record` as `sentAt`. */
  elapsed(): number {
    return this.#elapsed();
  }

  /**
   * Records an answer. Returns whether the store's clock was set since the last answer. If so, drops all earlier
   * answers.
   */
  record(storeAt: number, sentAt: number): boolean {
    const receivedAt = this.#elapsed();
    const wasSet = this.#isStep(storeAt, sentAt, receivedAt);
    const isRecent = (sample: Sample) => receivedAt - sample.receivedAt < MAX_AGE_MS;
    const kept = wasSet ? [] : this.#samples.filter(isRecent).slice(1 - KEPT_SAMPLES);
    this.#samples = [...kept, { storeAt, sentAt, receivedAt }];
    this.#best = this.#samples.reduce((best, next) => (tripMs(next) < tripMs(best) ? next : best));
    return wasSet;
  }

  /** The latest possible time of the store, in epoch ms; undefined before the first answer. */
  atMost(): number | undefined {
    const best = this.#best;
    return best && best.storeAt + CUT_MS + (this.#elapsed() - best.sentAt);
  }

  /** The earliest possible time of the store, in epoch ms; undefined before the first answer. */
  atLeast(): number | undefined {
    const best = this.#best;
    return best && best.storeAt + (this.#elapsed() - best.receivedAt);
  }

  #isStep(storeAt: number, sentAt: number, receivedAt: number): boolean {
    const best = this.#best;
    if (best === undefined) return false;
    const toleranceMs = STEP_MS + DRIFT * (receivedAt - best.receivedAt);
    const earliest = best.storeAt + (sentAt - best.receivedAt) - toleranceMs;
    const latest = best.storeAt + CUT_MS + (receivedAt - best.sentAt) + toleranceMs;
    return storeAt < earliest || storeAt > latest;
  }
}

function tripMs({ sentAt, receivedAt }: Sample): number {
  return receivedAt - sentAt;
}
