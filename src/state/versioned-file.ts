/**
 * A small JSON value in a folder that any number of processes change, one after the other, without a lock.
 *
 * Node has no flock, and a lock file outlives its owner: two processes that both find it stale can both take it. So
 * nobody holds anything here. The value is the newest of `NAME.0.json`, `NAME.1.json`…; a change is written whole to a
 * file of its own and then *linked* to the next number. link(2) fails where that number exists, so of all who read
 * version N exactly one makes N + 1; the others read again and decide again. A process killed or stopped at any point
 * holds nobody up, and nothing depends on telling the living from the dead.
 */
import { randomUUID } from 'node:crypto';
import { link, open, readdir, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { describeError, NoriaError } from '../core/faults.ts';

/** What `decide` makes of the value. Without `next` nothing is written. */
export interface Decision<T> {
  readonly next?: unknown;
  readonly result: T;
}

/** Stands for a newest version that is not JSON: a damaged disk, or a person's edit. */
export const BROKEN = Symbol('broken');

/** Versions that stay beside the newest, so that one who read an older one notices how late it is. */
const KEPT_VERSIONS = 8;
/** Of the processes that collide one always gets through, so this many misses in a row are no collisions. */
const MAX_TRIES = 1_000;

interface Version {
  readonly number: number;
  readonly text: string;
}

export class VersionedFile {
  readonly #folder: string;
  readonly #name: string;

  /** @param name - letters and hyphens; the folder must exist. */
  constructor(folder: string, name: string) {
    this.#folder = folder;
    this.#name = name;
  }

  /**
   * Replaces the value by what `decide` makes of it, as one step against every other process and every other call.
   *
   * `decide` gets the value now (`undefined`: never set; `BROKEN`: unreadable) and is called again with the newer one
   * when another process was faster, so it must have no effect of its own. When the promise resolves the next value is
   * on the disk. What `decide` throws goes through, with nothing written.
   *
   * @throws NoriaError state-unwritable when the folder cannot be read or written, or knows no hard links.
   */
  async change<T>(decide: (value: unknown) => Decision<T>): Promise<T> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const base = await this.#attempt(() => this.#newest());
      const { next, result } = decide(parseValue(base.text));
      if (next === undefined) return result;
      if (await this.#attempt(() => this.#commit(base, next))) return result;
    }
    throw this.#unwritable(`${MAX_TRIES} tries to write a new version all found another one there`);
  }

  async #attempt<T>(step: () => Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (cause) {
      throw this.#unwritable(describeError(cause), cause);
    }
  }

  #unwritable(why: string, cause?: unknown): NoriaError {
    const message = `the state folder ${this.#folder} cannot be used for ${this.#name}: ${why}`;
    return new NoriaError('state-unwritable', message, { cause, context: { folder: this.#folder } });
  }

  async #newest(): Promise<Version> {
    for (;;) {
      const number = Math.max(-1, ...(await this.#versions()));
      if (number < 0) {
        // Also the first change has a version to start from, so that `#commit` can see whether it is still there.
        await this.#linkNew(0, '');
        continue;
      }
      const text = await readOrMissing(this.#path(number));
      if (text !== undefined) return { number, text };
    }
  }

  async #versions(): Promise<number[]> {
    const names = await readdir(this.#folder);
    return names.flatMap((name) => {
      const digits = /^\.(\d+)\.json$/.exec(name.slice(this.#name.length))?.[1];
      return name.startsWith(this.#name) && digits !== undefined ? [Number(digits)] : [];
    });
  }

  async #commit(base: Version, value: unknown): Promise<boolean> {
    const number = base.number + 1;
    // The id makes every text unique: the same value written twice is still two versions.
    if (!(await this.#linkNew(number, JSON.stringify({ id: randomUUID(), value })))) return false;
    // One who slept since it read its base may have linked a number that others made and swept long ago. Sweeping goes
    // from the oldest up, so in that case its base is gone too, or is another latecomer's with another id.
    if ((await readOrMissing(this.#path(base.number))) !== base.text) {
      await unlinkIfThere(this.#path(number));
      return false;
    }
    await this.#sweep(number);
    return true;
  }

  /** Makes the version with that content, whole and on the disk, or answers false where there is one. */
  async #linkNew(number: number, text: string): Promise<boolean> {
    const draft = join(this.#folder, `${this.#name}.${randomUUID()}.tmp`);
    try {
      const file = await open(draft, 'wx', 0o600);
      try {
        await file.writeFile(text);
        await file.sync();
      } finally {
        await file.close();
      }
      await link(draft, this.#path(number));
      await syncFolder(this.#folder);
      return true;
    } catch (error) {
      const code = errnoOf(error);
      if (code === 'EEXIST') return false;
      // A daemon that started just now swept the draft away. Where not even a draft can be made (/proc), that is no race.
      const swept = code === 'ENOENT' && isOfLink(error);
      if (swept && (await folderIsThere(this.#folder))) return false; // the caller reads again either way
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

/** Removes what processes killed in the middle of a change left behind. A living one whose draft goes with it tries again. */
export async function sweepDrafts(folder: string): Promise<void> {
  const names = await readdir(folder);
  for (const name of names.filter((name) => name.endsWith('.tmp'))) await unlinkIfThere(join(folder, name));
}

function parseValue(text: string): unknown {
  if (text === '') return undefined;
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null && 'value' in parsed ? parsed.value : BROKEN;
  } catch {
    return BROKEN; // the caller decides what an unreadable value means
  }
}

async function readOrMissing(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

async function unlinkIfThere(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

async function folderIsThere(folder: string): Promise<boolean> {
  return readdir(folder).then(
    () => true,
    () => false, // ignored: the error that led here is the one to tell
  );
}

/** Makes the new name itself durable. */
async function syncFolder(folder: string): Promise<void> {
  if (process.platform === 'win32') return; // a folder cannot be opened there
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function isOfLink(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'link';
}

function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}
