/** The right to send one call, granted by the pace for a short time. */
import { NoriaError } from '../core/faults.ts';
import type { WriteGate } from '../service/transport.ts';
import type { Moment } from '../state/moment.ts';
import type { PaceStore } from '../state/pace-file.ts';
import { USE_BY_MS } from './pace-rule.ts';

export class Permit implements WriteGate {
  readonly #store: PaceStore;
  readonly #ageMs: () => number;
  /** The service received noria's previous call to the instance at least this long ago; undefined: unknown. */
  readonly sinceArrivalMs: number | undefined;
  /** `used`: the request was sent. `expired`: the permit came too late, and the request was not sent. */
  state: 'unused' | 'used' | 'expired' = 'unused';
  /** When the answer began. */
  answeredAt: Moment | undefined;

  /** @param ageMs - a stopwatch that was started before the claim was written. */
  constructor(store: PaceStore, ageMs: () => number, sinceArrivalMs: number | undefined) {
    this.#store = store;
    this.#ageMs = ageMs;
    this.sinceArrivalMs = sinceArrivalMs;
  }

  /** @throws NoriaError pace-held when the permit is too old, because another process may send soon. */
  beforeWrite(): void {
    const ageMs = this.#ageMs();
    if (this.state === 'unused' && ageMs < USE_BY_MS) {
      this.state = 'used';
      return;
    }
    this.state = 'expired';
    throw new NoriaError(
      'pace-held',
      `the permit for a call is ${Math.round(ageMs)} ms old and expires after ${USE_BY_MS} ms`,
      { context: { ms: Math.round(ageMs) } },
    );
  }

  answered(): void {
    this.answeredAt = this.#store.now();
  }
}
