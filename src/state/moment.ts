/** What any process can compare with its own, even after a restart: a moment, and the identity of a process. */
import { readFileSync, readlinkSync } from 'node:fs';
import { z } from 'zod';
import type { BootClock, Clock } from '../core/clock.ts';
import { errnoOf } from '../core/faults.ts';

export const momentSchema = z.object({
  wallAt: z.number(),
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

/** A process. The pid is not enough, because a later process may get the same pid. */
export const processSchema = z.object({
  pid: z.int().positive(),
  boot: z.string(),
  /** When the kernel started the process, in clock ticks since the boot. Absent if unknown (not Linux). */
  startTicks: z.number().optional().catch(undefined),
  /** The namespace in which `pid` names the process (a container has its own). Absent if unknown (not Linux). */
  namespace: z.string().optional().catch(undefined),
});

export type ProcessIdentity = Readonly<z.infer<typeof processSchema>>;

export function thisProcess(boot: BootClock): ProcessIdentity {
  return {
    pid: process.pid,
    boot: boot.id,
    startTicks: startTicksOf(process.pid),
    namespace: ownNamespace(),
  };
}

export function isAlive({ pid, boot, startTicks }: ProcessIdentity, own: Pick<BootClock, 'id'>): boolean {
  if (!exists(pid)) return false;
  if (startTicks === undefined) return true; // without a start time, only the pid is compared
  return boot === own.id && startTicksOf(pid) === startTicks;
}

/** Whether `own`, a process that runs, can see that the process has ended. A process elsewhere is never seen as ended. */
export function hasEnded(other: ProcessIdentity, own: ProcessIdentity): boolean {
  return other.boot === own.boot && other.namespace === own.namespace && !isAlive(other, { id: own.boot });
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process exists, but belongs to another user.
    return errnoOf(error) === 'EPERM';
  }
}

/**
 * Reads field 22 of /proc/PID/stat (proc_pid_stat(5)). The second field, the name of the program, may contain spaces
 * and parentheses, so the code counts the fields after the last parenthesis.
 */
function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const ticks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
    return Number.isSafeInteger(ticks) ? ticks : undefined;
  } catch {
    return undefined; // ignored: this is not Linux, or the process has ended; the caller also checks the pid
  }
}

function ownNamespace(): string | undefined {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return undefined; // ignored: this is not Linux
  }
}
