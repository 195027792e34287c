/** A permit of the pace: the right to send one call to the service within USE_BY_MS. */
import { NoriaError } from '../core/faults.ts';
import type { WriteGate } from '../service/transport.ts';
import type { Moment } from '../state/moment.ts';
import type { PaceStore } from '../state/pace-file.ts';
import { USE_BY_MS } from './pace-rule.ts';

export class Permit implements WriteGate {
  readonly #store: PaceStore;
  readonly #ageMs: () => number;
  /** At least this time in ms had passed since the service received the previous call to the instance; undefined if unknown. */
  readonly sinceArrivalMs: number | undefined;
  /** `used`: noria sent the request. `expired`: the permit was too old, and noria did not send the request. */
  state: 'unused' | 'used' | 'expired' = 'unused';
  /** The moment at which the first byte of the answer arrived; undefined before. */
  answeredAt: Moment | undefined;

  /** @param ageMs - a stopwatch that started before noria recorded the call. */
  constructor(store: PaceStore, ageMs: () => number, sinceArrivalMs: number | undefined) {
    this.#store = store;
    this.#ageMs = ageMs;
    this.sinceArrivalMs = sinceArrivalMs;
  }

  /** @throws NoriaError pace-held if the permit is too old: another process may send a call soon. */
  beforeWrite(): void {
    const ageMs = this.#ageMs();
    if (this.state === 'unused' && ageMs < USE_BY_MS) {
      this.state = 'used';
      return;
    }
    this.state = 'expired';
    throw new NoriaError(
      'pace-held',
      `noria did not send the call: its permit is ${Math.round(ageMs)} ms old, and permits expire after ${USE_BY_MS} ms`,
      { context: { ms: Math.round(ageMs) } },
    );
  }

  answered(): void {
    this.answeredAt = this.#store.now();
  }
}
