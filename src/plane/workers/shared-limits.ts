/** The limits on connections of all listeners that workers share: one office of permits for each. */
import type { Clock } from '../../core/clock.ts';
import { type PermitOrder, PermitPool, type PermitRequest } from './connection-permits.ts';

/** A listener, by the id that all processes know it by. */
export interface LimitedListener {
  readonly id: number;
  /** Connections in all. */
  readonly limit: number;
}

export class SharedLimits {
  readonly #clock: Clock;
  readonly #say: (worker: number, listener: number, order: PermitOrder) => void;
  readonly #offices = new Map<number, PermitPool>();

  constructor(clock: Clock, say: (worker: number, listener: number, order: PermitOrder) => void) {
    this.#clock = clock;
    this.#say = say;
  }

  /** Ids of the listeners whose connections are counted. */
  get counted(): readonly number[] {
    return [...this.#offices.keys()];
  }

  /** Before workers open them; those that are there already stay. */
  open(listeners: readonly LimitedListener[]): void {
    for (const { id, limit } of listeners) {
      if (this.#offices.has(id)) continue;
      this.#offices.set(
        id,
        new PermitPool(limit, this.#clock, (worker, order) => this.#say(worker, id, order)),
      );
    }
  }

  /** Lets go of all others: what their last connections give back goes nowhere. */
  keep(listeners: readonly LimitedListener[]): void {
    const ids = new Set(listeners.map(({ id }) => id));
    for (const [id, office] of this.#offices) {
      if (ids.has(id)) continue;
      office.close();
      this.#offices.delete(id);
    }
  }

  hear(worker: number, listener: number, request: PermitRequest): void {
    this.#offices.get(listener)?.hear(worker, request);
  }

  /** The worker has ended, and its connections with it. */
  gone(worker: number): void {
    for (const office of this.#offices.values()) office.gone(worker);
  }
}
