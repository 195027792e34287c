/** A moment written down so that another process, or the same one after a restart or a clock step, knows how long ago it was. */
import type { BootClock } from '../core/boot.ts';
import type { Clock } from '../core/clock.ts';

export interface Moment {
  /** Epoch ms. */
  readonly wallAt: number;
  /** Which boot, and ms since it: exact while the machine runs, whatever happens to the wall clock. */
  readonly boot: string;
  readonly elapsedMs: number;
}

/** Reads moments off the two clocks that outlive a process. */
export interface Timekeeper {
  now(): Moment;
}

export function createTimekeeper(clock: Pick<Clock, 'now'>, boot: BootClock): Timekeeper {
  return { now: () => ({ wallAt: clock.now(), boot: boot.id, elapsedMs: boot.elapsedMs() }) };
}

/** Ms from `then` to `now`; negative when `then` lies in the future, as after the wall clock was set back across a reboot. */
export function elapsedBetween(then: Moment, now: Moment): number {
  return then.boot === now.boot ? now.elapsedMs - then.elapsedMs : now.wallAt - then.wallAt;
}

/** A moment out of JSON, or undefined where it is none. */
export function readMoment(value: unknown): Moment | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { wallAt, boot, elapsedMs } = value as Partial<Record<keyof Moment, unknown>>;
  if (!isFiniteNumber(wallAt) || typeof boot !== 'string' || !isFiniteNumber(elapsedMs)) return undefined;
  return { wallAt, boot, elapsedMs };
}

function isFiniteNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
