/**
 * Reads and replaces files of the state folder.
 *
 * noria accepts only regular files of the user that runs noria or of the owner of the folder, and never follows a link.
 * Otherwise another user could block noria with a FIFO, or make noria replace a file in another folder.
 */
import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readdir, rename, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describeError, NoriaError } from '../core/faults.ts';

/** Matches the names of noria's own files. noria ignores all other files in the folder. */
const OWN_NAME = /^(?:pace|daemon|snapshot|sessions)\./;
/**
 * The greatest version number in a file name that noria accepts. noria never writes so many versions. The limit is
 * far below 2^53: from there, adding 1 may not change a number.
 */
const MAX_VERSION = 1e12;
/**
 * O_NOFOLLOW refuses a symbolic link. With O_NONBLOCK, opening a FIFO does not wait for a writer. Windows has neither
 * flag.
 */
const READ_FLAGS = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

/** The error for a folder that noria cannot use. `context.folder` is its path. */
export function unusableFolder(folder: string, why: string, cause?: unknown): NoriaError {
  const message = `cannot use the state folder ${folder}: ${why}`;
  return new NoriaError('state-unwritable', message, { cause, context: { folder } });
}

/**
 * Checks the folder and all of noria's files in it, without reading them.
 *
 * @returns one sentence for each problem that prevents the use of the folder; empty if the folder does not exist.
 * @throws NoriaError state-unwritable if noria cannot list the folder.
 */
export async function inspectFolder(folder: string): Promise<readonly string[]> {
  try {
    const names = (await readdir(folder)).filter((name) => OWN_NAME.test(name));
    const problems = await Promise.all(
      names
        .map((name) => join(folder, name))
        .map(async (path) => findNumberProblem(path) ?? findProblem(path)),
    );
    return problems.filter((problem) => problem !== undefined);
  } catch (error) {
    const code = errnoOf(error);
    if (code === 'ENOENT') return [];
    if (code === 'ENOTDIR') return [`${folder} is not a directory`];
    throw unusableFolder(folder, describeError(error), error);
  }
}

/**
 * Checks the version number in a file name (`NAME.7.json`).
 *
 * @returns a sentence for the operator if the number is so large that noria cannot have written the file; otherwise
 *   undefined.
 */
export function findNumberProblem(path: string): string | undefined {
  const digits = /\.(\d+)\.json$/.exec(path)?.[1];
  if (digits === undefined || Number(digits) <= MAX_VERSION) return undefined;
  return `${path} has a version number above ${MAX_VERSION}, so noria did not write it; remove it`;
}

/**
 * Returns the text of the file.
 *
 * @returns undefined if the file is missing.
 * @throws Error if the path is not a regular file of noria.
 */
export async function readStateFile(path: string): Promise<string | undefined> {
  try {
    await assertOwn(path);
    const file = await open(path, READ_FLAGS);
    try {
      if (!(await file.stat()).isFile()) throw new Error(`${path} was replaced while noria opened it`);
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * Replaces the file with a new file, which `write` fills. Syncs the new file before renaming it, so that after a crash
 * the file has either the old content or the new content.
 *
 * @returns the new file, still open.
 */
export async function replaceStateFile(
  path: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<FileHandle> {
  await assertOwn(path);
  const { draft, file } = await writeDraft(path, write);
  try {
    await rename(draft, path); // if `path` is a link, `rename` replaces the link itself
    await syncFolder(dirname(path));
    return file;
  } catch (error) {
    await file.close();
    await unlinkIfThere(draft);
    throw error;
  }
}

/**
 * Writes a new file, the draft, next to `path`, and syncs it. The caller closes it, and renames, links or removes it.
 */
export async function writeDraft(
  path: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<{ readonly draft: string; readonly file: FileHandle }> {
  const name = basename(path).replace(/\..*/s, '');
  const draft = join(dirname(path), `${name}.${randomUUID()}.tmp`);
  const file = await open(draft, 'wx', 0o600);
  try {
    await write(file);
    await file.sync();
    return { draft, file };
  } catch (error) {
    await file.close();
    await unlinkIfThere(draft);
    throw error;
  }
}

/** Removes all drafts: a killed process may have left one. A running process whose draft is missing writes it again. */
export async function sweepDrafts(folder: string): Promise<void> {
  const drafts = (await readdir(folder)).filter((name) => OWN_NAME.test(name) && name.endsWith('.tmp'));
  for (const name of drafts) await unlinkIfThere(join(folder, name));
}

export async function unlinkIfThere(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

/** Syncs the folder, so that the names of new files survive a crash. */
export async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return; // Windows cannot open a folder, so it cannot sync one
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

async function assertOwn(path: string): Promise<void> {
  const problem = await findProblem(path);
  if (problem !== undefined) throw new Error(problem);
}

/** @returns why noria must not use the file; undefined for a missing file and for a regular file of noria. */
async function findProblem(path: string): Promise<string | undefined> {
  let found: Stats;
  try {
    found = await lstat(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  if (!found.isFile()) return `${path} is ${kindOf(found)}, not a regular file; remove it`;
  const { uid: folder } = await stat(dirname(path));
  return findOwnerProblem(path, { file: found.uid, folder, noria: process.geteuid?.() });
}

export interface Owners {
  /** The user that owns the file. */
  readonly file: number;
  /** The user that owns the folder of the file: the user that usually runs noria. */
  readonly folder: number;
  /** The user that runs noria; undefined on a system without user ids. */
  readonly noria: number | undefined;
}

/** @returns why noria must not use a file of this owner; undefined if it may. */
export function findOwnerProblem(path: string, { file, folder, noria }: Owners): string | undefined {
  if (noria === undefined || file === noria || file === folder) return undefined;
  return `${path} belongs to user ${file}, but noria runs as user ${noria}; change its owner or remove it`;
}

function kindOf(found: Stats): string {
  if (found.isSymbolicLink()) return 'a symbolic link';
  if (found.isDirectory()) return 'a directory';
  if (found.isFIFO()) return 'a FIFO';
  if (found.isSocket()) return 'a socket';
  return 'a device';
}
