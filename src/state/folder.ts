/**
 * The state folder. It contains the pace file, which all processes that use the folder share, and the snapshot and the
 * sessions of one daemon.
 *
 * A second daemon that uses the same folder does not start; its error names the first daemon. Commands may run at the
 * same time as the daemon, and share the pace file.
 */

import { mkdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { type BootClock, type Clock, systemBoot } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { openJournal } from './journal.ts';
import { createTimekeeper, isAlive, type ProcessIdentity, processSchema, thisProcess } from './moment.ts';
import { createPaceFile, createPaceMemory, handOverPace, type PaceStore } from './pace-file.ts';
import { openSnapshotFile } from './snapshot-file.ts';
import { inspectFolder, sweepDrafts, unusableFolder, VersionedFile } from './state-files.ts';

export interface StateOptions {
  /**
   * The path of the folder. noria creates a missing folder with mode 0700. If undefined, noria stores nothing, and
   * other processes do not know when noria called the service.
   */
  readonly dir: string | undefined;
  /** A daemon locks the folder and writes the snapshot. A command only shares the pace file. */
  readonly daemon: boolean;
  readonly fleet: string | undefined;
  readonly clock: Clock;
  readonly warn: (message: string) => void;
  readonly boot?: BootClock;
}

export async function openState(options: StateOptions) {
  const { dir: folder, clock, warn, fleet, daemon, boot = systemBoot() } = options;
  const timekeeper = createTimekeeper(clock, boot);
  const file = { clock, timekeeper, warn };
  const open = async (dir: string | undefined) => ({
    snapshot: await openSnapshotFile({ ...file, path: dir && join(dir, 'snapshot.json') }),
    sessions: await openJournal({ ...file, path: dir && join(dir, 'sessions.jsonl') }),
  });
  const nothing = { ...(await open(undefined)), close: async () => {} };
  if (folder === undefined) {
    return { pace: createPaceMemory(timekeeper), addOwnCalls: (shared: PaceStore) => shared, ...nothing };
  }
  await createFolders(resolve(folder)).catch((cause: unknown) => {
    throw unusableFolder(folder, describeError(cause), cause);
  });
  const [problem] = await inspectFolder(folder);
  if (problem !== undefined) throw unusableFolder(folder, problem);
  const paceFile = { folder, timekeeper, warn, process: thisProcess(boot) };
  const pace = createPaceFile(paceFile);
  const handOver = () => handOverPace(paceFile, { fleet, daemon });
  if (!daemon) return { pace, addOwnCalls: await handOver(), ...nothing };

  const release = await lockFolder(folder, boot);
  try {
    await sweepDrafts(folder);
    const addOwnCalls = await handOver();
    const files = await open(folder);
    let closing: Promise<void> | undefined;
    const close = () =>
      (closing ??= Promise.all([files.snapshot.close(), files.sessions.close()])
        .then(() => {})
        .finally(release));
    return { pace, addOwnCalls, ...files, close };
  } catch (error) {
    await release();
    throw error;
  }
}

/** `owner` is null if no process uses the folder, or if the lock file is damaged. */
const lockSchema = z.object({ owner: processSchema.nullable().catch(null) }).catch({ owner: null });

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

async function lockFolder(folder: string, boot: BootClock): Promise<() => Promise<void>> {
  const lock = new VersionedFile(folder, 'daemon');
  await lock.change((value) => {
    const { owner } = lockSchema.parse(value);
    if (owner !== null && isAlive(owner, boot)) throw locked(folder, owner);
    return { newValue: { owner: thisProcess(boot) }, result: undefined };
  });
  return () => lock.change(() => ({ newValue: { owner: null }, result: undefined }));
}

function locked(folder: string, { pid }: ProcessIdentity): NoriaError {
  const message = `the state folder ${folder} is in use by the noria with pid ${pid}`;
  return new NoriaError('state-locked', message, { context: { folder, pid } });
}
