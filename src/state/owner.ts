/** Which process owns a folder, and whether it still lives: a pid alone may have been given to another one since. */
import { readFileSync } from 'node:fs';
import type { BootClock } from '../core/boot.ts';

export interface Owner {
  readonly pid: number;
  readonly boot: string;
  /** When the kernel started the process, in its own ticks since boot; absent where it does not tell (not Linux). */
  readonly startTicks?: number;
}

export function thisProcess(boot: BootClock): Owner {
  return ownerOf(process.pid, boot.id);
}

/** Whether the process that wrote this down still runs. One of another boot does not. */
export function isAlive(owner: Owner, boot: BootClock): boolean {
  if (!exists(owner.pid)) return false;
  if (owner.startTicks === undefined) return true; // no better evidence than the pid
  return owner.boot === boot.id && startTicksOf(owner.pid) === owner.startTicks;
}

/** An owner out of JSON, or undefined where it is none. */
export function readOwner(value: unknown): Owner | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { pid, boot, startTicks } = value as Partial<Record<keyof Owner, unknown>>;
  if (typeof pid !== 'number' || !Number.isSafeInteger(pid) || pid <= 0 || typeof boot !== 'string') {
    return undefined;
  }
  return typeof startTicks === 'number' ? { pid, boot, startTicks } : { pid, boot };
}

function ownerOf(pid: number, boot: string): Owner {
  const startTicks = startTicksOf(pid);
  return startTicks === undefined ? { pid, boot } : { pid, boot, startTicks };
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives and belongs to another user.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** Field 22 of /proc/PID/stat (proc_pid_stat(5)); the second field, the name, may hold spaces and brackets. */
function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const afterName = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = Number(afterName[19]);
    return Number.isSafeInteger(ticks) ? ticks : undefined;
  } catch {
    return undefined; // ignored: not Linux, or the process is gone; the caller has other evidence
  }
}
