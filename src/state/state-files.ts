/**
 * Reads, replaces and versions files of the state folder.
 *
 * noria accepts only regular files of the user that runs noria or of the owner of the folder, and never follows a link.
 * Otherwise another user could block noria with a FIFO, or make noria replace a file in another folder.
 */
import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, link, lstat, open, readdir, rename, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describeError, errnoOf, NoriaError } from '../core/faults.ts';

/** Matches the names of noria's own files. noria ignores all other files in the folder. */
const OWN_NAME = /^(?:pace|daemon|snapshot|sessions|usage)\./;
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

function findNumberProblem(path: string): string | undefined {
  const digits = /\.(\d+)\.json$/.exec(path)?.[1];
  if (digits === undefined || Number(digits) <= MAX_VERSION) return undefined;
  return `${path} has a version number above ${MAX_VERSION}, so noria did not write it; remove it`;
}

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
async function writeDraft(
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

async function unlinkIfThere(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return; // Windows cannot open a folder, so it cannot sync one
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function assertOwn(path: string): Promise<void> {
  const problem = await findProblem(path);
  if (problem !== undefined) throw new Error(problem);
}

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
  readonly file: number;
  /** The user that owns the folder of the file: the user that usually runs noria. */
  readonly folder: number;
  readonly noria: number | undefined;
}

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

/** Without `newValue`, the value does not change. */
export interface Decision<T> {
  readonly newValue?: unknown;
  readonly result: T;
}

/** The value of a file that is not valid JSON, because it is damaged or was edited manually. */
export const BROKEN = Symbol('broken');

/**
 * How many versions noria keeps. A process can write a version only if no file of this version exists. So a slow process
 * cannot write an old version again while noria keeps it.
 */
const KEPT_VERSIONS = 8;
/**
 * The maximum number of tries to write a version. If several processes write at the same time, one of them always
 * succeeds. So this many failures in a row have another cause.
 */
const MAX_TRIES = 1_000;

interface Version {
  readonly number: number;
  readonly text: string;
}

/**
 * A small JSON value on disk that any number of processes change atomically, without a lock.
 *
 * Node has no flock, and lock files are unsafe: a lock file remains after its owner has died, and two processes that
 * both find it outdated can both take it. Instead, the value is the newest of `NAME.0.json`, `NAME.1.json`…. A
 * process writes a change to a temporary file, then *links* that file to the next number. link(2) fails if the number
 * exists. So of all processes that have read version N, exactly one creates N + 1; the others read and decide again.
 * A process that is killed or stopped at any point never blocks the others.
 */
export class VersionedFile {
  readonly #folder: string;
  readonly #name: string;

  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.#name = name;
  }

  /**
   * Replaces the value with what `decide` returns, in one atomic step.
   *
   * `decide` gets the current value: `undefined` if no value was ever written, `BROKEN` if the value is unreadable. If
   * another process changes the value first, `decide` is called again with the newer value, so it must have no side
   * effects. When the promise resolves, the new value is on disk. If `decide` throws, nothing changes, and the promise
   * rejects with that error.
   *
   * @throws NoriaError state-unwritable if noria cannot read or write the folder, or if the folder does not support
   * hard links.
   */
  async change<T>(decide: (value: unknown) => Decision<T>): Promise<T> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const base = await this.#attempt(() => this.#newest());
      const { newValue, result } = decide(parseValue(base.text));
      if (newValue === undefined) return result;
      if (await this.#attempt(() => this.#commit(base, newValue))) return result;
    }
    throw this.#unwritable(`other processes wrote a new version first, ${MAX_TRIES} times in a row`);
  }

  async #attempt<T>(step: () => Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (cause) {
      throw this.#unwritable(describeError(cause), cause);
    }
  }

  #unwritable(why: string, cause?: unknown): NoriaError {
    return unusableFolder(this.#folder, why, cause);
  }

  async #newest(): Promise<Version> {
    for (;;) {
      const number = Math.max(-1, ...(await this.#versions()));
      if (number < 0) {
        await this.#linkNew(0, '');
        continue;
      }
      const text = await readStateFile(this.#path(number));
      if (text !== undefined) return { number, text };
    }
  }

  async #versions(): Promise<number[]> {
    const names = await readdir(this.#folder);
    return names.flatMap((name) => {
      const digits = /^\.(\d+)\.json$/.exec(name.slice(this.#name.length))?.[1];
      if (!name.startsWith(this.#name) || digits === undefined) return [];
      const problem = findNumberProblem(join(this.#folder, name));
      if (problem !== undefined) throw new Error(problem);
      return [Number(digits)];
    });
  }

  async #commit(base: Version, value: unknown): Promise<boolean> {
    const number = base.number + 1;
    // The id makes each text unique, because the comparison below must distinguish versions with the same value.
    if (!(await this.#linkNew(number, JSON.stringify({ id: randomUUID(), value })))) return false;
    // While this process was suspended, other processes may have created a version with this number, and removed it
    // later. In this case, they have also removed the base version, because it is older. So if the base version is
    // missing or has another id, the version that this process has just created is outdated, and must be removed.
    if ((await readStateFile(this.#path(base.number))) !== base.text) {
      await unlinkIfThere(this.#path(number));
      return false;
    }
    await this.#sweep(number);
    return true;
  }

  /** @returns false if the version exists already, or if the caller has to try again. */
  async #linkNew(number: number, text: string): Promise<boolean> {
    const { draft, file } = await writeDraft(this.#path(number), (file) => file.writeFile(text));
    await file.close();
    try {
      await link(draft, this.#path(number));
      await syncFolder(this.#folder);
      return true;
    } catch (error) {
      const code = errnoOf(error);
      if (code === 'EEXIST') return false;
      if (code === 'ENOENT') return false; // a starting daemon has removed all drafts; without the folder, the next try fails
      throw error;
    } finally {
      await unlinkIfThere(draft);
    }
  }

  async #sweep(newest: number): Promise<void> {
    const old = (await this.#versions()).filter((number) => number <= newest - KEPT_VERSIONS);
    for (const number of old.sort((a, b) => a - b)) await unlinkIfThere(this.#path(number));
  }

  #path(number: number): string {
    return join(this.#folder, `${this.#name}.${number}.json`);
  }
}

function parseValue(text: string): unknown {
  if (text === '') return undefined;
  try {
    const parsed: { readonly value?: unknown } | null = JSON.parse(text);
    return parsed?.value ?? BROKEN;
  } catch {
    return BROKEN; // handled: the caller decides what an unreadable value means
  }
}
