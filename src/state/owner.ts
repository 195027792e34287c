/** Identifies the process that owns a folder and finds out whether it still runs. A pid is not enough: it may belong to a new process. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import type { BootClock } from '../core/boot.ts';

export const ownerSchema = z.object({
  pid: z.int().positive(),
  boot: z.string(),
  /** When the kernel started the process, in clock ticks since boot. Absent where unknown (not Linux). */
  startTicks: z.number().optional().catch(undefined),
});

export type Owner = Readonly<z.infer<typeof ownerSchema>>;

export function thisProcess(boot: BootClock): Owner {
  return { pid: process.pid, boot: boot.id, startTicks: startTicksOf(process.pid) };
}

export function isAlive(owner: Owner, boot: BootClock): boolean {
  if (!exists(owner.pid)) return false;
  if (owner.startTicks === undefined) return true; // without the start time, the pid is the only evidence
  return owner.boot === boot.id && startTicksOf(owner.pid) === owner.startTicks;
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process exists and belongs to another user.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** Field 22 of /proc/PID/stat (proc_pid_stat(5)). The second field, the name, may contain spaces and parentheses. */
function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const afterName = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = Number(afterName[19]);
    return Number.isSafeInteger(ticks) ? ticks : undefined;
  } catch {
    return undefined; // ignored: not Linux, or the process has ended; the caller has other evidence
  }
}
