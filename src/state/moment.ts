/** A moment that any process can compare with its own time, even after a restart or a change of the wall clock. */
import { z } from 'zod';
import type { BootClock, Clock } from '../core/clock.ts';

export const momentSchema = z.object({
  /** The wall-clock time in epoch ms. */
  wallAt: z.number(),
  /** The id of the boot of the machine. */
  boot: z.string(),
  /** The time in ms since the boot, which does not depend on the wall clock. */
  elapsedMs: z.number(),
});

export type Moment = Readonly<z.infer<typeof momentSchema>>;

export interface Timekeeper {
  now(): Moment;
  /**
   * Starts a stopwatch. The returned function reads its time in ms, including the time while the process was stopped or
   * the machine was suspended.
   */
  stopwatch(): () => number;
}

export function createTimekeeper(clock: Pick<Clock, 'now' | 'monotonic'>, boot: BootClock): Timekeeper {
  return {
    now: () => ({ wallAt: clock.now(), boot: boot.id, elapsedMs: boot.elapsedMs() }),
    stopwatch: () => {
      const [startedAt, uptimeMs] = [clock.monotonic(), boot.uptimeMs()];
      return () => Math.max(clock.monotonic() - startedAt, boot.uptimeMs() - uptimeMs);
    },
  };
}

/**
 * The time in ms from `then` to `now`. It may be negative, but only if the machine was rebooted in between and its wall
 * clock was set back.
 */
export function elapsedBetween(then: Moment, now: Moment): number {
  return then.boot === now.boot ? now.elapsedMs - then.elapsedMs : now.wallAt - then.wallAt;
}
