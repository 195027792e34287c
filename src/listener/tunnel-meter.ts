/**
 * Reports what open tunnels relay, once a second, so that usage and limits do not wait for their end. Owns one timer, and
 * only while tunnels are open.
 */
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import type { OpenRequest } from '../core/request-record.ts';
import type { RelayCounts } from './relay.ts';

export class TunnelMeter {
  readonly #bus: EventBus;
  readonly #clock: Clock;
  readonly #open = new Map<OpenRequest, RelayCounts>();
  #timer: Disposable | undefined;

  constructor(bus: EventBus, clock: Clock) {
    this.#bus = bus;
    this.#clock = clock;
  }

  add(record: OpenRequest, counts: RelayCounts): void {
    this.#open.set(record, counts);
    this.#timer ??= this.#clock.after(SECOND_MS, this.#report);
  }

  delete(record: OpenRequest): void {
    this.#open.delete(record);
    if (this.#open.size > 0) return;
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }

  readonly #report = (): void => {
    this.#timer = this.#clock.after(SECOND_MS, this.#report);
    for (const [record, { bytesUp, bytesDown }] of this.#open) {
      const [up, down] = [bytesUp - record.countedUp, bytesDown - record.countedDown];
      if (up === 0 && down === 0) continue;
      record.countedUp = bytesUp;
      record.countedDown = bytesDown;
      const { id: request, user, target, source } = record;
      this.#bus.emit('request.grew', { request, user: user ?? '', target: target ?? '', source, up, down });
    }
  };
}
