/**
 * A point in time that can be compared with now by another process, after a restart, and after a change of the wall
 * clock.
 */
import { z } from 'zod';
import type { BootClock } from '../core/boot.ts';
import type { Clock } from '../core/clock.ts';

export const momentSchema = z.object({
  /** Epoch ms. */
  wallAt: z.number(),
  /** The id of the boot of the machine. */
  boot: z.string(),
  /** Time in ms since the boot: exact while the machine runs, even if the wall clock is set. */
  elapsedMs: z.number(),
});

export type Moment = Readonly<z.infer<typeof momentSchema>>;

export interface Timekeeper {
  now(): Moment;
  /**
   * Starts a stopwatch and returns a function that reads its ms. It also runs while the process is stopped or the
   * machine is suspended.
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

/** The time in ms from `then` to `now`. Negative if the wall clock was set back between two boots. */
export function elapsedBetween(then: Moment, now: Moment): number {
  return then.boot === now.boot ? now.elapsedMs - then.elapsedMs : now.wallAt - then.wallAt;
}
