/**
 * The snapshot: one JSON file with the state that parts of noria keep across a restart. Each write is atomic.
 *
 * Each part decides which data it stores and how it reads them. The file contains the data of each part under its name,
 * as plain data.
 */
import { readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../core/clock.ts';
import { describeError } from '../core/faults.ts';
import { elapsedBetween, momentSchema, type Timekeeper } from './moment.ts';
import { readStateFile, replaceStateFile } from './state-files.ts';

export interface StateFileOptions {
  /** With `undefined`, nothing is read or written (`state: off`). */
  readonly path: string | undefined;
  readonly clock: Clock;
  readonly timekeeper: Timekeeper;
  readonly warn: (message: string) => void;
}

/** How long `saveSoon` waits for more changes, in ms. */
const GATHER_MS = 3_000;
const FORMAT = 1;
/** How many invalid snapshots noria keeps: enough to find the reason, but not one for each restart. */
const MAX_BROKEN_FILES = 3;

const fileSchema = z.object({
  format: z.literal(FORMAT, { error: ({ input }) => `expected ${FORMAT}, not ${JSON.stringify(input)}` }),
  parts: z.record(z.string(), z.object({ at: momentSchema, value: z.unknown() })),
});

type SnapshotParts = z.infer<typeof fileSchema>['parts'];

export async function openSnapshotFile(options: StateFileOptions): Promise<SnapshotFile> {
  return new SnapshotFile(options, await readParts(options));
}

export class SnapshotFile {
  readonly #options: StateFileOptions;
  readonly #found: SnapshotParts;
  readonly #collectors = new Map<string, () => unknown>();
  #timer: Disposable | undefined;
  #writing: Promise<void> | undefined;
  #dirty = false;
  #closed: boolean;

  constructor(options: StateFileOptions, found: SnapshotParts) {
    this.#options = options;
    this.#found = found;
    this.#closed = options.path === undefined;
  }

  /** The data of one part of noria, as noria found it in the file. Not validated; undefined if absent. */
  read(part: string): unknown {
    return this.#foundOf(part)?.value;
  }

  /** The time in ms since the part returned its data; 0 without data. It is correct even if the wall clock was set. */
  ageMs(part: string): number {
    const found = this.#foundOf(part);
    return found === undefined ? 0 : Math.max(0, elapsedBetween(found.at, this.#options.timekeeper.now()));
  }

  /** From now on, each write contains what `collect` returns. The returned value must be plain data. */
  addPart(part: string, collect: () => unknown): void {
    this.#collectors.set(part, collect);
  }

  saveSoon(): void {
    if (this.#closed) return;
    this.#dirty = true;
    this.#timer ??= this.#options.clock.after(GATHER_MS, () => {
      this.#timer = undefined;
      void this.#write();
    });
  }

  save(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    this.#dirty = true;
    return this.#write();
  }

  async close(): Promise<void> {
    if (!this.#closed) this.#dirty = this.#collectors.size > 0;
    this.#closed = true;
    await this.#write();
  }

  #foundOf(part: string): SnapshotParts[string] | undefined {
    return Object.hasOwn(this.#found, part) ? this.#found[part] : undefined;
  }

  /** Runs one write at a time. If `save` or `saveSoon` is called during a write, another write follows. */
  #write(): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    const { path, warn } = this.#options;
    while (this.#dirty && path !== undefined) {
      this.#dirty = false;
      const text = JSON.stringify({ format: FORMAT, parts: this.#collect() });
      try {
        const file = await replaceStateFile(path, (file) => file.writeFile(text));
        await file.close();
      } catch (error) {
        // noria only warns, because a full disk must not stop the proxy. The next change causes another write.
        warn(`cannot write the snapshot ${path}: ${describeError(error)}`);
      }
    }
  }

  #collect(): SnapshotParts {
    const at = this.#options.timekeeper.now();
    const collected = [...this.#collectors].map(([part, collect]) => [part, { at, value: collect() }]);
    // If `addPart` was not called for a part, the part keeps the data that the file contained when noria opened it.
    return { ...this.#found, ...Object.fromEntries(collected) };
  }
}

async function readParts({ path, clock, warn }: StateFileOptions): Promise<SnapshotParts> {
  if (path === undefined) return {};
  let text: string | undefined;
  try {
    text = await readStateFile(path);
    if (text === undefined) return {};
  } catch (error) {
    warn(`cannot read the snapshot ${path}: ${describeError(error)}`);
    return {};
  }
  try {
    return parseParts(text);
  } catch (error) {
    const aside = `${path}.broken-${clock.now()}`;
    const moved = await setAside(path, aside).then(
      () => `it was renamed to ${aside}`,
      (failed: unknown) => `noria could not rename it: ${describeError(failed)}`,
    );
    warn(`the snapshot ${path} is invalid (${describeError(error)}); ${moved}`);
    return {};
  }
}

function parseParts(text: string): SnapshotParts {
  const { data, error } = fileSchema.safeParse(JSON.parse(text));
  if (data !== undefined) return data.parts;
  const reasons = error.issues.map(({ path, message }) => [...path.map(String), message].join(': '));
  throw new Error(reasons.join('; '));
}

/** Renames an invalid snapshot, and deletes older invalid snapshots if there are too many. */
async function setAside(path: string, aside: string): Promise<void> {
  await rename(path, aside);
  const folder = dirname(path);
  const prefix = `${basename(path)}.broken-`;
  const moments = (await readdir(folder)).flatMap((name) => {
    const moment = name.startsWith(prefix) ? name.slice(prefix.length) : '';
    return /^\d+$/.test(moment) ? [Number(moment)] : [];
  });
  const old = moments.sort((a, b) => b - a).slice(MAX_BROKEN_FILES);
  await Promise.all(old.map((moment) => rm(join(folder, `${prefix}${moment}`), { force: true })));
}
