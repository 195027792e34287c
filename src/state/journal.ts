/**
 * The journal: many small records by key, kept on disk as they change.
 *
 * The file has one JSON value per line. An object is the head of a write, with its moment. `["key", value]` is a
 * record; the last record of a key counts. `["key"]` removes the record. A write appends the changed records. A file
 * with mostly outdated lines is replaced by a new one. All work is done in slices, so that a hundred thousand records
 * do not block the event loop.
 */
import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { describeError } from '../core/faults.ts';
import { elapsedBetween, type Moment, momentSchema } from './moment.ts';
import type { StateFileOptions } from './snapshot-file.ts';
import { readStateFile, replaceStateFile } from './state-files.ts';

/** `undefined` removes the record. */
export type JournalEntry = readonly [key: string, value: unknown];

/** The owner of the records. */
export interface JournalSource {
  readonly size: number;
  /** Returns all records. They may change during the iteration. */
  all(): Iterable<JournalEntry>;
  /** Returns at most `most` of the changed records, and counts them as unchanged from then on. */
  takeChanges(most: number): readonly JournalEntry[];
  /** Counts all records as unchanged. */
  dropChanges(): void;
}

export interface FoundRecord {
  readonly value: unknown;
  /** The time in ms since the record was written, correct even if the wall clock was set since. */
  readonly ageMs: number;
}

export interface Journal {
  /** The content of the file when it was opened, not validated; empty after `attach`. */
  readonly found: ReadonlyMap<string, FoundRecord>;
  /**
   * Begins to write the records of a source. Within a second after each call of `onChange`, the changes are on disk.
   * Changes in that time are written together.
   */
  attach(open: (onChange: () => void) => JournalSource): void;
  /** Writes all records one last time. Safe to call twice. */
  close(): Promise<void>;
}

/** How long a write waits for more changes: half of the second of changes that a crash may lose. */
const GATHER_MS = 500;
/** How many records are converted to text at a time, which takes about a millisecond. */
const SLICE = 500;
/** How many outdated lines the file may have, in addition to one for each record. */
const MIN_OUTDATED = 1_000;
const FORMAT = 1;

const headSchema = z.object({ format: z.literal(FORMAT), at: momentSchema });

/** Opens and reads the journal. Invalid lines are ignored, with a warning. */
export async function openJournal(options: StateFileOptions): Promise<Journal> {
  return new JournalFile(options, await readRecords(options));
}

/** A journal that stores nothing, for `state: off`. */
export function noJournal(): Journal {
  return { found: new Map(), attach: () => {}, close: async () => {} };
}

class JournalFile implements Journal {
  found: ReadonlyMap<string, FoundRecord>;
  readonly #options: StateFileOptions;
  #source: JournalSource | undefined;
  /** Undefined before the first write and after a failed write. The next write then replaces the file. */
  #file: FileHandle | undefined;
  #lineCount = 0;
  #timer: Disposable | undefined;
  #writing: Promise<void> | undefined;
  /** True if records have changed since the last write began. */
  #dirty = false;
  #closed = false;

  constructor(options: StateFileOptions, found: ReadonlyMap<string, FoundRecord>) {
    this.#options = options;
    this.found = found;
  }

  attach(open: (onChange: () => void) => JournalSource): void {
    this.found = new Map();
    this.#source = open(() => this.#saveSoon());
  }

  async close(): Promise<void> {
    if (this.#closed) return this.#writing;
    this.#closed = true;
    await this.#writing;
    if (this.#source !== undefined) {
      await this.#closeFile(); // replaces the file at the next write, so that the times of all records are exact
      this.#dirty = true;
      await this.#write();
    }
    await this.#closeFile();
  }

  #saveSoon(): void {
    if (this.#closed || this.#source === undefined) return;
    this.#dirty = true;
    if (this.#writing !== undefined) return; // the end of the current write starts the write of these changes
    this.#timer ??= this.#options.clock.after(GATHER_MS, () => void this.#write());
  }

  /** One write at a time. Changes during a write are written after it. */
  #write(): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      if (this.#dirty) this.#saveSoon();
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    const source = this.#source;
    if (!this.#dirty || source === undefined) return;
    this.#dirty = false;
    try {
      if (this.#file === undefined || this.#lineCount > 2 * source.size + MIN_OUTDATED) {
        await this.#replace(source);
      } else await this.#append(this.#file, source);
    } catch (error) {
      // The next change tries again. A full disk must not stop the service.
      this.#options.warn(`cannot write the journal ${this.#options.path}: ${describeError(error)}`);
      await this.#closeFile();
    }
  }

  async #append(file: FileHandle, source: JournalSource): Promise<void> {
    for (let changes = source.takeChanges(SLICE); changes.length > 0; changes = source.takeChanges(SLICE)) {
      await this.#writeSlice(file, changes);
    }
    await file.datasync();
  }

  async #replace(source: JournalSource): Promise<void> {
    await this.#closeFile();
    this.#file = await replaceStateFile(this.#options.path, async (file) => {
      source.dropChanges();
      this.#lineCount = 0;
      let slice: JournalEntry[] = [];
      for (const entry of source.all()) {
        slice.push(entry);
        if (slice.length < SLICE) continue;
        await this.#writeSlice(file, slice);
        slice = [];
      }
      await this.#writeSlice(file, slice);
    });
  }

  async #writeSlice(file: FileHandle, entries: readonly JournalEntry[]): Promise<void> {
    const head = JSON.stringify({ format: FORMAT, at: this.#options.timekeeper.now() });
    const lines = entries.map(([key, value]) => JSON.stringify(value === undefined ? [key] : [key, value]));
    this.#lineCount += lines.length;
    await file.appendFile(`${[head, ...lines].join('\n')}\n`);
  }

  async #closeFile(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }
}

async function readRecords({ path, timekeeper, warn }: StateFileOptions): Promise<Map<string, FoundRecord>> {
  let text: string | undefined;
  try {
    text = await readStateFile(path);
    if (text === undefined) return new Map();
  } catch (error) {
    warn(`cannot read the journal ${path}: ${describeError(error)}`);
    return new Map();
  }
  const { found, invalidCount } = parseRecords(text, timekeeper.now());
  if (invalidCount > 0) warn(`noria ignores ${invalidCount} invalid lines of the journal ${path}`);
  return found;
}

function parseRecords(text: string, now: Moment) {
  const found = new Map<string, FoundRecord>();
  let invalidCount = 0;
  let ageMs: number | undefined;
  // A crash can cut off the last line, so the text after the last line feed is ignored.
  for (const line of text.split('\n').slice(0, -1)) {
    const parsed = parseLine(line);
    if (Array.isArray(parsed)) {
      const [key, value]: unknown[] = parsed;
      if (typeof key !== 'string' || ageMs === undefined) invalidCount += 1;
      else if (parsed.length > 1) found.set(key, { value, ageMs });
      else found.delete(key);
      continue;
    }
    const head = headSchema.safeParse(parsed);
    if (head.success) ageMs = Math.max(0, elapsedBetween(head.data.at, now));
    else invalidCount += 1;
  }
  return { found, invalidCount };
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // handled: the line is invalid
  }
}
