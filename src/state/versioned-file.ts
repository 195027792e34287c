/**
 * A small JSON value on disk that any number of processes change atomically, without a lock.
 *
 * Node has no flock, and lock files are unsafe: a lock file remains after its owner has died, and two processes that
 * both find it outdated can both take it. Instead, the value is the newest of `NAME.0.json`, `NAME.1.json`…. A
 * process writes a change to a temporary file, then *links* that file to the next number. link(2) fails if the number
 * exists. So of all processes that have read version N, exactly one creates N + 1; the others read and decide again.
 * A process that is killed or stopped at any point never blocks the others.
 */
import { randomUUID } from 'node:crypto';
import { link, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describeError, type NoriaError } from '../core/faults.ts';
import {
  errnoOf,
  findNumberProblem,
  readStateFile,
  syncFolder,
  unlinkIfThere,
  unusableFolder,
  writeDraft,
} from './state-files.ts';

/** What to do with a value. `newValue` is the new value; without `newValue`, the value does not change. */
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

export class VersionedFile {
  readonly #folder: string;
  readonly #name: string;

  /**
   * @param folder - an existing folder.
   * @param name - letters and hyphens.
   */
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
        // Creates an empty version 0, because `#commit` needs a previous version.
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

  /**
   * Creates the version with this content and syncs it to disk.
   *
   * @returns false if the version exists already.
   */
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
      // A starting daemon removes all drafts. So ENOENT in a readable folder means that this draft was removed.
      const swept = code === 'ENOENT' && isOfLink(error);
      if (swept && (await isReadable(this.#folder))) return false; // handled: `change` tries again
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
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null && 'value' in parsed ? parsed.value : BROKEN;
  } catch {
    return BROKEN; // handled: the caller decides what an unreadable value means
  }
}

async function isReadable(folder: string): Promise<boolean> {
  return readdir(folder).then(
    () => true,
    () => false, // ignored: the caller throws the error that it has
  );
}

function isOfLink(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'link';
}
