/** How often clients send requests, in steps of five seconds. `add` runs for every request, so it must be fast. */
const RATE_STEP_MS = 5_000;
const RATE_STEPS = 60;
const MIN_RATE_MS = 60_000;
/** The first requests after a quiet time count as the rate of this time at least. */
const MIN_START_MS = 30_000;
/** A rate counts at least this number of requests, if five minutes have as many: so that it does not follow chance. */
const MIN_COUNTED = 20;

export class RequestRate {
  readonly #counts = new Uint32Array(RATE_STEPS);
  #step = 0;

  add(now: number): void {
    this.#advance(now);
    const at = this.#step % RATE_STEPS;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  /**
   * Of the last minute. If there were few, the rate of the gaps between those of up to five minutes: one request is no rate, and the second in
   * a minute is. After a quiet time, the rate since the first request.
   */
  perSecond(now: number): number {
    this.#advance(now);
    let ms = now - this.#step * RATE_STEP_MS;
    let count = 0;
    let sinceOldestMs = 0;
    let lately: number | undefined;
    for (let back = 0; back < RATE_STEPS; back += 1) {
      if (back > 0) ms += RATE_STEP_MS;
      const inStep = this.#counts[(this.#step - back + RATE_STEPS) % RATE_STEPS] ?? 0;
      count += inStep;
      if (inStep > 0) {
        if (lately !== undefined) return lately;
        sinceOldestMs = ms;
      }
      if (lately === undefined && ms >= MIN_RATE_MS && count >= MIN_COUNTED) lately = (count * 1_000) / ms;
    }
    return (Math.max(0, count - 1) * 1_000) / Math.max(MIN_START_MS, sinceOldestMs);
  }

  #advance(now: number): void {
    const step = Math.floor(now / RATE_STEP_MS);
    const passed = Math.min(RATE_STEPS, step - this.#step);
    for (let next = 1; next <= passed; next += 1) this.#counts[(step - passed + next) % RATE_STEPS] = 0;
    this.#step = Math.max(this.#step, step);
  }
}
