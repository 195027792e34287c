/**
 * What the parts want to find again after a restart, in one JSON file, written whole or not at all.
 *
 * Owns the file and one timer. What a part keeps, and how it reads it back, is the part's own: here it is plain data
 * under the part's name.
 */
import { readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import writeFileAtomic from 'write-file-atomic';
import type { Clock } from '../core/clock.ts';
import { describeError } from '../core/faults.ts';
import { elapsedBetween, type Moment, readMoment, type Timekeeper } from './moment.ts';

export interface SnapshotFile {
  /** What was kept under that name when the file was opened, by this or an earlier run; undefined: nothing. To be decoded. */
  read(part: string): unknown;
  /** Ms since that was collected, also where the wall clock was set meanwhile; 0 where there is nothing. */
  ageMs(part: string): number;
  /** From now on the file holds what `collect` gives, as plain data, under that name. */
  keep(part: string, collect: () => unknown): void;
  /** Something changed: it is written within a few seconds, together with whatever else changes by then. */
  changed(): void;
  /** Writes at once, for what was paid for. Resolves when it is on disk, or could not be written (which was warned of). */
  save(): Promise<void>;
  /** Writes a last time, changed or not, and nothing after that. Safe to call twice. */
  close(): Promise<void>;
}

export interface SnapshotFileOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly timekeeper: Timekeeper;
  /** A file that cannot be read, or not be written: noria goes on, and a restart would know less. */
  readonly warn: (message: string) => void;
}

/** Time for several changes to gather in one write. */
const GATHER_MS = 3_000;
const FORMAT = 1;
/** Snapshots that could not be understood: enough to find out why, and no more of them with every restart. */
const KEPT_ASIDE = 3;

/** What was kept of one part, and when it was collected. */
interface Kept {
  readonly at: Moment;
  readonly value: unknown;
}

type Parts = Readonly<Record<string, Kept>>;

/** Opens the snapshot and reads it. A file that cannot be understood is set aside, with the last few such. */
export async function openSnapshotFile(options: SnapshotFileOptions): Promise<SnapshotFile> {
  return new AtomicSnapshot(options, await readParts(options));
}

/** Keeps nothing: for `state: off`. */
export function noSnapshot(): SnapshotFile {
  return {
    read: () => undefined,
    ageMs: () => 0,
    keep: () => {},
    changed: () => {},
    save: async () => {},
    close: async () => {},
  };
}

class AtomicSnapshot implements SnapshotFile {
  readonly #options: SnapshotFileOptions;
  readonly #found: Parts;
  readonly #collectors = new Map<string, () => unknown>();
  #timer: Disposable | undefined;
  #writing: Promise<void> | undefined;
  /** Changed since the last write began. */
  #dirty = false;
  #closed = false;

  constructor(options: SnapshotFileOptions, found: Parts) {
    this.#options = options;
    this.#found = found;
  }

  read(part: string): unknown {
    return this.#foundOf(part)?.value;
  }

  ageMs(part: string): number {
    const kept = this.#foundOf(part);
    return kept === undefined ? 0 : Math.max(0, elapsedBetween(kept.at, this.#options.timekeeper.now()));
  }

  keep(part: string, collect: () => unknown): void {
    this.#collectors.set(part, collect);
  }

  changed(): void {
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

  #foundOf(part: string): Kept | undefined {
    return Object.hasOwn(this.#found, part) ? this.#found[part] : undefined;
  }

  /** One write at a time; what changes meanwhile goes into the next one, which starts at once. */
  #write(): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    while (this.#dirty) {
      this.#dirty = false;
      const text = JSON.stringify({ format: FORMAT, parts: this.#collect() });
      try {
        await writeFileAtomic(this.#options.path, text, { mode: 0o600 });
      } catch (error) {
        // The next change tries again; a full disk is no reason to stop serving.
        this.#options.warn(`the snapshot ${this.#options.path} was not written: ${describeError(error)}`);
      }
    }
  }

  #collect(): Parts {
    const at = this.#options.timekeeper.now();
    const collected = [...this.#collectors].map(
      ([part, collect]) => [part, { at, value: collect() }] as const,
    );
    // A part that has not come up (yet) keeps what was found of it, and its age.
    return { ...this.#found, ...Object.fromEntries(collected) };
  }
}

async function readParts({ path, clock, warn }: SnapshotFileOptions): Promise<Parts> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return {};
    warn(`the snapshot ${path} was not read: ${describeError(error)}`);
    return {};
  }
  try {
    return partsOf(JSON.parse(text));
  } catch (error) {
    const aside = `${path}.broken-${clock.now()}`;
    const moved = await setAside(path, aside).then(
      () => `it stands aside as ${aside}`,
      (failed: unknown) => `it could not be set aside either: ${describeError(failed)}`,
    );
    warn(`the snapshot ${path} cannot be understood (${describeError(error)}); ${moved}`);
    return {};
  }
}

/** Renames it, and lets the oldest of those set aside before go. */
async function setAside(path: string, aside: string): Promise<void> {
  await rename(path, aside);
  const folder = dirname(path);
  const prefix = `${basename(path)}.broken-`;
  const moments = (await readdir(folder)).flatMap((name) => {
    const moment = name.startsWith(prefix) ? name.slice(prefix.length) : '';
    return /^\d+$/.test(moment) ? [Number(moment)] : [];
  });
  const old = moments.sort((a, b) => b - a).slice(KEPT_ASIDE);
  await Promise.all(old.map((moment) => rm(join(folder, `${prefix}${moment}`), { force: true })));
}

function partsOf(value: unknown): Parts {
  if (typeof value !== 'object' || value === null) throw new Error('it is not an object');
  const { format, parts } = value as { format?: unknown; parts?: unknown };
  if (format !== FORMAT) throw new Error(`its format is ${JSON.stringify(format)}, not ${FORMAT}`);
  if (typeof parts !== 'object' || parts === null) throw new Error('it has no parts');
  return Object.fromEntries(Object.entries(parts).map(([name, kept]) => [name, readKept(name, kept)]));
}

function readKept(name: string, kept: unknown): Kept {
  const { at, value } = (typeof kept === 'object' && kept !== null ? kept : {}) as Record<string, unknown>;
  const moment = readMoment(at);
  if (moment === undefined) throw new Error(`its part ${name} does not say when it was written`);
  return { at: moment, value };
}
