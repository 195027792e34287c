/** A point in time that other processes, and this one after a restart or a change of the wall clock, can compare with now. */
import { z } from 'zod';
import type { BootClock } from '../core/boot.ts';
import type { Clock } from '../core/clock.ts';

export const momentSchema = z.object({
  /** Epoch ms. */
  wallAt: z.number(),
  /** Id of the boot of the machine. */
  boot: z.string(),
  /** Ms since the boot: exact while the machine runs, also if the wall clock is set. */
  elapsedMs: z.number(),
});

export type Moment = Readonly<z.infer<typeof momentSchema>>;

export interface Timekeeper {
  now(): Moment;
  /** Starts a stopwatch, which returns its ms. It also counts while the process is stopped or the machine is suspended. */
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

/** Ms from `then` to `now`. Negative if the wall clock was set back between two boots. */
export function elapsedBetween(then: Moment, now: Moment): number {
  return then.boot === now.boot ? now.elapsedMs - then.elapsedMs : now.wallAt - then.wallAt;
}
