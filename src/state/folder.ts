/**
 * The state folder. It contains the pace file, which all processes that use the folder share, and the snapshot and the
 * sessions of one daemon.
 *
 * A second daemon that uses the same folder does not start; its error names the first daemon. Commands may run at the
 * same time as the daemon, and share the pace file.
 */

import { readFileSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../core/clock.ts';
import { type BootClock, systemBoot } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { type Journal, noJournal, openJournal } from './journal.ts';
import { createTimekeeper } from './moment.ts';
import { createPaceFile, createPaceMemory, type PaceStore } from './pace-file.ts';
import { type AddOwnCalls, handOverPace } from './pace-handover.ts';
import { noSnapshot, openSnapshotFile, type SnapshotFile } from './snapshot-file.ts';
import { inspectFolder, sweepDrafts, unusableFolder } from './state-files.ts';
import { VersionedFile } from './versioned-file.ts';

export interface StateOptions {
  /**
   * The path of the folder. noria creates a missing folder with mode 0700. If undefined, noria stores nothing, and
   * other processes do not know when noria called the service.
   */
  readonly dir: string | undefined;
  /**
   * Whether the process is a daemon, which locks the folder and writes the snapshot. A command only shares the
   * pace file.
   */
  readonly daemon: boolean;
  /** The name of the fleet in which noria runs; undefined if it runs in no fleet. */
  readonly fleet: string | undefined;
  readonly clock: Clock;
  readonly warn: (message: string) => void;
  /** The clock that counts the time since the boot of the machine. Default: the clock of this machine. */
  readonly boot?: BootClock;
}

export interface State {
  /** The pace store of a noria without a fleet. */
  readonly pace: PaceStore;
  readonly addOwnCalls: AddOwnCalls;
  readonly snapshot: SnapshotFile;
  readonly sessions: Journal;
  /** Writes the last snapshot and unlocks the folder. Idempotent. */
  close(): Promise<void>;
}

/** @throws NoriaError state-unwritable, or state-locked with the pid of the daemon that uses the folder. */
export async function openState(options: StateOptions): Promise<State> {
  const { dir: folder, clock, warn, fleet, daemon, boot = systemBoot() } = options;
  const timekeeper = createTimekeeper(clock, boot);
  if (folder === undefined) {
    return { pace: createPaceMemory(timekeeper), addOwnCalls: (shared) => shared, ...NOTHING_STORED };
  }
  await createFolder(folder);
  const [problem] = await inspectFolder(folder);
  if (problem !== undefined) throw unusableFolder(folder, problem);
  const pace = createPaceFile({ folder, timekeeper, warn });
  const handOver = () => handOverPace({ folder, timekeeper, warn, fleet, daemon });
  if (!daemon) return { pace, addOwnCalls: await handOver(), ...NOTHING_STORED };

  const release = await lockFolder(folder, boot);
  try {
    await sweepDrafts(folder);
    const addOwnCalls = await handOver();
    const file = { clock, timekeeper, warn };
    const snapshot = await openSnapshotFile({ ...file, path: join(folder, 'snapshot.json') });
    const sessions = await openJournal({ ...file, path: join(folder, 'sessions.jsonl') });
    let closing: Promise<void> | undefined;
    const close = () =>
      (closing ??= Promise.all([snapshot.close(), sessions.close()])
        .then(() => {})
        .finally(release));
    return { pace, addOwnCalls, snapshot, sessions, close };
  } catch (error) {
    await release();
    throw error;
  }
}

const NOTHING_STORED: Omit<State, 'pace' | 'addOwnCalls'> = {
  snapshot: noSnapshot(),
  sessions: noJournal(),
  close: async () => {},
};

/** Identifies the process that owns the folder. The pid is not enough, because a later process may get the same pid. */
const ownerSchema = z.object({
  pid: z.int().positive(),
  boot: z.string(),
  /** When the kernel started the process, in clock ticks since the boot. Absent if unknown (not Linux). */
  startTicks: z.number().optional().catch(undefined),
});

type Owner = Readonly<z.infer<typeof ownerSchema>>;

/** `owner` is null if no process uses the folder, or if the lock file is damaged. */
const lockSchema = z.object({ owner: ownerSchema.nullable().catch(null) }).catch({ owner: null });

async function createFolder(folder: string): Promise<void> {
  try {
    await createFolders(resolve(folder));
  } catch (cause) {
    const message = `cannot create the state folder ${folder}: ${describeError(cause)}`;
    throw new NoriaError('state-unwritable', message, { cause, context: { folder } });
  }
}

/**
 * Creates the folder and its parents. Does not use the option `recursive` of Node's `mkdir`: with it, `mkdir` never
 * returns if the system reports ENOENT in an existing folder, as in /proc.
 */
async function createFolders(folder: string): Promise<void> {
  if (await isFolder(folder)) return;
  const parent = dirname(folder);
  if (parent !== folder) await createFolders(parent);
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (!(await isFolder(folder))) throw error; // if the folder exists now, another process has created it
  }
}

function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false, // ignored: the caller then tries to create the folder, and that error says the reason
  );
}

/**
 * Locks the folder for this process. Ignores a lock whose process has died.
 *
 * @returns a function that unlocks the folder.
 */
async function lockFolder(folder: string, boot: BootClock): Promise<() => Promise<void>> {
  const lock = new VersionedFile(folder, 'daemon');
  await lock.change((value) => {
    const { owner } = lockSchema.parse(value);
    if (owner !== null && isAlive(owner, boot)) throw locked(folder, owner);
    return { newValue: { owner: thisProcess(boot) }, result: undefined };
  });
  return () => lock.change(() => ({ newValue: { owner: null }, result: undefined }));
}

function locked(folder: string, { pid }: Owner): NoriaError {
  const message = `the state folder ${folder} is in use by the noria with pid ${pid}`;
  return new NoriaError('state-locked', message, { context: { folder, pid } });
}

function thisProcess(boot: BootClock): Owner {
  return { pid: process.pid, boot: boot.id, startTicks: startTicksOf(process.pid) };
}

function isAlive(owner: Owner, boot: BootClock): boolean {
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
 * Reads field 22 of /proc/PID/stat (proc_pid_stat(5)). The second field, the name of the program, may contain spaces
 * and parentheses, so the code counts the fields after the last parenthesis.
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
