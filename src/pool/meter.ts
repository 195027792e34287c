/** A rate as seen lately: what happened counts less and less as time goes by. */

/** What happened so long ago weighs about a third. */
const MEMORY_MS = 30_000;

/** What happens a second, with an exponential memory. */
export class Meter {
  #amount = 0;
  #at = 0;

  /** `amount` happened at monotonic `now`. */
  add(amount: number, now: number): void {
    this.#amount = this.#left(now) + amount;
    this.#at = now;
  }

  perSecond(now: number): number {
    return (this.#left(now) * 1000) / MEMORY_MS;
  }

  #left(now: number): number {
    return this.#amount === 0 ? 0 : this.#amount * Math.exp((this.#at - now) / MEMORY_MS);
  }
}
