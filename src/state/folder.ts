/**
 * The state folder: the pace, shared by all that open it, and the snapshot, which belongs to one daemon.
 *
 * A second daemon on the same folder refuses to start, naming the first; commands beside it share the pace.
 */
import { mkdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { type BootClock, systemBoot } from '../core/boot.ts';
import type { Clock } from '../core/clock.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { createTimekeeper } from './moment.ts';
import { isAlive, type Owner, readOwner, thisProcess } from './owner.ts';
import { createPaceFile, createPaceMemory, type PaceStore } from './pace-file.ts';
import { noSnapshot, openSnapshotFile, type SnapshotFile } from './snapshot-file.ts';
import { sweepDrafts, VersionedFile } from './versioned-file.ts';

export interface StateOptions {
  /** `undefined`: nothing is kept, the pace holds within this process alone. Made (0700) when missing. */
  readonly dir: string | undefined;
  /** The daemon: has the folder to itself and keeps a snapshot. A command shares the pace and leaves the snapshot alone. */
  readonly daemon: boolean;
  readonly clock: Clock;
  readonly warn: (message: string) => void;
  /** The system's own when absent. */
  readonly boot?: BootClock;
}

export interface State {
  readonly pace: PaceStore;
  readonly snapshot: SnapshotFile;
  /** Writes the last snapshot and gives the folder free. Safe to call twice. */
  close(): Promise<void>;
}

/**
 * Opens the state.
 *
 * @throws NoriaError state-unwritable, or state-locked with the pid of the daemon that has the folder.
 */
export async function openState(options: StateOptions): Promise<State> {
  const { dir: folder, clock, warn, boot = systemBoot() } = options;
  const timekeeper = createTimekeeper(clock, boot);
  if (folder === undefined) {
    return { pace: createPaceMemory(timekeeper), snapshot: noSnapshot(), close: async () => {} };
  }
  await makeFolder(folder);
  const pace = createPaceFile({ folder, timekeeper, warn });
  if (!options.daemon) return { pace, snapshot: noSnapshot(), close: async () => {} };

  const release = await lockFolder(folder, boot);
  try {
    await sweepDrafts(folder);
    const snapshot = await openSnapshotFile({ path: join(folder, 'snapshot.json'), clock, timekeeper, warn });
    let closing: Promise<void> | undefined;
    const close = () => (closing ??= snapshot.close().finally(release));
    return { pace, snapshot, close };
  } catch (error) {
    await release();
    throw error;
  }
}

async function makeFolder(folder: string): Promise<void> {
  try {
    await makeFolders(resolve(folder));
  } catch (cause) {
    const message = `the state folder ${folder} cannot be made: ${describeError(cause)}`;
    throw new NoriaError('state-unwritable', message, { cause, context: { folder } });
  }
}

/** By hand: Node's own recursion never ends where a folder is there and answers ENOENT all the same, as /proc does. */
async function makeFolders(folder: string): Promise<void> {
  if (await isFolder(folder)) return;
  const parent = dirname(folder);
  if (parent !== folder) await makeFolders(parent);
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (!(await isFolder(folder))) throw error; // else another process made it just now
  }
}

function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false, // ignored: making it fails with the reason
  );
}

/** Takes the folder for this process, also from a dead one. Returns what gives it free again. */
async function lockFolder(folder: string, boot: BootClock): Promise<() => Promise<void>> {
  const lock = new VersionedFile(folder, 'daemon');
  const me = thisProcess(boot);
  await lock.change((value) => {
    const owner = ownerIn(value);
    if (owner !== undefined && isAlive(owner, boot)) throw locked(folder, owner);
    return { next: { owner: me }, result: undefined };
  });
  return () => lock.change(() => ({ next: { owner: null }, result: undefined }));
}

function ownerIn(value: unknown): Owner | undefined {
  return typeof value === 'object' && value !== null && 'owner' in value ? readOwner(value.owner) : undefined;
}

function locked(folder: string, { pid }: Owner): NoriaError {
  const message = `the state folder ${folder} is in use by the noria with pid ${pid}`;
  return new NoriaError('state-locked', message, { context: { folder, pid } });
}
