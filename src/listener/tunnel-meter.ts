/**
 * Reports what open tunnels relay, once a second, so that usage and limits do not wait for their end. Ends the tunnels of
 * users who have used their bytes of the day. Owns one timer, which stops by itself when no tunnel is open.
 */
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { type Listed, LiveList } from '../core/live-list.ts';
import type { OpenRequest } from '../core/request-record.ts';
import type { RelayResult } from './relay.ts';
import type { UserLimits } from './user-limits.ts';

export interface MeteredTunnel extends Listed {
  readonly record: OpenRequest;
  readonly counts: RelayResult;
  readonly connection: { destroy(): void };
}

export class TunnelMeter {
  readonly #bus: EventBus;
  readonly #clock: Clock;
  readonly #limits: UserLimits | undefined;
  readonly #open = new LiveList<MeteredTunnel>();
  #timer: Disposable | undefined;

  constructor(bus: EventBus, clock: Clock, limits?: UserLimits) {
    this.#limits = limits;
    this.#bus = bus;
    this.#clock = clock;
  }

  /** @returns how to end it. */
  add(record: OpenRequest, counts: RelayResult, connection: { destroy(): void }): MeteredTunnel {
    const tunnel = { listIndex: -1, record, counts, connection };
    this.#open.add(tunnel);
    this.#timer ??= this.#clock.after(SECOND_MS, this.#report);
    return tunnel;
  }

  delete(tunnel: MeteredTunnel): void {
    this.#open.delete(tunnel);
  }

  close(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }

  readonly #report = (): void => {
    this.#timer = this.#open.size === 0 ? undefined : this.#clock.after(SECOND_MS, this.#report);
    for (const { record, counts, connection } of this.#open.all()) {
      const { bytesUp, bytesDown } = counts;
      if (record.user !== null && this.#limits?.isOverBytes(record.user)) connection.destroy();
      const [up, down] = [bytesUp - record.countedUp, bytesDown - record.countedDown];
      if (up === 0 && down === 0) continue;
      record.countedUp = bytesUp;
      record.countedDown = bytesDown;
      const { id: request, user, target, source } = record;
      this.#bus.emit('request.grew', { request, user: user ?? '', target: target ?? '', source, up, down });
    }
  };
}
