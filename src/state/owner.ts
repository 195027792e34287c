/**
 * Identifies the process that owns a folder, and finds out whether that process still runs. The pid alone is not
 * enough, because another process may get it later.
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import type { BootClock } from '../core/boot.ts';

export const ownerSchema = z.object({
  pid: z.int().positive(),
  boot: z.string(),
  /** When the kernel started the process, in clock ticks since the boot. Absent if unknown (not Linux). */
  startTicks: z.number().optional().catch(undefined),
});

export type Owner = Readonly<z.infer<typeof ownerSchema>>;

export function thisProcess(boot: BootClock): Owner {
  return { pid: process.pid, boot: boot.id, startTicks: startTicksOf(process.pid) };
}

export function isAlive(owner: Owner, boot: BootClock): boolean {
  if (!exists(owner.pid)) return false;
  if (owner.startTicks === undefined) return true; // without a start time, only the pid is compared
  return owner.boot === boot.id && startTicksOf(owner.pid) === owner.startTicks;
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process exists, but belongs to another user.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/**
 * Reads field 22 of /proc/PID/stat (proc_pid_stat(5)). The second field, the name of the program, may contain spaces and
 * parentheses, so the code counts the fields after the last parenthesis.
 */
function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const afterName = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = Number(afterName[19]);
    return Number.isSafeInteger(ticks) ? ticks : undefined;
  } catch {
    return undefined; // ignored: this is not Linux, or the process has ended; the caller also checks the pid
  }
}
